"""What a naive reader sees in a generated history: the visible texts, one after another.

Written apart from the product, from the same notes, so that rivals index the same texts and tests
can compare counts. Knows only what the generator writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson


class EntryText(NamedTuple):
    """One visible text of one session."""

    session: str
    kind: str
    """user, assistant, system, tool_input or tool_output"""
    text: str


def entry_texts(home: Path) -> Iterator[EntryText]:
    """The visible texts of all sessions under a home folder, in order of path and line."""
    for path in sorted(home.glob(".claude/projects/**/*.jsonl")):
        yield from claude_texts(path)
    for path in sorted(home.glob(".codex/sessions/**/*.jsonl")):
        session, has_prompt = "", False
        for record in _records(path):
            payload = record["payload"]
            if record["type"] == "session_meta":
                session = payload["id"]
            elif record["type"] == "response_item":
                has_prompt = has_prompt or payload.get("role") == "user"
                if has_prompt:
                    yield from _codex(session, payload)


def claude_texts(path: Path) -> Iterator[EntryText]:
    """The visible texts of one Claude Code file."""
    session = path.stem
    if path.parent.name == "subagents":
        session = f"{path.parent.parent.name}/{path.stem.removeprefix('agent-')}"
    for record in _records(path):
        yield from _claude(session, record)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, "rb") as file:
        yield from map(orjson.loads, file)


def _call_text(name: str, arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return f"{name}\n{arguments}"
    lines = (
        f"{key}: {value if isinstance(value, str) else orjson.dumps(value).decode()}"
        for key, value in arguments.items()
    )
    return "\n".join((name, *lines))


def _claude(session: str, record: dict[str, Any]) -> Iterator[EntryText]:
    if record["type"] == "system" and "content" in record:
        yield EntryText(session, "system", record["content"])
    if record["type"] not in ("user", "assistant"):
        return
    content = record["message"]["content"]
    if isinstance(content, str):
        kind = "system" if record.get("isCompactSummary") else "user"
        yield EntryText(session, kind, content)
        return
    for block in content:
        if block["type"] == "text":
            yield EntryText(session, record["type"], block["text"])
        elif block["type"] == "tool_use":
            yield EntryText(session, "tool_input", _call_text(block["name"], block["input"]))
        elif block["type"] == "tool_result":
            output = block["content"]
            if not isinstance(output, str):
                output = "\n".join(part["text"] for part in output)
            yield EntryText(session, "tool_output", output)


def _codex(session: str, payload: dict[str, Any]) -> Iterator[EntryText]:
    match payload["type"]:
        case "message":
            text = "\n".join(part["text"] for part in payload["content"])
            yield EntryText(session, payload["role"], text)
        case "function_call":
            arguments = json.loads(payload["arguments"])
            yield EntryText(session, "tool_input", _call_text(payload["name"], arguments))
        case "custom_tool_call":
            yield EntryText(session, "tool_input", _call_text(payload["name"], payload["input"]))
        case "function_call_output" | "custom_tool_call_output":
            output = payload["output"]
            if output.startswith("{"):
                output = json.loads(output)["output"]
            yield EntryText(session, "tool_output", output)
        case _:
            pass
