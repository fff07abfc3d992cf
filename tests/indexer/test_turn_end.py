"""Whether a run of an agent has ended, as its file tells."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard

from sessiondex import Library
from sessiondex.errors import InvalidArgument
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.turn_end import BYTES_BACK, RECORDS_BACK, has_run_ended
from tests.builders import (
    SAMPLES,
    claude_assistant,
    claude_call,
    claude_path,
    claude_result,
    claude_thinking,
    claude_user,
    conversation,
    index,
    moment,
    write_lines,
)

WRITTEN = 1_000_000.0
SETTLE = 300.0

# ---------------------------------------------------------------- invented records


def answer(text: str = "done", stop_reason: str | None = "end_turn", **more: Any) -> dict[str, Any]:
    record = claude_assistant(text, 50, **more)
    record["message"]["stop_reason"] = stop_reason
    return record


def with_reason(record: dict[str, Any], stop_reason: str) -> dict[str, Any]:
    record["message"]["stop_reason"] = stop_reason
    return record


def system(subtype: str) -> dict[str, Any]:
    return {"type": "system", "subtype": subtype, "uuid": "y", "isSidechain": False}


def progress(kind: str = "hook_progress") -> dict[str, Any]:
    return {"type": "progress", "uuid": "p", "isSidechain": False, "data": {"type": kind}}


def meta(n: int = 0) -> dict[str, Any]:
    return {"type": "last-prompt", "lastPrompt": f"prompt {n}", "sessionId": "s"}


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": moment(1), "type": kind, "payload": payload}


def event(kind: str, **more: Any) -> dict[str, Any]:
    return codex("event_msg", type=kind, **more)


def message(role: str, text: str) -> dict[str, Any]:
    part = {"type": "input_text" if role == "user" else "output_text", "text": text}
    return codex("response_item", type="message", role=role, content=[part])


CODEX_START = [
    codex("session_meta", id="0199", timestamp=moment(0), cwd="/home/ada"),
    codex("turn_context", model="gpt", cwd="/home/ada"),
    message("user", "check the spindle"),
]


def yoi(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "ts": 1_780_000_000_000, **more}


def yoi_message(role: str, text: str) -> dict[str, Any]:
    content = [{"kind": "text", "text": text}]
    return {"kind": "message", "role": role, "content": content}


YOI_START = [
    yoi("segment_start", session_id="s", config={"model": "m"}, history=[]),
    yoi("invoke", trigger="user_send"),
    yoi("user_input", segments=[{"kind": "text", "content": "check the spindle"}]),
]


def quiet_for(path: Path, seconds: float) -> float:
    """The time at which the file will have been quiet for so long."""
    os.utime(path, (WRITTEN, WRITTEN))
    return WRITTEN + seconds


def has_ended(path: Path, capture: Capture | None = None) -> bool:
    """Whether a file that was written just now ends with a closed turn."""
    now = quiet_for(path, 1)
    return has_run_ended(capture or Capture.from_path(path), now=now, settle_seconds=SETTLE)


# ---------------------------------------------------------------- quiet


@pytest.mark.parametrize(("seconds", "expected"), [(0, False), (299, False), (300, True)])
def test_a_run_without_a_closed_turn_has_ended_when_its_file_was_quiet_for_long(
    tmp_path: Path, seconds: float, expected: bool
) -> None:
    path = write_lines(claude_path(tmp_path, "one"), conversation(2))
    now = quiet_for(path, seconds)
    assert has_run_ended(Capture.from_path(path), now=now, settle_seconds=SETTLE) is expected


def test_a_source_that_is_gone_has_ended(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "one"), conversation(2))
    capture = Capture.from_path(path)
    path.unlink()
    assert has_run_ended(capture, now=0, settle_seconds=SETTLE)
    path.parent.rmdir()
    path.parent.write_text("a file where the folder was")
    assert has_run_ended(capture, now=0, settle_seconds=SETTLE)


def test_a_source_that_cannot_be_asked_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), answer()])
    capture = Capture.from_path(path)

    def refused(*_: object, **__: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("sessiondex.indexer.turn_end.os.stat", refused)
    assert not has_run_ended(capture, now=2e9, settle_seconds=SETTLE)


def test_a_list_of_items_has_no_file_that_could_tell() -> None:
    capture = Capture.from_items([{"kind": "user", "text": "hi"}], session_id="s")
    with pytest.raises(InvalidArgument, match="session 's' has no source file"):
        has_run_ended(capture, now=0, settle_seconds=SETTLE)


# ---------------------------------------------------------------- Claude Code


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ([answer()], True),
        ([answer(stop_reason="stop_sequence")], True),
        ([answer(), meta(), progress(), system("stop_hook_summary")], True),
        ([answer(stop_reason=None), progress(), system("turn_duration")], True),
        ([answer(), answer("inner", None, isSidechain=True)], True),
        ([answer(), {"type": "yet-unknown"}], True),
        ([answer(), claude_user("and now?", 60)], False),
        ([answer(stop_reason=None)], False),
        ([answer(stop_reason="max_tokens")], False),
        ([with_reason(claude_thinking("hm", 1), "end_turn")], False),
        ([claude_call("Bash", {"command": "ls"}, "c", 1)], False),
        ([with_reason(claude_call("Bash", {}, "c", 1), "end_turn")], False),
        ([claude_call("Bash", {}, "c", 1), claude_result("ok", "c", 2)], False),
        ([claude_call("Task", {}, "c", 1), answer("inner", isSidechain=True)], False),
        ([claude_call("Task", {}, "c", 1), progress("agent_progress")], False),
        ([answer(stop_reason=None), system("stop_hook_summary")], False),
        ([{"type": "assistant", "uuid": "a", "isSidechain": False, "message": "torn"}], False),
    ],
)
def test_a_claude_code_session_says_whether_its_turn_is_closed(
    tmp_path: Path, end: list[dict[str, Any]], expected: bool
) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), *end])
    assert has_ended(path) is expected


def test_a_sub_agents_own_file_ends_with_its_own_answer(tmp_path: Path) -> None:
    records = [
        claude_user("find it", 0, isSidechain=True, agentId="a1"),
        answer("found", isSidechain=True, agentId="a1"),
    ]
    path = write_lines(tmp_path / "s" / "subagents" / "agent-a1.jsonl", records)
    capture = Capture.from_path(path)
    assert capture.sub_agent
    assert has_ended(path, capture)
    write_lines(path, [claude_user("more", 2, isSidechain=True, agentId="a1")], append=True)
    assert not has_ended(path)


# ---------------------------------------------------------------- Codex


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ([message("assistant", "done"), event("task_complete")], True),
        ([event("turn_complete"), event("token_count")], True),
        ([event("turn_aborted", reason="interrupted")], True),
        ([event("task_complete"), event("task_started")], False),
        ([event("task_complete"), codex("turn_context", model="gpt")], False),
        ([event("task_complete"), message("user", "and now?")], False),
        ([message("assistant", "done"), event("agent_message", message="done")], False),
        ([message("assistant", "done")], False),
        ([codex("response_item", type="function_call", name="x", call_id="c")], False),
    ],
)
def test_a_codex_session_says_whether_its_turn_is_closed(
    tmp_path: Path, end: list[dict[str, Any]], expected: bool
) -> None:
    path = write_lines(tmp_path / "rollout-0199.jsonl", [*CODEX_START, *end])
    capture = Capture.from_path(path)
    assert capture.row.format == "codex"
    assert has_ended(path, capture) is expected


def test_bare_items_of_old_rollouts_are_inside_a_turn(tmp_path: Path) -> None:
    bare = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    first = {"id": "0199", "timestamp": moment(0), "instructions": None}
    path = write_lines(tmp_path / "rollout-0199.jsonl", [first, bare])
    assert not has_ended(path)


# ---------------------------------------------------------------- Yoi


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ([yoi("turn_end", turn_count=1)], True),
        ([yoi("run_completed"), yoi("llm_usage")], True),
        ([yoi("run_errored", message="no")], True),
        ([yoi("paused_turn_abandoned")], True),
        ([yoi("run_completed"), yoi("invoke", trigger="notify")], False),
        ([yoi("assistant_item", item=yoi_message("assistant", "done"))], False),
        ([yoi("tool_result", item={"kind": "tool_result", "call_id": "c"})], False),
        ([yoi("yet_unknown")], False),
    ],
)
def test_a_yoi_segment_says_whether_its_turn_is_closed(
    tmp_path: Path, end: list[dict[str, Any]], expected: bool
) -> None:
    path = write_lines(tmp_path / "s" / "seg.jsonl", [*YOI_START, *end])
    capture = Capture.from_path(path)
    assert capture.row.format == "yoi"
    assert has_ended(path, capture) is expected


def test_a_new_segment_that_says_nothing_yet_has_not_ended(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s" / "seg.jsonl", YOI_START[:1])
    assert not has_ended(path)


# ---------------------------------------------------------------- formats without a mark


def test_a_document_ends_by_quiet_alone(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "done"},
    ]))  # fmt: skip
    capture = Capture.from_path(path)
    assert not has_ended(path, capture)
    assert has_run_ended(capture, now=quiet_for(path, 300), settle_seconds=SETTLE)


def test_a_compressed_rollout_ends_by_quiet_alone(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "plain.jsonl", [*CODEX_START, event("task_complete")])
    path = tmp_path / "rollout-0199.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    assert not has_ended(path)


# ---------------------------------------------------------------- the end of the file as it is now


@pytest.mark.parametrize("tail", ['{"type":"user","uu', json.dumps(answer()), " ", "\0"])
def test_a_tail_without_a_newline_never_closes_a_turn(tmp_path: Path, tail: str) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), answer()])
    assert has_ended(path)
    with path.open("a") as file:
        file.write(tail)
    assert not has_ended(path)


def test_a_line_that_cannot_be_read_closes_nothing(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), answer()])
    with path.open("a") as file:
        file.write('{"type":"user","message":\n')
    assert not has_ended(path)


def test_blank_lines_and_plain_values_say_nothing(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), answer()])
    with path.open("a") as file:
        file.write("\n[1]\n42\n")
    assert has_ended(path)


def test_records_that_share_a_line_are_asked_one_by_one(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0)])
    with path.open("a") as file:
        file.write(json.dumps(answer()) + json.dumps(meta()) + "\n")
    assert has_ended(path)
    with path.open("a") as file:
        file.write(json.dumps(answer()) + json.dumps(claude_user("more", 9)) + "\n")
    assert not has_ended(path)


def test_a_run_that_began_behind_the_capture_is_seen(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), answer()])
    capture = Capture.from_path(path)
    write_lines(path, [claude_user("more", 2)], append=True)
    assert not has_ended(path, capture)
    write_lines(path, [answer()], append=True)
    assert has_ended(path, capture)


def test_a_file_that_was_rewritten_since_the_capture_closes_nothing(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), answer()])
    capture = Capture.from_path(path)
    write_lines(path, [claude_user("no", 0), answer()])
    assert not has_ended(path, capture)
    path.write_bytes(b"")
    assert not has_ended(path, capture)


def test_a_capture_of_a_library_is_asked_with_and_without_its_live_tail(tmp_path: Path) -> None:
    home, library = tmp_path / "home", Library.create(tmp_path / "library")
    path = write_lines(claude_path(home, "one"), conversation(20))
    index(library, home)
    assert not has_ended(path, library.capture("one"))
    write_lines(path, [answer(), meta()], append=True)
    assert has_ended(path, library.capture("one"))
    assert has_ended(path, library.capture("one", live=False))


@pytest.mark.parametrize(("behind", "expected"), [(RECORDS_BACK - 1, True), (RECORDS_BACK, False)])
def test_only_so_many_records_back_are_asked(tmp_path: Path, behind: int, expected: bool) -> None:
    records = [claude_user("go", 0), answer(), *(meta(n) for n in range(behind))]
    path = write_lines(claude_path(tmp_path, "one"), records)
    assert has_ended(path) is expected


def test_only_so_many_bytes_back_are_read(tmp_path: Path) -> None:
    big = {**meta(), "lastPrompt": "x" * (BYTES_BACK - 200)}
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), answer(), big])
    assert not has_ended(path)
    write_lines(path, [claude_user("go", 0), answer(), {**big, "lastPrompt": "x" * 1000}])
    capture = Capture.from_path(path)
    assert has_ended(path, capture)
    write_lines(path, [{**big, "lastPrompt": "x" * BYTES_BACK}, answer()], append=True)
    assert not has_ended(path, capture)
    assert has_ended(path)


def test_a_file_in_utf_16_is_read_like_any_other(tmp_path: Path) -> None:
    path = claude_path(tmp_path, "one")
    write_lines(path, [claude_user("go", 0), answer()])
    path.write_bytes(path.read_text().encode("utf-16"))
    assert has_ended(path)


def test_asking_changes_nothing_of_the_file(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("go", 0), answer()])
    before = path.read_bytes()
    assert has_ended(path)
    assert path.read_bytes() == before
    assert path.stat().st_mtime == WRITTEN


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
def test_real_sessions_that_end_with_a_closed_turn_are_told_from_the_others() -> None:
    closed: Counter[tuple[str, str]] = Counter()
    for place in ("home", "growth"):
        for path in (SAMPLES / place).rglob("*.jsonl"):
            capture = Capture.from_path(path)
            now = path.stat().st_mtime + 1
            if has_run_ended(capture, now=now, settle_seconds=SETTLE):
                closed[(place, capture.row.format)] += 1
            assert has_run_ended(capture, now=now + SETTLE, settle_seconds=SETTLE)
    # Those at home were trimmed: they lack the newline of their last record, and its reason.
    assert closed == {("growth", "claude_code"): 4, ("home", "codex"): 1}
