"""Small invented sessions for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import IndexReport, RefreshOptions, index_library

SAMPLES = Path(__file__).resolve().parents[1].parent / "shared" / "samples"
"""Real files of other people's tools; tests skip where the folder is missing."""


def moment(minute: int) -> str:
    """A time of one invented day, counted in minutes."""
    return f"2026-05-04T{minute // 60 % 24:02d}:{minute % 60:02d}:00.000Z"


def claude_user(text: str, n: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "user", "uuid": f"u-{n}", "parentUuid": f"u-{n - 1}" if n else None,
        "sessionId": "s", "timestamp": moment(n), "cwd": "/home/ada/lathe", "gitBranch": "main",
        "isSidechain": False, "userType": "external", "version": "2.1.0",
        "message": {"role": "user", "content": text}, **more,
    }  # fmt: skip


def claude_assistant(text: str, n: int, **more: Any) -> dict[str, Any]:
    return _assistant([{"type": "text", "text": text}], n, **more)


def claude_thinking(text: str, n: int) -> dict[str, Any]:
    return _assistant([{"type": "thinking", "thinking": text, "signature": "c2ln"}], n)


def claude_call(name: str, arguments: dict[str, Any], call: str, n: int) -> dict[str, Any]:
    return _assistant([{"type": "tool_use", "id": call, "name": name, "input": arguments}], n)


def claude_result(text: str, call: str, n: int, *, error: bool = False) -> dict[str, Any]:
    record = claude_user("", n)
    block = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": error}
    record["message"]["content"] = [block]
    return record


def _assistant(content: list[dict[str, Any]], n: int, **more: Any) -> dict[str, Any]:
    record = claude_user("", n, type="assistant", **more)
    record["message"] = {"role": "assistant", "model": "claude-opus-4-5", "id": f"m-{n}",
                         "content": content}  # fmt: skip
    return record


def write_lines(path: Path, records: Iterable[dict[str, Any]], *, append: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a" if append else "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path


def claude_path(home: Path, session: str) -> Path:
    return home / ".claude" / "projects" / "-home-ada-lathe" / f"{session}.jsonl"


def conversation(turns: int, *, start: int = 0, word: str = "spindle") -> list[dict[str, Any]]:
    """Turns of a prompt, a thought, a call with its result, and an answer: five records each."""
    records: list[dict[str, Any]] = []
    n = start
    for turn in range(turns):
        records += [
            claude_user(f"please check the {word} number {n}", n),
            claude_thinking(f"secret thought about {word} {n}", n + 1),
            claude_call("Bash", {"command": f"grep -rn {word}_{n} src/"}, f"call-{n}", n + 2),
            claude_result(f"src/a.py:{n}: {word}_{n} = {turn}", f"call-{n}", n + 3),
            claude_assistant(f"The {word} number {n} turns freely.", n + 4),
        ]
        n += 5
    return records


class Clock:
    """A clock that a test turns."""

    def __init__(self, now: float = 2_000_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def index(library: Library, home: Path, **options: Any) -> IndexReport:
    """Indexes the home of an invented user; everything counts as settled unless a clock says no."""
    options.setdefault("clock", Clock())
    return index_library(library, options=RefreshOptions(home=home, **options))
