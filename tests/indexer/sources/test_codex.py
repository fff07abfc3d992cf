"""Codex rollouts: every envelope, and what becomes an entry of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.indexer.sources.base import SessionStub, SourceFile
from sessiondex.indexer.sources.codex import CODEX, CodexParser
from sessiondex.indexer.sources.codex_document import CODEX_DOCUMENT
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
)

SAMPLES = Path(__file__).resolve().parents[3].parent / "shared" / "samples" / "home" / ".codex"

PARENT = "019a0000-0000-7000-8000-000000000001"
CHILD = "019a0001-0000-7000-8000-000000000002"
OWN_TURN = "019a0001-0001-7000-8000-000000000003"
PARENT_TURN = "019a0000-0001-7000-8000-000000000004"


# ---------------------------------------------------------------- building rollouts


def line(kind: str, payload: dict[str, Any], time: str = "", **more: Any) -> dict[str, Any]:
    return {
        "timestamp": time or "2026-01-01T00:00:00.000Z",
        "type": kind,
        "payload": payload,
        **more,
    }


def meta(
    thread: str = PARENT, time: str = "2026-01-01T00:00:00.000Z", **more: Any
) -> dict[str, Any]:
    payload = {"id": thread, "timestamp": time, "cwd": "/home/ann/shop", "source": "cli"}
    return line("session_meta", {**payload, **more}, time)


def response(kind: str, **payload: Any) -> dict[str, Any]:
    return line("response_item", {"type": kind, **payload})


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return line("event_msg", {"type": kind, **payload})


def message(role: str, *texts: str, **more: Any) -> dict[str, Any]:
    part = "output_text" if role == "assistant" else "input_text"
    return response(
        "message", role=role, content=[{"type": part, "text": text} for text in texts], **more
    )


def output(text: Any, kind: str = "function_call_output") -> dict[str, Any]:
    return response(kind, call_id="call_1", output=text)


def at(value: dict[str, Any], time: str, **more: Any) -> dict[str, Any]:
    return {**value, "timestamp": f"2026-01-0{time}Z", **more}


def jsonl(values: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def rollout(folder: Path, *values: Any, name: str = "rollout-x.jsonl") -> SourceFile:
    path = folder / name
    path.write_bytes(jsonl(values))
    return SourceFile(path)


def parse(
    source: SourceFile, state: dict[str, Any] | None = None
) -> tuple[CodexParser, list[Record]]:
    parser = CODEX.parser(source, CODEX.stubs(source)[0], state)
    assert isinstance(parser, CodexParser)
    return parser, list(parser.records())


def items(folder: Path, *values: Any) -> list[Item]:
    """The items of a rollout of these records behind a meta and a prompt."""
    source = rollout(folder, meta(), message("user", "hello"), *values)
    return [item for record in parse(source)[1][2:] for item in record.items]


# ---------------------------------------------------------------- recognising


def test_an_enveloped_rollout_is_recognised_and_named_by_its_first_meta(tmp_path: Path) -> None:
    source = rollout(tmp_path, meta(CHILD), meta(PARENT), message("user", "hi"))
    assert CODEX.matches(source.head(), source)
    assert CODEX.stubs(source) == [SessionStub(CHILD)]


def test_a_meta_longer_than_the_head_is_recognised(tmp_path: Path) -> None:
    source = rollout(tmp_path, meta(base_instructions={"text": "x" * 100_000}))
    assert CODEX.matches(source.head(), source)


def test_a_compressed_rollout_reads_like_the_plain_one(tmp_path: Path) -> None:
    plain = rollout(tmp_path, meta(), message("user", "find the needle"))
    path = tmp_path / "rollout-x.jsonl.zst"
    path.write_bytes(zstandard.compress(plain.path.read_bytes()))
    packed = SourceFile(path)
    assert CODEX.matches(packed.head(), packed)
    assert parse(packed)[1] == parse(plain)[1]


@pytest.mark.parametrize(
    "value",
    [
        {"session_id": PARENT, "ts": 1767225600, "text": "a prompt"},
        {"id": PARENT, "thread_name": "a title", "updated_at": "2026-01-01T00:00:00Z"},
        {"type": "user", "uuid": "u", "timestamp": "2026-01-01T00:00:00Z", "message": {}},
        {"type": ["session_meta"], "payload": {}},
    ],
)
def test_prompt_histories_indexes_and_other_agents_are_no_rollouts(
    tmp_path: Path, value: dict[str, Any]
) -> None:
    source = rollout(tmp_path, value)
    assert not CODEX.matches(source.head(), source)


def test_a_file_without_meta_is_named_by_the_id_in_its_name(tmp_path: Path) -> None:
    source = rollout(
        tmp_path, message("user", "hi"), name=f"rollout-2026-01-01T00-00-00-{PARENT}.jsonl"
    )
    assert CODEX.stubs(source) == [SessionStub(PARENT)]


def test_the_resume_command_names_the_session(tmp_path: Path) -> None:
    parser, _ = parse(rollout(tmp_path, meta()))
    assert CODEX.resume_command(parser.header) == ["codex", "resume", PARENT]


# ---------------------------------------------------------------- messages


def test_messages_are_verbatim_and_their_parts_joined_by_newlines(tmp_path: Path) -> None:
    found = items(tmp_path, message("user", " a\n", "b"), message("assistant", "done"))
    assert [(item.kind, item.text, item.flags) for item in found] == [
        ("user", " a\n\nb", 0),
        ("assistant", "done", 0),
    ]


def test_developer_messages_are_the_prompt_until_the_first_user_message(tmp_path: Path) -> None:
    source = rollout(
        tmp_path,
        meta(base_instructions={"text": "BASE"}, instructions="BASE"),
        message("developer", "PROMPT"),
        message("user", "hello"),
        message("developer", "later"),
        line("turn_context", {"cwd": "/c", "model": "m", "user_instructions": "BASE"}),
    )
    found = [item for record in parse(source)[1] for item in record.items]
    assert [(item.kind, item.text, item.sub_kind) for item in found] == [
        ("prompt", "", ""),
        ("user", "hello", ""),
        ("system", "later", "developer"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# AGENTS.md instructions for /home/ann/shop\n\n<INSTRUCTIONS>…",
        "<environment_context>\n  <cwd>/home/ann</cwd>\n</environment_context>",
        "<user_instructions>\nbe brief\n</user_instructions>",
        "<user_shell_command>\n<command>ls</command>",
    ],
)
def test_user_turns_that_codex_wrote_are_synthetic(tmp_path: Path, text: str) -> None:
    (item,) = items(tmp_path, message("user", text))
    assert (item.kind, item.text, item.flags) == ("user", text, SYNTHETIC)


def test_a_turn_with_the_users_own_words_beside_harness_text_is_real(tmp_path: Path) -> None:
    (item,) = items(tmp_path, message("user", "<environment_context>…", "please fix it"))
    assert (item.kind, item.flags) == ("user", 0)


@pytest.mark.parametrize(
    ("text", "sub_kind", "flags"),
    [
        ("<turn_aborted>\nThe user interrupted…\n</turn_aborted>", "interrupt", 0),
        ('<subagent_notification>\n{"status":"running"}', "notification", 0),
        ('<hook_prompt hook_run_id="stop:1">BLOCKED', "hook", 0),
        (
            "Another language model started to solve this problem and …",
            "compaction_summary",
            COMPACTION_SUMMARY,
        ),
    ],
)
def test_notices_in_the_user_role_are_system_entries(
    tmp_path: Path, text: str, sub_kind: str, flags: int
) -> None:
    (item,) = items(tmp_path, message("user", text))
    assert (item.kind, item.sub_kind, item.flags) == ("system", sub_kind, flags)


def test_reasoning_keeps_its_block_and_nothing_else(tmp_path: Path) -> None:
    (item,) = items(
        tmp_path,
        response(
            "reasoning",
            summary=[{"type": "summary_text", "text": "SECRET"}],
            content=[{"type": "reasoning_text", "text": "SECRET"}],
            encrypted_content="SECRET",
        ),
    )
    assert item == Item(0, "reasoning")


def test_images_are_attachments_with_type_and_size(tmp_path: Path) -> None:
    (item,) = items(
        tmp_path,
        response(
            "message",
            role="user",
            content=[
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,QUJDRA=="},
                {"type": "input_image", "image_url": "https://example.org/a.png"},
            ],
        ),
    )
    assert item.text == "see"
    assert item.attachments == [Attachment("image/png", 4), Attachment("image", 0)]


def test_a_compaction_shows_its_message_and_not_the_history_it_replays(tmp_path: Path) -> None:
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "X"}]}
    ]
    found = items(
        tmp_path,
        line("compacted", {"message": "so far: A", "replacement_history": history}),
        line("compacted", {"message": "", "replacement_history": history}),
    )
    assert [(item.kind, item.text, item.sub_kind, item.flags) for item in found] == [
        ("system", "so far: A", "compaction_summary", COMPACTION_SUMMARY)
    ]


# ---------------------------------------------------------------- tools


def test_a_function_call_shows_its_parsed_arguments(tmp_path: Path) -> None:
    (item,) = items(
        tmp_path,
        response(
            "function_call",
            name="shell",
            call_id="c9",
            arguments='{"command":["ls","-l"],"w":"/x"}',
        ),
    )
    assert (item.kind, item.name, item.call_id) == ("tool_call", "shell", "c9")
    assert item.text == 'shell\ncommand: ["ls","-l"]\nw: /x'


@pytest.mark.parametrize(
    "arguments", ['{"cut": ', "[1]", "plain", '{"a":' * 1000 + "1" + "}" * 1000]
)
def test_arguments_that_are_no_object_stay_raw(tmp_path: Path, arguments: str) -> None:
    (item,) = items(tmp_path, response("function_call", name="f", call_id="c", arguments=arguments))
    assert item.text == f"f\n{arguments}"


def test_other_calls_are_tool_inputs(tmp_path: Path) -> None:
    found = items(
        tmp_path,
        response("custom_tool_call", name="apply_patch", call_id="c1", input="*** Begin Patch\n"),
        response("local_shell_call", call_id="c2", action={"type": "exec", "command": ["ls"]}),
        response("web_search_call", id="ws_1", action={"type": "search", "query": "q"}),
        response("image_generation_call", id="ig", revised_prompt="a cat", result="QUJD"),
    )
    assert [(item.kind, item.name, item.call_id, item.text) for item in found] == [
        ("tool_call", "apply_patch", "c1", "apply_patch\n*** Begin Patch\n"),
        ("tool_call", "local_shell", "c2", 'local_shell\ntype: exec\ncommand: ["ls"]'),
        ("tool_call", "web_search", "ws_1", "web_search\ntype: search\nquery: q"),
        ("tool_call", "image_generation", "ig", "image_generation\nprompt: a cat"),
    ]
    assert found[3].attachments == [Attachment("image", 3)]


@pytest.mark.parametrize(
    ("raw", "text", "error"),
    [
        ("plain", "plain", None),
        ('{"output":"a\\nb","metadata":{"exit_code":0}}', "a\nb", False),
        ('{"output":"no","metadata":{"exit_code":1}}', "no", True),
        ('{"output":"Exit code: 2\\nx","metadata":{}}', "Exit code: 2\nx", True),
        ("Exit code: 0\nWall time: 1 s\nOutput:\nok", None, False),
        ("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 3\nOutput:\n", None, True),
        ("Chunk ID: 1\nWall time: 0.1 seconds\nProcess running with session ID 7\n", None, None),
        ("the log says\nProcess exited with code 1", None, None),
        ("execution error: Io(Os)", None, True),
        ("apply_patch verification failed: no such file", None, True),
        ('[{"type":"text","text":"a"},{"type":"text","text":"b"}]', "a\nb", None),
        ('{"content":[{"type":"text","text":"a"}],"isError":true}', "a", True),
        ('{"content":"a","success":false}', "a", True),
        ('{"rows":[1,2]}', '{"rows":[1,2]}', None),
        ("[1, 2]", "[1, 2]", None),
        ("{not json}", "{not json}", None),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb", None),
        ({"content": "a", "success": True}, "a", False),
        (None, "", None),
    ],
)
def test_outputs_are_unwrapped_and_say_whether_they_failed(
    tmp_path: Path, raw: Any, text: str | None, error: bool | None
) -> None:
    (item,) = items(tmp_path, output(raw))
    assert (item.kind, item.call_id, item.error) == ("tool_result", "call_1", error)
    assert item.text == (raw if text is None else text)


def test_an_output_list_keeps_its_images_as_attachments(tmp_path: Path) -> None:
    parts = [{"type": "input_image", "image_url": "data:image/jpeg;base64,QUI="}]
    (item,) = items(tmp_path, output(parts, "custom_tool_call_output"))
    assert (item.text, item.attachments) == ("", [Attachment("image/jpeg", 2)])


def test_the_end_of_a_command_tells_of_an_output_that_says_nothing(tmp_path: Path) -> None:
    found = items(
        tmp_path,
        event("exec_command_end", call_id="call_1", exit_code=1, stdout="SECRET"),
        output("no files"),
        event("exec_command_end", call_id="call_1", exit_code=1),
        output("Exit code: 0\n"),
    )
    assert [item.error for item in found] == [True, False]


def test_update_plan_sets_the_plan(tmp_path: Path) -> None:
    steps = [
        {"step": "read", "status": "completed"},
        {"step": "write", "status": "in_progress"},
        {"step": "test", "status": "pending"},
    ]
    (item,) = items(
        tmp_path,
        response(
            "function_call", name="update_plan", call_id="c", arguments=json.dumps({"plan": steps})
        ),
    )
    assert item.plan == "[x] read\n[~] write\n[ ] test"


def test_unknown_kinds_are_numbered_and_say_nothing(tmp_path: Path) -> None:
    source = rollout(
        tmp_path,
        meta(),
        response("ghost_snapshot", ghost_commit={}),
        response("compaction", encrypted_content="SECRET"),
        response("tool_search_output", tools=[{"name": "SECRET"}], call_id="c"),
        line("world_state", {"a": 1}),
        line("brand_new", {"type": "message", "role": "user"}),
        [1, 2],
        message("user", "hi"),
    )
    _, records = parse(source)
    assert [record.number for record in records] == list(range(8))
    assert [len(record.items) for record in records] == [0] * 7 + [1]


# ---------------------------------------------------------------- what surrounds the items


def test_folder_branch_and_model_follow_the_turns(tmp_path: Path) -> None:
    parser, records = parse(
        rollout(
            tmp_path,
            meta(git={"branch": "main"}),
            line("turn_context", {"cwd": "/a", "model": "m1"}),
            message("user", "one"),
            line("turn_context", {"cwd": "/b", "model": "m2"}),
            message("user", "two"),
        )
    )
    assert [(r.cwd, r.branch, r.model) for r in records if r.items] == [
        ("/a", "main", "m1"),
        ("/b", "main", "m2"),
    ]
    header = parser.header
    assert (header.project, header.branch, header.model) == ("/home/ann/shop", "main", "m2")


def test_timestamps_are_epoch_milliseconds(tmp_path: Path) -> None:
    _, records = parse(rollout(tmp_path, meta(), at(message("user", "hi"), "1T00:00:01.500")))
    assert records[1].timestamp == 1767225601500


@pytest.mark.parametrize("kind", ["task_complete", "turn_complete", "turn_aborted"])
def test_the_end_of_a_turn_closes_it(tmp_path: Path, kind: str) -> None:
    _, records = parse(rollout(tmp_path, meta(), message("user", "hi"), event(kind)))
    assert [record.closes_turn for record in records] == [False, False, True]


def test_a_thread_name_is_the_title(tmp_path: Path) -> None:
    _, records = parse(rollout(tmp_path, meta(), event("thread_name_updated", thread_name="Shop")))
    assert records[1].title == "Shop"


def test_a_rollback_supersedes_the_turns_it_takes_back(tmp_path: Path) -> None:
    _, records = parse(
        rollout(
            tmp_path,
            meta(),
            message("user", "one"),
            message("user", "<environment_context>"),
            message("user", "two"),
            message("assistant", "answer"),
            event("thread_rolled_back", num_turns=1),
            message("user", "three"),
            event("thread_rolled_back", num_turns=9),
        )
    )
    assert records[5].facts == [Fact(SUPERSEDED, 3, 4)]
    assert records[7].facts == [Fact(SUPERSEDED, 1, 6)]


# ---------------------------------------------------------------- event messages


def test_event_messages_are_ignored_beside_response_items(tmp_path: Path) -> None:
    found = items(
        tmp_path,
        event("user_message", message="hello"),
        event("agent_message", message="done"),
        event("item_completed", item={"stdout": "x"}),
        event("task_complete", last_agent_message="done"),
    )
    assert found == []


def test_event_messages_are_the_entries_of_a_file_that_has_only_them(tmp_path: Path) -> None:
    parser, records = parse(
        rollout(
            tmp_path,
            meta(),
            event("user_message", message="hello", images=["data:image/png;base64,QUI="]),
            event("agent_reasoning", text="SECRET"),
            event("agent_message", message="hi there"),
            event("error", message="quota exceeded"),
            event("token_count", info=None),
            event("turn_aborted", reason="interrupted"),
        )
    )
    found = [item for record in records for item in record.items]
    assert [(item.kind, item.text, item.sub_kind) for item in found] == [
        ("user", "hello", ""),
        ("reasoning", "", ""),
        ("assistant", "hi there", ""),
        ("system", "quota exceeded", "api_error"),
        ("system", "turn aborted: interrupted", "interrupt"),
    ]
    assert found[0].attachments == [Attachment("image/png", 2)]
    assert not parser.needs_reread


def test_event_messages_give_nothing_until_a_turn_is_finished(tmp_path: Path) -> None:
    values = [meta(), event("user_message", message="hello"), event("agent_message", message="hi")]
    source = rollout(tmp_path, *values)
    parser, records = parse(source)
    assert [record.items for record in records] == [[], [], []]
    source.path.write_bytes(jsonl([*values, event("task_complete")]))
    grown, late = parse(source, parser.state())
    assert grown.needs_reread
    assert late == []
    assert sum(len(record.items) for record in parse(source)[1]) == 2


def test_response_items_that_come_late_need_no_reread_where_events_gave_nothing(
    tmp_path: Path,
) -> None:
    values = [meta(), event("user_message", message="hello")]
    source = rollout(tmp_path, *values)
    parser, _ = parse(source)
    source.path.write_bytes(jsonl([*values, message("user", "hello")]))
    grown, late = parse(source, parser.state())
    assert not grown.needs_reread
    assert [item.text for record in late for item in record.items] == ["hello"]


def test_a_response_item_behind_chosen_events_needs_a_reread(tmp_path: Path) -> None:
    values = [meta(), event("user_message", message="hello"), event("task_complete")]
    source = rollout(tmp_path, *values)
    parser, _ = parse(source)
    more = [event("user_message", message="again"), event("task_complete")]
    source.path.write_bytes(jsonl([*values, *more]))
    grown, late = parse(source, parser.state())
    assert not grown.needs_reread
    assert [item.text for record in late for item in record.items] == ["again"]
    source.path.write_bytes(jsonl([*values, *more, message("user", "hello")]))
    again, late = parse(source, grown.state())
    assert again.needs_reread
    assert late == []


# ---------------------------------------------------------------- forks and sub-agents


def parent_history() -> list[dict[str, Any]]:
    return [
        at(message("developer", "PROMPT"), "1T00:00:00.000"),
        at(message("user", "go on"), "1T00:00:01.000"),
        at(response("function_call", name="f", call_id="p1", arguments="{}"), "1T00:00:20.000"),
        at(message("user", "go on"), "1T00:00:30.000"),
    ]


def own_history(day: int) -> list[dict[str, Any]]:
    return [
        at(message("developer", "OWN PROMPT"), f"{day}T00:00:00.000"),
        at(message("user", "go on"), f"{day}T00:00:01.000"),
        at(message("assistant", "own answer"), f"{day}T00:00:02.000"),
    ]


def identities(records: Iterable[Record], *, replayed: bool) -> list[str]:
    chosen = [record for record in records if record.replayed is replayed]
    return [item.identity for record in chosen for item in record.items if item.identity]


def test_a_fork_marks_what_it_replays_and_names_it_like_the_parent(tmp_path: Path) -> None:
    _, parents = parse(rollout(tmp_path, meta(), *parent_history()))
    fork = rollout(
        tmp_path,
        meta(CHILD, "2026-01-02T00:00:00.000Z", forked_from_id=PARENT),
        meta(),
        *parent_history(),
        *own_history(2),
    )
    parser, records = parse(fork)
    assert parser.header.parent == PARENT
    assert not parser.header.sub_agent
    assert [record.replayed for record in records] == [False] + [True] * 5 + [False] * 3
    copied = [bool(record.flags & COPIED) for record in records if record.items]
    assert copied == [True] * 4 + [False] * 3
    assert all(item.replayed is record.replayed for record in records for item in record.items)
    assert identities(records, replayed=True) == identities(parents, replayed=False)
    assert len(set(identities(records, replayed=True))) == 3
    assert not set(identities(records, replayed=False)) & set(identities(parents, replayed=False))


@pytest.mark.parametrize("field", ["forked_from_id", "parent_thread_id"])
def test_the_parent_is_the_thread_it_was_forked_or_spawned_from(tmp_path: Path, field: str) -> None:
    parser, records = parse(rollout(tmp_path, meta(CHILD, **{field: PARENT}), message("user", "a")))
    assert parser.header.parent == PARENT
    assert not records[1].replayed


def test_the_prompt_of_a_fork_is_hidden_behind_the_replay_too(tmp_path: Path) -> None:
    fork = rollout(
        tmp_path,
        meta(CHILD, "2026-01-02T00:00:00.000Z", forked_from_id=PARENT),
        meta(),
        *parent_history(),
        *own_history(2),
    )
    kinds = [item.kind for record in parse(fork)[1] for item in record.items]
    assert kinds == ["prompt", "user", "tool_call", "user", "prompt", "user", "assistant"]


def test_a_replay_written_at_once_ends_with_a_turn_of_its_own(tmp_path: Path) -> None:
    burst = [
        at(line("turn_context", {"turn_id": PARENT_TURN, "model": "m"}), "2T00:00:00.001"),
        *(at(value, "2T00:00:00.002") for value in parent_history()),
        at(line("turn_context", {"turn_id": OWN_TURN, "model": "m"}), "2T00:00:00.003"),
        at(message("user", "mine"), "2T00:00:00.003"),
    ]
    _, parents = parse(rollout(tmp_path, meta(), *parent_history()))
    _, records = parse(
        rollout(
            tmp_path,
            meta(CHILD, "2026-01-02T00:00:00.000Z", forked_from_id=PARENT),
            meta(PARENT, "2026-01-01T00:00:00.000Z"),
            *burst,
        )
    )
    assert [record.replayed for record in records[-3:]] == [True, False, False]
    assert identities(records, replayed=True) == identities(parents, replayed=False)


def test_a_replay_written_at_once_ends_with_a_pause(tmp_path: Path) -> None:
    _, records = parse(
        rollout(
            tmp_path,
            meta(CHILD, "2026-01-02T00:00:00.000Z", forked_from_id=PARENT),
            at(meta(PARENT), "2T00:00:00.000"),
            at(message("user", "theirs"), "2T00:00:00.001"),
            at(message("assistant", "theirs"), "2T00:00:00.500"),
            at(message("user", "mine"), "2T00:00:09.000"),
            at(message("assistant", "mine"), "2T00:00:09.100"),
        )
    )
    texts = {item.text: record.replayed for record in records for item in record.items}
    assert texts == {"theirs": True, "mine": False}


def test_a_sub_agents_own_history_starts_at_the_named_ordinal(tmp_path: Path) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    _, parents = parse(rollout(tmp_path, meta(), message("user", "theirs")))
    parser, records = parse(
        rollout(
            tmp_path,
            {**meta(CHILD, source=spawn, subagent_history_start_ordinal=3), "ordinal": 0},
            {**message("user", "theirs"), "ordinal": 1},
            message("assistant", "an archiver took the ordinal"),
            {**message("user", "task"), "ordinal": 3},
            {**message("assistant", "report"), "ordinal": 4},
        )
    )
    assert (parser.header.parent, parser.header.sub_agent) == (PARENT, True)
    assert [record.replayed for record in records] == [False, True, True, False, False]
    assert [record.flags for record in records] == [0, COPIED, COPIED, SIDECHAIN, SIDECHAIN]
    assert identities(records, replayed=True)[0] == identities(parents, replayed=False)[0]


def test_a_fork_of_a_fork_names_every_item_by_its_first_thread(tmp_path: Path) -> None:
    grandchild = "019a0002-0000-7000-8000-000000000005"
    root = [meta(), *parent_history()]
    middle = [
        meta(CHILD, "2026-01-02T00:00:00.000Z", forked_from_id=PARENT),
        *root,
        *own_history(2),
    ]
    last = [
        meta(grandchild, "2026-01-03T00:00:00.000Z", forked_from_id=CHILD),
        *middle,
        *own_history(3),
    ]
    roots, middles, lasts = (parse(rollout(tmp_path, *each))[1] for each in (root, middle, last))
    expected = identities(roots, replayed=False) + identities(middles, replayed=False)
    assert identities(lasts, replayed=True) == expected
    assert len(identities(lasts, replayed=False)) == 2


def test_messages_between_agents_are_a_task_or_a_notification(tmp_path: Path) -> None:
    def mail(text: str) -> dict[str, Any]:
        content = [{"type": "input_text", "text": text}]
        return response("agent_message", author="lead", recipient="worker", content=content)

    task = "Message Type: NEW_TASK\nPayload:\ncount"
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT}}}
    child, _ = parse(rollout(tmp_path, meta(CHILD, source=spawn), mail(task)))
    _, records = parse(child.source)
    assert (records[1].items[0].kind, records[1].flags) == ("user", SIDECHAIN)
    (item,) = items(tmp_path, mail("Message Type: FINAL_ANSWER\nPayload:\n3"))
    assert (item.kind, item.sub_kind) == ("system", "notification")


# ---------------------------------------------------------------- older envelopes


def test_bare_items_of_mid_2025_are_read(tmp_path: Path) -> None:
    def bare(value: dict[str, Any]) -> dict[str, Any]:
        return value["payload"]

    env = "<environment_context>\nCurrent working directory: /home/ann/old\n</environment_context>"
    source = rollout(
        tmp_path,
        {
            "id": PARENT,
            "timestamp": "2025-07-01T00:00:00Z",
            "instructions": "BASE",
            "git": {"branch": "dev"},
        },
        {"record_type": "state"},
        bare(message("user", env)),
        bare(message("user", "hello")),
        bare(response("reasoning", id="rs", summary=[])),
        bare(response("function_call", name="shell", arguments='{"a":"b"}', call_id="c")),
        bare(output('{"output":"x","metadata":{"exit_code":0}}')),
        {"record_type": "state"},
        line("response_item", bare(message("assistant", "resumed by a newer release"))),
    )
    assert CODEX.matches(source.head(), source)
    parser, records = parse(source)
    assert parser.header.session_id == PARENT
    assert (parser.header.project, parser.header.branch) == ("/home/ann/old", "dev")
    assert [(item.kind, item.text) for record in records for item in record.items] == [
        ("user", env),
        ("user", "hello"),
        ("reasoning", ""),
        ("tool_call", "shell\na: b"),
        ("tool_result", "x"),
        ("assistant", "resumed by a newer release"),
    ]


def test_the_document_of_early_2025_is_read_by_element(tmp_path: Path) -> None:
    session = {"timestamp": "2025-05-01T00:00:00Z", "id": "s1", "instructions": "BASE"}
    elements = [
        message("user", "hello")["payload"],
        "stray",
        response("local_shell_call", call_id="c", action={"command": ["ls"]})["payload"],
        response("local_shell_call_output", call_id="c", output="a.txt")["payload"],
    ]
    path = tmp_path / "rollout-2025-05-01-s1.json"
    path.write_text(json.dumps({"session": session, "items": elements}, indent=2))
    source = SourceFile(path)
    assert CODEX_DOCUMENT.matches(source.head(), source)
    assert not CODEX.matches(source.head(), source)
    (stub,) = CODEX_DOCUMENT.stubs(source)
    parser = CODEX_DOCUMENT.parser(source, stub)
    records = list(parser.records())
    assert stub.session_id == "s1"
    assert [record.pointer for record in records] == [f"/items/{i}" for i in range(4)]
    assert [(item.kind, item.text) for record in records for item in record.items] == [
        ("user", "hello"),
        ("tool_call", 'local_shell\ncommand: ["ls"]'),
        ("tool_result", "a.txt"),
    ]
    assert CODEX_DOCUMENT.resume_command(parser.header) is None


# ---------------------------------------------------------------- any content, any cut

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = st.sampled_from(
    [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
        "image_generation_call",
        "agent_message",
        "user_message",
        "task_complete",
        "error",
        "exec_command_end",
        "thread_rolled_back",
        "thread_name_updated",
        "turn_aborted",
    ]
)
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        "type": NAMES | JSON,
        "role": st.sampled_from(["user", "assistant", "developer"]) | JSON,
        "content": st.lists(
            st.fixed_dictionaries({"type": st.just("input_text"), "text": JSON}), max_size=2
        )
        | JSON,
        "id": st.sampled_from([PARENT, CHILD]) | JSON,
        "forked_from_id": st.just(PARENT) | JSON,
        "call_id": st.sampled_from(["a", "b"]) | JSON,
        "arguments": JSON | JSON.map(json.dumps),
        "output": JSON | JSON.map(json.dumps),
        "action": JSON,
        "source": st.just({"subagent": {"thread_spawn": {}}}) | JSON,
        "subagent_history_start_ordinal": st.integers(0, 9) | JSON,
        "turn_id": st.sampled_from([PARENT_TURN, OWN_TURN]) | JSON,
        "message": JSON,
        "images": JSON,
        "num_turns": st.integers(-1, 3) | JSON,
        "exit_code": JSON,
        "metadata": JSON,
        "git": JSON,
    },
)
VALUES = (
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["session_meta", "response_item", "event_msg", "turn_context", "compacted"]
            ),
            "payload": PAYLOADS | JSON,
        },
        optional={"timestamp": st.just("2026-01-01T00:00:00Z") | JSON, "ordinal": JSON},
    )
    | PAYLOADS
    | JSON
)


@given(st.lists(VALUES, max_size=8))
def test_arbitrary_payloads_never_raise_and_lose_no_number(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    source = rollout(tmp_path_factory.mktemp("fuzz"), *values)
    CODEX.matches(source.head(), source)
    parser, records = parse(source)
    assert not parser.needs_reread
    assert [record.number for record in records] == list(range(len(values)))
    json.dumps(parser.state())
    for record in records:
        for item in record.items:
            assert item.kind not in ("reasoning", "prompt") or not item.text
            item.text.encode()


@given(st.lists(VALUES, max_size=6), st.data())
def test_a_cut_and_resumed_read_equals_one_read(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    whole = [meta(CHILD, forked_from_id=PARENT), meta(), message("user", "hi"), *values]
    cut = data.draw(st.integers(3, len(whole)))
    parser, first = parse(rollout(folder, *whole[:cut]))
    state = json.loads(json.dumps(parser.state()))
    source = rollout(folder, *whole)
    resumed, rest = parse(source, state)
    expected_parser, expected = parse(source)
    assert first + rest == expected
    assert resumed.header == expected_parser.header
    assert resumed.state() == expected_parser.state()


# ---------------------------------------------------------------- real files


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the shared samples are not here")
def test_counts_by_kind_agree_with_a_naive_count_of_real_rollouts() -> None:
    paths = sorted(SAMPLES.rglob("*.jsonl"))
    assert paths
    for path in paths:
        source = SourceFile(path)
        assert CODEX.matches(source.head(), source)
        parser, records = parse(source)
        found = Counter(item.kind for record in records for item in record.items)
        assert found == _naive_count(path)
        assert path.stem.endswith(parser.header.session_id)
        joined = {i.call_id for r in records for i in r.items if i.kind == "tool_call"}
        assert joined == {i.call_id for r in records for i in r.items if i.kind == "tool_result"}


def _naive_count(path: Path) -> Counter[str]:
    kinds = {
        "function_call": "tool_call",
        "custom_tool_call": "tool_call",
        "function_call_output": "tool_result",
        "custom_tool_call_output": "tool_result",
        "reasoning": "reasoning",
    }
    count: Counter[str] = Counter()
    users = 0
    for text in path.read_text().splitlines():
        value = json.loads(text)
        payload = value["payload"]
        if value["type"] != "response_item":
            continue
        if payload["type"] != "message":
            count[kinds[payload["type"]]] += 1
            continue
        role = payload["role"]
        is_abort = payload["content"][0]["text"].startswith("<turn_aborted>")
        if role == "developer":
            count["system" if users else "prompt"] += 1
        else:
            count["system" if is_abort else role] += 1
            users += role == "user"
    return count
