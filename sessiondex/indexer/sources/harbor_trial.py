"""Run fields of a Harbor trajectory: its own, and those of the trial folder around it.

Harbor writes `<jobs>/<job>/<trial>/agent/trajectory.json` and, into the trial folder, `config.json`
when the trial starts and `result.json` when it ends. Both are optional; what is not there is left
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sessiondex.errors import Failed
from sessiondex.indexer.sources.base import SourceFile, SourceOptions
from sessiondex.indexer.sources.documents import as_dict, as_text, read_document
from sessiondex.model import clean_text

_LEVELS: Final = 4
"""Folders above a trajectory in which a trial is looked for: `<trial>/steps/<step>/agent`."""

_TRIAL_OPTIONS: Final = SourceOptions(document_bytes=32 * 1024 * 1024)
"""A result may hold token ids of the whole run; a larger one is not worth its reading."""

_TASK_FIELDS: Final = ("task", "task_name", "task_id", "instance_id")
_STOP_FIELDS: Final = ("stop_reason", "exit_reason", "exit_status", "finish_reason")
_SCORE_FIELDS: Final = ("scores", "rewards", "score", "reward")


def read_trial(path: Path, trajectories: Sequence[dict[str, Any]], *, run: str) -> dict[str, Any]:
    """`run`, `trial`, `task`, `epoch`, `agent`, `model`, `scores`, `status`, `error`,
    `stop_reason` of a trajectory, as far as it (or one it is embedded in) or its trial says them.

    `run` is the trajectory's own run id, for one that lies in no job.
    """
    own = trajectories[0]
    agent = as_dict(own.get("agent"))
    extras = [
        extra
        for trajectory in trajectories
        for extra in (
            as_dict(trajectory.get("extra")),
            as_dict(as_dict(trajectory.get("final_metrics")).get("extra")),
            as_dict(as_dict(trajectory.get("agent")).get("extra")),
        )
    ]
    folder, result, config = _trial(path)
    config = config or as_dict(result.get("config"))
    exception = as_dict(result.get("exception_info"))
    fields = {
        "run": folder.parent.name if folder else run,
        "trial": as_text(result.get("trial_name")) or as_text(config.get("trial_name")),
        "task": as_text(result.get("task_name"))
        or _task(as_dict(config.get("task")))
        or _first(extras, _TASK_FIELDS, str),
        "epoch": _first(extras, ("epoch", "attempt"), int),
        "agent": " ".join(
            filter(None, (as_text(agent.get("name")), as_text(agent.get("version"))))
        ),
        "model": as_text(agent.get("model_name")) or _model(result, config),
        "scores": _scores(result, extras),
        "status": _first(extras, ("status",), str) or _status(result, exception),
        "error": _error(exception) or _first(extras, ("error",), str),
        "stop_reason": _first(extras, _STOP_FIELDS, str),
    }
    return {
        key: clean_text(value) if isinstance(value, str) else value
        for key, value in fields.items()
        if value not in ("", None, {})
    }


def _trial(path: Path) -> tuple[Path | None, dict[str, Any], dict[str, Any]]:
    """The trial folder above a trajectory with its result and its configuration.

    The job's own files have the same names; they name no trial and no task.
    """
    for folder in list(path.parents)[:_LEVELS]:
        result = _neighbour(folder / "result.json")
        config = _neighbour(folder / "config.json")
        is_result = "task_name" in result or "trial_name" in result
        is_config = "trial_name" in config and isinstance(config.get("task"), dict)
        if is_result or is_config:
            return folder, result if is_result else {}, config if is_config else {}
    return None, {}, {}


def _neighbour(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return as_dict(read_document(SourceFile(path, options=_TRIAL_OPTIONS)))
    except (Failed, OSError):
        # A trial that is still being written; the trajectory is worth reading without it.
        return {}


def _first(extras: Sequence[dict[str, Any]], names: Sequence[str], kind: type) -> Any:
    for fields in extras:
        for name in names:
            value = fields.get(name)
            if isinstance(value, kind) and not isinstance(value, bool):
                return value
    return None


def _task(task: dict[str, Any]) -> str:
    return as_text(task.get("name")) or Path(as_text(task.get("path"))).name


def _model(result: dict[str, Any], config: dict[str, Any]) -> str:
    described = as_dict(as_dict(result.get("agent_info")).get("model_info"))
    named = [as_text(described.get("provider")), as_text(described.get("name"))]
    return "/".join(filter(None, named)) or as_text(as_dict(config.get("agent")).get("model_name"))


def _scores(result: dict[str, Any], extras: Sequence[dict[str, Any]]) -> dict[str, Any]:
    verified = as_dict(result.get("verifier_result"))
    for fields in (verified, *extras):
        for name in _SCORE_FIELDS:
            value = fields.get(name)
            if isinstance(value, dict) and value:
                return value
            if isinstance(value, int | float):
                return {name: value}
    return {}


def _status(result: dict[str, Any], exception: dict[str, Any]) -> str:
    if exception:
        return "error"
    return "success" if result.get("finished_at") else ""


def _error(exception: dict[str, Any]) -> str:
    named = [as_text(exception.get("exception_type")), as_text(exception.get("exception_message"))]
    return ": ".join(filter(None, named))
