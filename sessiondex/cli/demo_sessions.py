"""Invented sessions of every format, for `sessiondex demo`: a tide table that is an hour late.

Each story is a list of steps; one renderer a format turns steps into what that agent writes.
Everything is fixed, so the same bytes come out each time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal
from uuid import NAMESPACE_URL, uuid5

from sessiondex.cli.demo_stories import (
    CHAT_STORY,
    CODEX_STORY,
    FORK_STORY,
    HARBOR_STORY,
    PROJECT,
    SUB_AGENT_ID,
    SUB_AGENT_STORY,
    TIDE_STORY,
    YOI_STORY,
    Step,
)

SLUG: Final = "-home-ada-tidewatch"
MAIN_ID: Final = "5f0c2a7e-3d41-4b8e-9a66-1c0de7a5b001"
FORK_ID: Final = "c83d9b14-60f7-4e1a-b2d5-7a9e4410f2c6"
CODEX_ID: Final = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"
YOI_SESSION: Final = "019d4421-0000-7000-8000-00000000a001"
YOI_SEGMENT: Final = "019d4421-0000-7000-8000-00000000b001"


def write_demo_sessions(folder: Path) -> list[Path]:
    """Writes the demo sessions below a folder, which then looks like a home; gives their paths.

    Claude Code (with a sub-agent and a fork), Codex, a Yoi segment, a Harbor trajectory and an
    OpenAI chat.
    """
    projects = folder / ".claude" / "projects" / SLUG
    main = list(_claude(TIDE_STORY, MAIN_ID, _at("2026-03-30T08:02:11")))
    forked = list(_replayed(main, FORK_STORY))
    main.append(_title("Tide table an hour late", MAIN_ID))
    forked.append(_title("Tide table: show UTC instead?", FORK_ID))
    agent = projects / MAIN_ID / "subagents" / f"agent-{SUB_AGENT_ID}.jsonl"
    sub_agent = _claude(SUB_AGENT_STORY, MAIN_ID, _at("2026-03-30T08:03:05"), agent_id=SUB_AGENT_ID)
    meta = {"agentType": "Explore", "description": "Find users of the offset"}
    _write(agent.with_suffix(".meta.json"), [meta])
    return [
        _write(projects / f"{MAIN_ID}.jsonl", main),
        _write(agent, sub_agent),
        _write(projects / f"{FORK_ID}.jsonl", forked),
        _write(
            folder / ".codex/sessions/2026/04/01" / f"rollout-2026-04-01T10-15-00-{CODEX_ID}.jsonl",
            _codex(CODEX_STORY, _at("2026-04-01T08:15:00")),
        ),
        _write(
            folder / "yoi" / YOI_SESSION / f"{YOI_SEGMENT}.jsonl",
            _yoi(YOI_STORY, _at("2026-04-02T09:30:00")),
        ),
        _write(
            folder / "jobs/tide-csv/trial-1/agent/trajectory.json",
            [_harbor(HARBOR_STORY, _at("2026-04-03T11:00:00"))],
        ),
        _write(folder / "chats/neap-tides.json", [_chat(CHAT_STORY)]),
    ]


def _write(path: Path, values: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def _title(title: str, session_id: str) -> dict[str, Any]:
    return {"type": "custom-title", "customTitle": title, "sessionId": session_id}


def _at(moment: str) -> datetime:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC)


class _Clock:
    """Gives times that move on by a few seconds a step."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def tick(self, seconds: int = 7) -> str:
        self._now += timedelta(seconds=seconds)
        return self._now.strftime("%Y-%m-%dT%H:%M:%S.000Z")

    def milliseconds(self, seconds: int = 7) -> int:
        self._now += timedelta(seconds=seconds)
        return int(self._now.timestamp() * 1000)


# ---------------------------------------------------------------- Claude Code


def _claude(
    steps: Iterable[Step],
    session_id: str,
    start: datetime,
    *,
    agent_id: str = "",
    parent: str | None = None,
) -> Iterator[dict[str, Any]]:
    clock = _Clock(start)
    name = agent_id or session_id
    base: dict[str, Any] = {
        "isSidechain": bool(agent_id),
        "userType": "external",
        "cwd": PROJECT,
        "sessionId": session_id,
        "version": "2.1.42",
        "gitBranch": "fix/summer-time",
    }
    if agent_id:
        base["agentId"] = agent_id
    written = 0

    def record(kind: str, seconds: int = 7, **fields: Any) -> dict[str, Any]:
        nonlocal parent, written
        uuid = str(uuid5(NAMESPACE_URL, f"tidewatch/{name}/{start.isoformat()}/{written}"))
        value = {"parentUuid": parent, **base, "type": kind, **fields}
        value |= {"uuid": uuid, "timestamp": clock.tick(seconds)}
        parent = uuid
        written += 1
        return value

    def assistant(number: int, block: dict[str, Any]) -> dict[str, Any]:
        message = {
            "model": "claude-opus-4-5-20251101", "id": f"msg_{name[-6:]}{number:04d}",
            "type": "message", "role": "assistant", "content": [block], "stop_reason": None,
        }  # fmt: skip
        return record("assistant", message=message)

    for number, step in enumerate(steps):
        if step.kind == "user":
            yield record("user", 60, message={"role": "user", "content": step.text})
        elif step.kind == "think":
            block = {"type": "thinking", "thinking": step.text, "signature": "EpwDCkYICxgC"}
            yield assistant(number, block)
        elif step.kind == "say":
            yield assistant(number, {"type": "text", "text": step.text})
        else:
            call_id = f"toolu_{name[-6:]}{number:04d}"
            yield assistant(
                number,
                {"type": "tool_use", "id": call_id, "name": step.name, "input": step.arguments},
            )
            block = {"tool_use_id": call_id, "type": "tool_result", "content": step.output}
            block |= {"is_error": True} if step.is_error else {}
            twin: dict[str, Any] = {"stdout": step.output, "stderr": "", "interrupted": False}
            if step.name == "Task":
                twin = {"status": "completed", "agentId": SUB_AGENT_ID}
            content = {"role": "user", "content": [block]}
            yield record("user", message=content, toolUseResult=twin)


def _replayed(main: list[dict[str, Any]], steps: Iterable[Step]) -> Iterator[dict[str, Any]]:
    """The first turn of the main session under another session id, and how it went on there."""
    second_prompt = [
        number
        for number, record in enumerate(main)
        if record["type"] == "user" and isinstance(record["message"]["content"], str)
    ][1]
    prefix = main[:second_prompt]
    yield from ({**record, "sessionId": FORK_ID} for record in prefix)
    start = _at("2026-03-30T15:40:00")
    yield from _claude(steps, FORK_ID, start, parent=prefix[-1]["uuid"])


# ---------------------------------------------------------------- Codex


def _codex(steps: Iterable[Step], start: datetime) -> Iterator[dict[str, Any]]:
    clock = _Clock(start)

    def record(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": clock.tick(), "type": kind, "payload": payload}

    def item(**payload: Any) -> dict[str, Any]:
        return record("response_item", payload)

    def message(role: Literal["user", "assistant", "developer"], text: str) -> dict[str, Any]:
        part = "output_text" if role == "assistant" else "input_text"
        return item(type="message", role=role, content=[{"type": part, "text": text}])

    yield record("session_meta", {
        "id": CODEX_ID, "timestamp": clock.tick(0), "cwd": PROJECT, "originator": "codex_cli_rs",
        "cli_version": "0.128.0", "source": "cli", "model_provider": "openai",
        "base_instructions": {"text": "You are a coding agent. This text is never an entry."},
        "git": {"commit_hash": "8d1f0c3ab5", "branch": "main"},
    })  # fmt: skip
    yield message("developer", "<permissions instructions>\nWrite in the workspace only.")
    yield message("user", f"<environment_context>\n  <cwd>{PROJECT}</cwd>\n</environment_context>")
    for number, step in enumerate(steps):
        if step.kind == "user":
            yield record("turn_context", {
                "cwd": PROJECT, "approval_policy": "on-request", "model": "gpt-5.2-codex",
                "sandbox_policy": {"mode": "workspace-write"},
            })  # fmt: skip
            yield message("user", step.text)
            yield record("event_msg", {"type": "user_message", "message": step.text})
        elif step.kind == "think":
            yield item(
                type="reasoning", summary=[{"type": "summary_text", "text": step.text}],
                content=None, encrypted_content="gAAAAABpFXFe",
            )  # fmt: skip
        elif step.kind == "say":
            yield record("event_msg", {"type": "agent_message", "message": step.text})
            yield message("assistant", step.text)
        else:
            call_id = f"call_tide{number:04d}"
            is_patch = step.name == "apply_patch"
            prefix = "custom_tool" if is_patch else "function"
            call = {"name": step.name, "call_id": call_id}
            if is_patch:
                call |= {"input": step.text, "status": "completed"}
            else:
                call["arguments"] = json.dumps(step.arguments, ensure_ascii=False)
            yield item(type=f"{prefix}_call", **call)
            output = {"output": step.output, "metadata": {"exit_code": int(step.is_error)}}
            yield item(
                type=f"{prefix}_call_output", call_id=call_id,
                output=json.dumps(output, ensure_ascii=False),
            )  # fmt: skip


# ---------------------------------------------------------------- Yoi


def _yoi(steps: Iterable[Step], start: datetime) -> Iterator[dict[str, Any]]:
    clock = _Clock(start)

    def record(kind: str, **fields: Any) -> dict[str, Any]:
        return {"kind": kind, "ts": clock.milliseconds(), **fields}

    yield record(
        "segment_start", session_id=YOI_SESSION, config={}, history=[],
        system_prompt="You write release notes. This text is never an entry.",
    )  # fmt: skip
    turns = 0
    for number, step in enumerate(steps):
        if step.kind == "user":
            if turns:
                yield record("turn_end", turn_count=turns)
            turns += 1
            yield record("invoke", trigger="user_send")
            yield record("user_input", segments=[{"kind": "text", "content": step.text}])
        elif step.kind == "think":
            item: dict[str, Any] = {"kind": "reasoning", "text": step.text, "summary": []}
            yield record("assistant_item", item=item)
        elif step.kind == "notify":
            yield record("system_item", item={"kind": "notification", "body": step.text})
        elif step.kind == "say":
            content = [{"kind": "text", "text": step.text}]
            item = {"kind": "message", "role": "assistant", "content": content}
            yield record("assistant_item", item=item)
        else:
            call_id = f"c{number}"
            arguments = json.dumps(step.arguments, ensure_ascii=False)
            item = {
                "kind": "tool_call", "call_id": call_id, "name": step.name, "arguments": arguments,
            }  # fmt: skip
            yield record("assistant_item", item=item)
            item = {
                "kind": "tool_result", "call_id": call_id, "summary": step.text,
                "content": step.output,
            }  # fmt: skip
            yield record("tool_result", item=item)
    yield record("turn_end", turn_count=turns)
    yield record("run_completed")


# ---------------------------------------------------------------- documents


def _harbor(steps: Iterable[Step], start: datetime) -> dict[str, Any]:
    """An ATIF trajectory: what the agent thinks, says and calls is one step of it."""
    clock = _Clock(start)
    written: list[dict[str, Any]] = []
    thought = ""
    for number, step in enumerate(steps):
        if step.kind == "think":
            thought = step.text
            continue
        entry: dict[str, Any] = {
            "step_id": len(written) + 1,
            "timestamp": clock.tick(),
            "source": {"user": "user", "notify": "system"}.get(step.kind, "agent"),
            "message": step.text,
        }
        if thought:
            entry["reasoning_content"], thought = thought, ""
        if step.kind == "call":
            call_id = f"call_{number}"
            entry["tool_calls"] = [{
                "tool_call_id": call_id, "function_name": step.name, "arguments": step.arguments,
            }]  # fmt: skip
            entry["observation"] = {"results": [
                {"source_call_id": call_id, "content": step.output},
            ]}  # fmt: skip
        written.append(entry)
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "tide-csv-trial-1",
        "agent": {"name": "terminus-2", "version": "2.0.0", "model_name": "openai/gpt-4o"},
        "steps": written,
        "final_metrics": {"total_prompt_tokens": 7802, "total_completion_tokens": 431},
    }


def _chat(steps: Iterable[Step]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        if step.kind == "notify":
            messages.append({"role": "system", "content": step.text})
        elif step.kind in ("user", "say"):
            role = "user" if step.kind == "user" else "assistant"
            messages.append({"role": role, "content": step.text})
        else:
            call_id = f"call_{number}"
            function = {
                "name": step.name,
                "arguments": json.dumps(step.arguments, ensure_ascii=False),
            }
            call = {"id": call_id, "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call_id, "content": step.output})
    return {"model": "gpt-4o", "messages": messages}
