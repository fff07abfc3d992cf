"""Claude Code files: what becomes an entry, what stays hidden, and what keeps its number."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessiondex.indexer.sources.base import HEAD_BYTES, SourceFile
from sessiondex.indexer.sources.claude_code import CLAUDE_CODE, ClaudeCodeParser
from sessiondex.model import (
    COMPACTION_SUMMARY,
    COPIED,
    SIDECHAIN,
    SUPERSEDED,
    SYNTHETIC,
    Attachment,
    Fact,
    Item,
    Record,
    SessionHeader,
)

SAMPLES = Path(__file__).resolve().parents[3].parent / "shared" / "samples"
SESSION = "11111111-2222-4333-8444-555555555555"


# ---------------------------------------------------------------- building sessions


def record(kind: str, uuid: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "parentUuid": None, "isSidechain": False, "userType": "external", "cwd": "/home/ann/shop",
        "sessionId": SESSION, "version": "2.1.0", "gitBranch": "main", "type": kind,
        "uuid": uuid or f"u-{kind}", "timestamp": "2026-01-01T00:00:01.500Z", **fields,
    }  # fmt: skip


def user(content: Any, uuid: str = "", **fields: Any) -> dict[str, Any]:
    return record("user", uuid, message={"role": "user", "content": content}, **fields)


def assistant(*blocks: Any, stop_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    model = fields.pop("model", "claude-opus-4-5")
    message = {
        "id": "m-1", "role": "assistant", "model": model, "content": list(blocks),
        "stop_reason": stop_reason,
    }  # fmt: skip
    return record("assistant", message=message, **fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(name: str, arguments: Any, call_id: str = "c-1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(content: Any, call_id: str = "c-1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def image(media_type: str, body: bytes) -> dict[str, Any]:
    data = base64.b64encode(body).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def agent_progress(nested: Any, agent: str = "a1", **fields: Any) -> dict[str, Any]:
    data = {"type": "agent_progress", "message": nested, "prompt": "again", "agentId": agent}
    return record("progress", "u-progress", data=data, parentToolUseID="c-1", **fields)


def write(path: Path, values: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def parser_of(path: Path, state: dict[str, Any] | None = None) -> ClaudeCodeParser:
    source = SourceFile(path)
    [stub] = CLAUDE_CODE.stubs(source)
    return CLAUDE_CODE.parser(source, stub, state)


def parse(path: Path, *values: Any) -> list[Record]:
    return list(parser_of(write(path / f"{SESSION}.jsonl", values)).records())


def shown(records: Iterable[Record]) -> list[Item]:
    return [item for each in records for item in each.items if item.kind != "reasoning"]


def header_after(path: Path) -> SessionHeader:
    parser = parser_of(path)
    for _ in parser.records():
        pass
    return parser.header


def recognised(path: Path, data: str) -> bool:
    path.write_text(data, encoding="utf-8")
    source = SourceFile(path)
    return CLAUDE_CODE.matches(source.head(), source)


# ---------------------------------------------------------------- recognition

SUMMARY = {"type": "summary", "summary": "Mend the shop", "leafUuid": "elsewhere"}
SNAPSHOT = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}


@pytest.mark.parametrize(
    "first",
    [
        user("hello"),
        assistant(text("hi")),
        SUMMARY,
        SNAPSHOT,
        record("progress", data={"type": "hook_progress"}),
        record("attachment", attachment={"type": "todo_reminder"}),
        record("system", subtype="informational"),
        {"type": "custom-title", "customTitle": "x", "sessionId": SESSION},
        {"type": "queue-operation", "operation": "dequeue", "sessionId": SESSION},
        {"type": "user", "uuid": "u", "sessionId": "s", "message": {"content": "minimal"}},
    ],
)
def test_a_file_is_recognised_by_any_record_of_its_kind(tmp_path: Path, first: dict[str, Any]):
    assert recognised(tmp_path / "noise.txt", json.dumps(first) + "\n")
    assert recognised(tmp_path / "noise.txt", "\ufeff\n{broken\n" + json.dumps(first))


def test_a_file_is_recognised_by_a_first_line_longer_than_the_head(tmp_path: Path):
    value = user("x" * HEAD_BYTES * 2)
    shuffled = {"message": value.pop("message"), **value}
    assert recognised(tmp_path / "x", json.dumps(shuffled) + "\n")


@pytest.mark.parametrize(
    "other",
    [
        {"timestamp": "t", "type": "session_meta", "payload": {"id": "x"}},
        {"timestamp": "t", "type": "response_item", "payload": {"type": "message"}},
        {"type": "message", "role": "user", "content": []},
        {"kind": "segment_start", "ts": 1, "session_id": "s", "history": []},
        {"messages": [{"role": "user", "content": "x"}]},
        {"role": "user", "content": "x"},
        {"role": "user", "message": {"content": [text("x")]}},
        {"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s", "cwd": "/",
         "message": {"role": "user", "parts": [{"text": "qwen"}]}},
        {"type": "tool_result", "uuid": "u", "sessionId": "s", "message": {"parts": []}},
        {"type": "system", "uuid": "u", "sessionId": "s", "subtype": "telemetry"},
        {"display": "x", "pastedContents": {}, "timestamp": 1, "project": "/", "sessionId": "s"},
        {"type": "started", "key": "k", "agentId": "a"},
        {"type": "result", "key": "k", "agentId": "a", "result": {}},
        {"type": "session", "id": "x", "cwd": "/"},
        {"type": "message", "message": {"role": "user", "content": "pi"}, "id": "1"},
        {"type": ["user"], "message": 7},
        {"agentType": "Explore", "toolUseId": "c-1"},
    ],
)  # fmt: skip
def test_files_of_other_kinds_are_not_claimed(tmp_path: Path, other: dict[str, Any]):
    assert not recognised(tmp_path / f"{SESSION}.jsonl", json.dumps(other) + "\n")


@pytest.mark.parametrize("data", ["", "\n", "words\n", "[1]\n", "{", '{"messages": [\n{}\n]}'])
def test_files_without_a_record_are_not_claimed(tmp_path: Path, data: str):
    assert not recognised(tmp_path / f"{SESSION}.jsonl", data)


# ---------------------------------------------------------------- messages


def test_messages_calls_and_results_become_items_with_their_blocks(tmp_path: Path):
    records = parse(
        tmp_path,
        user("mend the till"),
        assistant(
            {"type": "thinking", "thinking": "secret", "signature": "s"},
            {"type": "redacted_thinking", "data": "secret"},
            text("I look first."),
            call("Bash", {"command": "ls", "timeout": 5, "env": {"A": 1}}),
        ),
        user([result("till.py\nREADME"), text("and be quick")], toolUseResult={"stdout": "twin"}),
    )
    assert [each.blocks for each in records] == [1, 4, 2]
    asked, thought, redacted, said, called, returned, added = [
        item for each in records for item in each.items
    ]
    assert (asked.kind, asked.text, asked.pointer) == ("user", "mend the till", "/message/content")
    assert [(item.kind, item.block, item.text) for item in (thought, redacted)] == [
        ("reasoning", 0, ""), ("reasoning", 1, ""),
    ]  # fmt: skip
    assert (said.kind, said.block, said.pointer) == ("assistant", 2, "/message/content/2")
    assert (called.kind, called.name, called.call_id) == ("tool_call", "Bash", "c-1")
    assert called.text == 'Bash\ncommand: ls\ntimeout: 5\nenv: {"A":1}'
    assert (returned.kind, returned.call_id, returned.text, returned.error) == (
        "tool_result", "c-1", "till.py\nREADME", None,
    )  # fmt: skip
    assert (added.kind, added.block, added.flags) == ("user", 1, 0)


def test_a_record_keeps_id_time_folder_branch_and_model(tmp_path: Path):
    asked, answered = parse(tmp_path, user("x", "u-7"), assistant(text("y"), gitBranch="fix"))
    assert (asked.record_id, asked.timestamp, asked.cwd, asked.branch, asked.model) == (
        "u-7", 1_767_225_601_500, "/home/ann/shop", "main", "",
    )  # fmt: skip
    assert (answered.branch, answered.model) == ("fix", "claude-opus-4-5")
    header = header_after(tmp_path / f"{SESSION}.jsonl")
    assert (header.session_id, header.agent, header.format) == (
        SESSION, "claude-code", "claude_code",
    )  # fmt: skip
    assert (header.project, header.branch, header.model) == (
        "/home/ann/shop", "fix", "claude-opus-4-5",
    )  # fmt: skip
    assert (header.sub_agent, header.parent, header.title) == (False, "", "")


@pytest.mark.parametrize(
    "content, expected, error",
    [
        ("plain", "plain", None),
        ([text("a"), {"type": "tool_reference", "tool_name": "X"}, text("b")], "a\nb", None),
        (None, "", None),
        (7, "", None),
        ([None, "loose", text("x")], "loose\nx", None),
        ({"type": "code_execution_result", "stdout": "out", "stderr": ""}, "out", None),
    ],
)
def test_the_text_of_a_result_is_its_text_parts(
    tmp_path: Path, content: Any, expected: str, error: bool | None
):
    [item] = shown(parse(tmp_path, user([result(content)])))
    assert (item.text, item.error) == (expected, error)


@pytest.mark.parametrize("error", [True, False])
def test_a_result_says_whether_it_is_an_error(tmp_path: Path, error: bool):
    [item] = shown(parse(tmp_path, user([result("x", is_error=error)])))
    assert item.error is error


def test_server_side_tools_are_calls_and_results_of_the_assistant_message(tmp_path: Path):
    search = {**call("web_search", {"query": "tills"}), "type": "server_tool_use"}
    found = {"type": "web_search_result", "title": "Tills", "url": "https://t.example"}
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    called, returned, broken = shown(
        parse(
            tmp_path,
            assistant(
                search,
                {**result([found]), "type": "web_search_tool_result"},
                {**result(failed, "c-2"), "type": "web_search_tool_result"},
            ),
        )
    )
    assert (called.kind, called.name) == ("tool_call", "web_search")
    assert (returned.kind, returned.text) == ("tool_result", "Tills\nhttps://t.example")
    assert (broken.text, broken.error) == ("unavailable", True)


def test_images_and_documents_are_counted_with_their_decoded_size(tmp_path: Path):
    note = {"type": "text", "media_type": "text/plain", "data": "né"}
    [asked, returned, alone] = shown(
        parse(
            tmp_path,
            user(
                [image("image/png", b"x" * 100), text("see"), {"type": "document", "source": note}]
            ),
            user([result([text("shot"), image("image/jpeg", b"y" * 101)])]),
            user([{"type": "image", "source": {"type": "url", "url": "https://i.example"}}]),
        )
    )
    assert (asked.text, asked.block) == ("see", 1)
    assert asked.attachments == [Attachment("image/png", 100), Attachment("text/plain", 3)]
    assert (returned.text, returned.attachments) == ("shot", [Attachment("image/jpeg", 101)])
    assert (alone.kind, alone.text, alone.attachments) == ("user", "", [Attachment("image", 0)])


def test_the_last_todo_list_is_a_plan(tmp_path: Path):
    todos = [
        {"content": "look", "status": "completed", "activeForm": "looking"},
        {"content": "mend", "status": "in_progress"},
        {"content": "test", "status": "pending"},
        {"status": "pending"},
        "odd",
    ]
    [item, other] = shown(
        parse(tmp_path, assistant(call("TodoWrite", {"todos": todos}), call("TodoWrite", "raw")))
    )
    assert item.plan == "[x] look\n[~] mend\n[ ] test"
    assert other.plan == ""


# ---------------------------------------------------------------- who really speaks


@pytest.mark.parametrize(
    "words",
    [
        "<local-command-stdout>Bye!</local-command-stdout>",
        "<local-command-caveat>Caveat</local-command-caveat>",
        "<bash-input>ls</bash-input>",
        "<bash-stdout>x</bash-stdout>",
        "<system-reminder>Mind the gap</system-reminder>",
        '<teammate-message from="b">hi</teammate-message>',
        "<command-name>/exit</command-name>\n  <command-args></command-args>",
        "<command-message>init</command-message>",
    ],
)
@pytest.mark.parametrize("is_list", [False, True])
def test_text_that_the_harness_wrote_is_synthetic_and_verbatim(
    tmp_path: Path, words: str, is_list: bool
):
    [item] = shown(parse(tmp_path, user([text(words)] if is_list else words)))
    assert (item.kind, item.flags, item.text) == ("user", SYNTHETIC, words)


def test_meta_text_is_synthetic(tmp_path: Path):
    items = shown(
        parse(
            tmp_path,
            user([text("Base directory of this skill")], isMeta=True),
            user("from elsewhere", origin={"kind": "channel"}),
            user("typed", origin={"kind": "human"}),
        )
    )
    assert [item.flags for item in items] == [SYNTHETIC, SYNTHETIC, 0]


def test_the_arguments_of_a_slash_command_are_human_text(tmp_path: Path):
    words = (
        "<command-message>review is running</command-message>\n"
        "<command-name>/review</command-name>\n<command-args>the till, please\n</command-args>"
    )
    [item] = shown(parse(tmp_path, user(words)))
    assert (item.kind, item.flags, item.text) == ("user", 0, "/review the till, please")


@pytest.mark.parametrize(
    "words, sub_kind",
    [
        ("<task-notification><status>done</status></task-notification>", "notification"),
        ("[Request interrupted by user]", "interrupt"),
        ("[Request interrupted by user for tool use]", "interrupt"),
        ("<user-prompt-submit-hook>note</user-prompt-submit-hook>", "hook"),
    ],
)
def test_notices_of_the_harness_are_system_entries(tmp_path: Path, words: str, sub_kind: str):
    items = shown(parse(tmp_path, user(words), user([text(words)])))
    assert [(item.kind, item.sub_kind, item.text) for item in items] == [
        ("system", sub_kind, words)
    ] * 2


def test_hook_feedback_is_told_from_a_person_who_writes_of_it(tmp_path: Path):
    words = "Stop hook feedback:\n- run the tests"
    hook, person = shown(parse(tmp_path, user(words, isMeta=True), user(words)))
    assert (hook.kind, hook.sub_kind) == ("system", "hook")
    assert (person.kind, person.flags) == ("user", 0)


def test_api_errors_are_notices_and_no_speech_of_the_model(tmp_path: Path):
    records = parse(
        tmp_path,
        assistant(text("hi")),
        assistant(text("API Error: 529"), model="<synthetic>", isApiErrorMessage=True),
        assistant(text("No response requested."), model="<synthetic>", isApiErrorMessage=False),
    )
    said, error, filler = shown(records)
    assert said.flags == 0
    assert (error.kind, error.sub_kind, error.text) == ("system", "api_error", "API Error: 529")
    assert (filler.kind, filler.flags) == ("assistant", SYNTHETIC)
    assert [each.model for each in records] == ["claude-opus-4-5", "", ""]
    assert header_after(tmp_path / f"{SESSION}.jsonl").model == "claude-opus-4-5"


def test_a_compaction_leaves_its_boundary_and_its_summary(tmp_path: Path):
    boundary, summary = shown(
        parse(
            tmp_path,
            record("system", subtype="compact_boundary", content="Conversation compacted"),
            user("This session is continued …", isCompactSummary=True),
        )
    )
    assert (boundary.kind, boundary.sub_kind) == ("system", "compact_boundary")
    assert (summary.kind, summary.sub_kind) == ("system", "compaction_summary")
    assert summary.flags == COMPACTION_SUMMARY


def test_queued_commands_are_what_the_user_typed_meanwhile(tmp_path: Path):
    def queued(prompt: Any, **fields: Any) -> dict[str, Any]:
        return record(
            "attachment", attachment={"type": "queued_command", "prompt": prompt, **fields}
        )

    inner = {**queued("from the main session"), "isSidechain": True}
    told, typed, listed, noticed, marked = shown(
        parse(
            tmp_path,
            inner,
            queued("and the door", commandMode="prompt"),
            queued([text("see"), image("image/png", b"abc")]),
            queued("<task-notification>done</task-notification>"),
            queued("done", commandMode="task-notification"),
        )
    )
    assert (told.kind, told.flags) == ("user", SYNTHETIC)
    assert (typed.kind, typed.flags, typed.text) == ("user", 0, "and the door")
    assert (listed.text, listed.attachments) == ("see", [Attachment("image/png", 3)])
    assert [(item.kind, item.sub_kind) for item in (noticed, marked)] == [
        ("system", "notification")
    ] * 2


@pytest.mark.parametrize(
    "attachment, expected",
    [
        ({"type": "hook_success", "content": "ok", "stdout": "ok"}, "ok"),
        ({"type": "hook_additional_context", "content": ["a", "b"]}, "a\nb"),
        (
            {
                "type": "hook_blocking_error",
                "blockingError": {"blockingError": "no", "command": "c"},
            },
            "no",
        ),
        ({"type": "hook_non_blocking_error", "stderr": "warn", "stdout": ""}, "warn"),
        (
            {"type": "hook_system_message", "content": "raw", "rendered": [{"content": "seen"}]},
            "seen",
        ),
    ],
)
def test_hook_output_is_a_system_entry(tmp_path: Path, attachment: dict[str, Any], expected: str):
    [item] = shown(parse(tmp_path, record("attachment", attachment=attachment)))
    assert (item.kind, item.sub_kind, item.text) == ("system", "hook", expected)


def test_what_only_the_harness_reads_is_numbered_and_hidden(tmp_path: Path):
    hidden = [
        record("attachment", attachment={"type": "skill_listing", "content": "skills"}),
        record("attachment", attachment={"type": "hook_success", "content": ""}),
        record("attachment", attachment="odd"),
        record("progress", data={"type": "bash_progress", "output": "x"}),
        record("system", subtype="turn_duration", durationMs=5),
        record("system", subtype="local_command", content="x", isMeta=True),
        {"type": "queue-operation", "operation": "enqueue", "content": "x", "sessionId": SESSION},
        {"type": "api-request-blob", "message": {"role": "user", "content": "x"}, "uuid": "u"},
        {"type": "last-prompt", "lastPrompt": "x", "sessionId": SESSION},
        {"type": "from-the-future", "message": {"role": "user", "content": "x"}},
        {"no": "type"},
        SNAPSHOT,
        SUMMARY,
    ]
    records = parse(tmp_path, *hidden, user("last"))
    assert [each.number for each in records] == list(range(len(hidden) + 1))
    assert [item.text for item in shown(records)] == ["last"]


def test_blocks_of_unknown_shape_are_counted_and_hidden(tmp_path: Path):
    asked, answered = parse(
        tmp_path,
        user([7, {"type": "mystery", "text": "x"}, {"type": "image"}, text("hi")]),
        assistant(None, {"type": "mystery", "text": "x"}, text("yes")),
    )
    assert (asked.blocks, answered.blocks) == (4, 3)
    assert [(item.block, item.text) for item in shown([asked, answered])] == [(3, "hi"), (2, "yes")]
    assert asked.items[0].attachments == [Attachment("image", 0)]


def test_content_that_is_a_string_is_one_item_whoever_speaks(tmp_path: Path):
    answer = record("assistant", message={"role": "assistant", "content": "plain answer"})
    [item] = shown(parse(tmp_path, answer))
    assert (item.kind, item.text, item.pointer) == (
        "assistant", "plain answer", "/message/content",
    )  # fmt: skip


def test_system_text_is_shown_under_its_subtype(tmp_path: Path):
    [item] = shown(parse(tmp_path, record("system", subtype="informational", content="mind this")))
    assert (item.kind, item.sub_kind, item.text) == ("system", "informational", "mind this")


# ---------------------------------------------------------------- titles and turns


def test_a_given_title_wins_over_a_made_one_and_the_last_of_its_rank_stays(tmp_path: Path):
    records = parse(
        tmp_path,
        SUMMARY,
        {"type": "ai-title", "aiTitle": "Made", "sessionId": SESSION},
        {"type": "custom-title", "customTitle": " Given\0 ", "sessionId": SESSION},
        {"type": "agent-name", "agentName": "Renamed", "sessionId": SESSION},
        {"type": "ai-title", "aiTitle": "Made later", "sessionId": SESSION},
        {"type": "custom-title", "customTitle": "", "sessionId": SESSION},
        {"type": "summary", "summary": ["odd"]},
    )
    assert [each.title for each in records] == [
        "Mend the shop", "Made", "Given", "Renamed", "", "", "",
    ]  # fmt: skip
    assert header_after(tmp_path / f"{SESSION}.jsonl").title == "Renamed"


def test_turns_are_closed_by_their_final_text_and_by_the_harness(tmp_path: Path):
    records = parse(
        tmp_path,
        user("go"),
        assistant(text("on it"), stop_reason=None),
        assistant(call("Bash", {}), stop_reason="tool_use"),
        assistant(text("inner end"), stop_reason="end_turn", isSidechain=True),
        assistant(text("done"), stop_reason="end_turn"),
        record("system", subtype="stop_hook_summary"),
        record("system", subtype="turn_duration"),
        record("system", subtype="informational", content="x"),
    )
    assert [each.closes_turn for each in records] == [
        False, False, False, False, True, True, True, False,
    ]  # fmt: skip


# ---------------------------------------------------------------- sub-agents


def test_inline_sidechains_are_flagged_and_their_prompts_are_not_the_users(tmp_path: Path):
    records = parse(
        tmp_path,
        user("find it", isSidechain=True),
        assistant(text("found"), isSidechain=True),
        user([result("x")], isSidechain=True),
    )
    assert [each.flags for each in records] == [SIDECHAIN] * 3
    assert [item.flags for item in shown(records)] == [SYNTHETIC, 0, 0]


@pytest.mark.parametrize(
    "place",
    [
        f"p/{SESSION}/subagents/agent-a1.jsonl",
        f"p/{SESSION}/subagents/workflows/run-1/agent-a1.jsonl",
        "p/agent-a1.jsonl",
    ],
)
def test_the_own_file_of_a_sub_agent_is_a_session_below_its_parent(tmp_path: Path, place: str):
    path = write(
        tmp_path / place,
        [
            user("find it", isSidechain=True, agentId="a1"),
            assistant(text("found"), isSidechain=True, agentId="a1", stop_reason="end_turn"),
        ],
    )
    parser = parser_of(path)
    asked, answered = parser.records()
    assert parser.header.session_id == f"{SESSION}/a1"
    assert (parser.header.parent, parser.header.sub_agent) == (SESSION, True)
    assert (asked.flags, asked.items[0].flags) == (SIDECHAIN, 0)
    assert answered.closes_turn
    assert CLAUDE_CODE.resume_command(parser.header) is None


def test_a_session_that_is_merely_named_like_a_sub_agent_is_none(tmp_path: Path):
    parser = parser_of(write(tmp_path / "agent-smith.jsonl", [user("hi")]))
    assert (parser.header.session_id, parser.header.sub_agent) == ("agent-smith", False)


def test_the_meta_file_gives_a_sub_agent_its_title_and_its_spawner(tmp_path: Path):
    path = write(tmp_path / SESSION / "subagents" / "agent-a2.jsonl", [user("x", isSidechain=True)])
    meta = path.with_name("agent-a2.meta.json")
    meta.write_text('{"agentType":"Explore","description":"Find tills","parentAgentId":"a1"}')
    header = parser_of(path).header
    assert (header.title, header.parent) == ("Find tills", f"{SESSION}/a1")
    for odd in ("", "[]", "{", '{"description":7,"parentAgentId":[]}', "[" * 5000):
        meta.write_text(odd)
        header = parser_of(path).header
        assert (header.title, header.parent) == ("", SESSION)


def test_copies_of_a_sub_agents_records_are_shown_where_they_are_the_only_ones(tmp_path: Path):
    nested = {
        "type": "assistant", "uuid": "n-1", "timestamp": "2026-01-01T00:00:09Z",
        "message": {
            "role": "assistant", "model": "claude-haiku",
            "content": [text("looking"), call("Grep", {"pattern": "till"})],
        },
    }  # fmt: skip
    prompt = {"type": "user", "uuid": "n-0", "message": {"role": "user", "content": [text("find")]}}
    asked, told = parse(tmp_path, agent_progress(prompt), agent_progress(nested))
    assert (asked.items[0].kind, asked.items[0].flags) == ("user", SYNTHETIC)
    assert (asked.flags, asked.record_id, asked.timestamp) == (SIDECHAIN, "n-0", 1_767_225_601_500)
    assert [(item.kind, item.block) for item in told.items] == [("assistant", 0), ("tool_call", 1)]
    assert told.items[1].pointer == "/data/message/message/content/1"
    assert (told.record_id, told.model, told.timestamp, told.blocks) == (
        "n-1", "claude-haiku", 1_767_225_609_000, 2,
    )  # fmt: skip
    assert header_after(tmp_path / f"{SESSION}.jsonl").model == ""


@pytest.mark.parametrize(
    "place",
    [
        f"{SESSION}/subagents/agent-a1.jsonl",
        f"{SESSION}/subagents/workflows/run-1/agent-a1.jsonl",
        "agent-a1.jsonl",
    ],
)
def test_copies_are_hidden_where_the_sub_agents_own_file_is_there(tmp_path: Path, place: str):
    write(tmp_path / place, [user("find", isSidechain=True)])
    nested = {"type": "assistant", "uuid": "n", "message": {"content": [text("a"), text("b")]}}
    mine, other = parse(
        tmp_path, agent_progress(nested, "a1"), agent_progress(nested, "../../agent-a1")
    )
    assert (mine.items, mine.blocks, mine.record_id) == ([], 2, "u-progress")
    assert len(other.items) == 2


def test_whether_copies_are_hidden_is_decided_once(tmp_path: Path):
    nested = {"type": "assistant", "uuid": "n", "message": {"content": [text("a")]}}
    path = write(tmp_path / f"{SESSION}.jsonl", [agent_progress(nested)])
    parser = parser_of(path)
    assert [len(each.items) for each in parser.records()] == [1]
    write(tmp_path / SESSION / "subagents" / "agent-a1.jsonl", [user("x", isSidechain=True)])
    write(path, [agent_progress(nested), agent_progress(nested)])
    assert [len(each.items) for each in parser_of(path, parser.state()).records()] == [1]
    assert [len(each.items) for each in parser_of(path).records()] == [0, 0]


# ---------------------------------------------------------------- rewinds and forks


def test_a_rewind_supersedes_the_branch_that_was_left(tmp_path: Path):
    records = parse(
        tmp_path,
        user("one", "u1"),
        assistant(text("a"), uuid="a1", parentUuid="u1"),
        user("two", "u2", parentUuid="a1"),
        assistant(text("b"), uuid="a2", parentUuid="u2"),
        user("two, but better", "u3", parentUuid="a1"),
        assistant(text("c"), uuid="a3", parentUuid="u3"),
        user("two, once more", "u4", parentUuid="a1"),
    )
    assert [each.facts for each in records] == [
        [], [], [], [], [Fact(SUPERSEDED, 2, 3)], [], [Fact(SUPERSEDED, 4, 5)],
    ]  # fmt: skip


def test_only_two_human_children_of_one_parent_are_a_rewind(tmp_path: Path):
    records = parse(
        tmp_path,
        user("root", "u0"),
        user("another root", "u1"),
        user([result("a")], "r1", parentUuid="u0"),
        user([result("b")], "r2", parentUuid="u0"),
        user("typed", "u2", parentUuid="u0"),
        user("typed", "u2", parentUuid="u0"),
        user("meta", "u3", parentUuid="u0", isMeta=True),
        user("[Request interrupted by user]", "u4", parentUuid="u0"),
        user("inner", "u5", parentUuid="u0", isSidechain=True),
        record("attachment", "u6", parentUuid="u0", attachment={"type": "model"}),
    )
    assert not any(each.facts for each in records)


def test_a_rewind_is_seen_across_a_resume(tmp_path: Path):
    path = write(tmp_path / f"{SESSION}.jsonl", [user("one", "u1", parentUuid="p")])
    parser = parser_of(path)
    assert len(list(parser.records())) == 1
    write(path, [user("one", "u1", parentUuid="p"), user("two", "u2", parentUuid="p")])
    [later] = parser_of(path, json.loads(json.dumps(parser.state()))).records()
    assert later.facts == [Fact(SUPERSEDED, 0, 0)]


def test_records_of_a_fork_say_that_they_were_replayed(tmp_path: Path):
    origin = {"sessionId": "older", "messageUuid": "u-0"}
    copied, own = parse(tmp_path, user("x", forkedFrom=origin), user("y"))
    assert (copied.replayed, copied.flags) == (True, COPIED)
    assert (own.replayed, own.flags) == (False, 0)
    assert header_after(tmp_path / f"{SESSION}.jsonl").parent == "older"


def test_the_session_is_named_by_its_file_whatever_the_records_say(tmp_path: Path):
    path = write(tmp_path / "my-session.jsonl.zst", [user("x"), user("y", sessionId="other")])
    header = parser_of(path).header
    assert header.session_id == "my-session"
    assert CLAUDE_CODE.resume_command(header) == ["claude", "--resume", "my-session"]


# ---------------------------------------------------------------- anything at all

ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    | st.sampled_from(["user", "assistant", "text", "tool_use", "tool_result", "image", "x" * 90]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["type", "text", "content", "source", "data", "input", "name", "id", "message",
             "todos", "status", "is_error", "prompt", "tool_use_id", "thinking", "rendered"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip
ODD_RECORDS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["user", "assistant", "system", "attachment", "progress", "summary", "custom-title"]
        )
        | ODD
    },
    optional={
        "message": st.fixed_dictionaries({"content": ODD}, optional={"model": ODD}) | ODD,
        "data": st.fixed_dictionaries(
            {"type": st.just("agent_progress"), "message": ODD}, optional={"agentId": ODD}
        ),
        "attachment": st.fixed_dictionaries(
            {"type": st.sampled_from(["queued_command", "hook_success"])},
            optional={"prompt": ODD, "content": ODD, "stdout": ODD},
        ),
        **dict.fromkeys(
            ("uuid", "parentUuid", "timestamp", "cwd", "gitBranch", "isSidechain", "isMeta",
             "content", "subtype", "summary", "origin", "forkedFrom", "customTitle", "sessionId"),
            ODD,
        ),
    },
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(odd=st.lists(ODD_RECORDS, max_size=4), split=st.integers(0, 4))
def test_records_of_any_shape_are_numbered_and_resumed_the_same(
    tmp_path: Path, odd: list[Any], split: int
):
    path = write(tmp_path / f"{SESSION}.jsonl", [*odd, user("last")])
    whole = list(parser_of(path).records())
    assert [each.number for each in whole] == list(range(len(odd) + 1))
    assert shown(whole)[-1].text == "last"
    for each in whole:
        assert all(0 <= item.block < each.blocks for item in each.items)
        for item in each.items:
            "".join((item.text, item.name, item.call_id, item.plan, each.record_id)).encode()
    parser = parser_of(path)
    records = parser.records()
    before = [next(records) for _ in range(min(split, len(odd)))]
    state = json.loads(json.dumps(parser.state()))
    resumed = parser_of(path, state)
    assert before + list(resumed.records()) == whole
    assert resumed.header == header_after(path)


# ---------------------------------------------------------------- real files

needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="needs ../shared/samples")


def naive_values(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").split("\n"):
        at = 0
        while at < len(line):
            value, at = json.JSONDecoder().raw_decode(line, at)
            yield value


def naive_kinds(value: dict[str, Any]) -> Iterator[str]:
    if value["type"] == "progress" and value["data"]["type"] == "agent_progress":
        value = value["data"]["message"]
    if value["type"] == "system" and value.get("content"):
        yield "system"
    if value["type"] not in ("user", "assistant"):
        return
    content = value["message"]["content"]
    for part in [text(content)] if isinstance(content, str) else content:
        if part["type"] == "text":
            is_notice = part["text"].startswith(("[Request interrupted", "<task-notification"))
            yield "system" if is_notice or value.get("isCompactSummary") else value["type"]
        elif part["type"] in ("tool_use", "tool_result"):
            yield part["type"]


@needs_samples
def test_entries_of_real_sessions_agree_with_an_independent_count():
    paths = sorted((SAMPLES / "home" / ".claude" / "projects").glob("*/*.jsonl"))
    assert len(paths) == 10
    for path in paths:
        source = SourceFile(path)
        assert CLAUDE_CODE.matches(source.head(), source)
        records = list(parser_of(path).records())
        expected = list(naive_values(path))
        assert [each.number for each in records] == list(range(len(expected)))
        assert [each.record_id for each in records if not each.flags & SIDECHAIN] == [
            value.get("uuid", "")
            for value in expected
            if value["type"] != "progress" or value["data"]["type"] != "agent_progress"
        ]
        names = {"tool_call": "tool_use"}
        counted = Counter(names.get(item.kind, item.kind) for item in shown(records))
        assert counted == Counter(kind for value in expected for kind in naive_kinds(value)), path
        data = path.read_bytes()
        for each in records:
            body = data[each.byte_offset : each.byte_offset + each.byte_length]
            assert json.loads(body) == expected[each.number]


@needs_samples
def test_every_snapshot_of_a_growing_session_keeps_the_refs_of_the_one_before():
    paths = sorted((SAMPLES / "growth" / "claude-2a55af89").glob("*.jsonl"))
    assert len(paths) == 4
    for before, after in pairwise(paths):
        parser = parser_of(before)
        old, new = list(parser.records()), list(parser_of(after).records())
        assert [(each.number, each.digest, each.items, each.blocks) for each in old] == [
            (each.number, each.digest, each.items, each.blocks) for each in new[: len(old)]
        ]
        assert len(new) > len(old)
        state = parser.state()
        assert list(parser_of(after, state).records()) == new[state["number"] :]


@needs_samples
def test_no_real_file_of_another_agent_is_claimed():
    others = [
        path
        for path in SAMPLES.rglob("*")
        if path.is_file() and ".claude" not in path.parts and path.parent.name != "claude-2a55af89"
    ]
    assert others
    for path in others:
        source = SourceFile(path)
        assert not CLAUDE_CODE.matches(source.head(), source), path
