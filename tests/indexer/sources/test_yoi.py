"""Yoi segment logs: what is committed, what is an entry, and what repeats another segment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.indexer.sources.base import SessionStub, SourceFile
from sessiondex.indexer.sources.yoi import YOI
from sessiondex.model import COMPACTION_SUMMARY, COPIED, SUPERSEDED, Attachment, Fact, Item, Record

SNAPSHOT = """[Session TaskStore snapshot]

TaskStore: 3 task(s)

```json
{"tasks": [
  {"taskid": 1, "status": "completed", "subject": "read", "description": ""},
  {"taskid": 2, "status": "inprogress", "subject": "write", "description": ""},
  {"taskid": 3, "status": "pending", "subject": "test", "description": ""},
  {"taskid": 4, "status": "deleted", "subject": "gone", "description": ""}
]}
```
"""

# ---------------------------------------------------------------- building segments


def start(*history: Any, **more: Any) -> dict[str, Any]:
    return {
        "kind": "segment_start",
        "ts": 1,
        "session_id": "s1",
        "system_prompt": "SECRET",
        "config": {},
        "history": list(history),
        **more,
    }


def user(*segments: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "user_input", "ts": 2, "segments": list(segments)}


def said(text: str) -> dict[str, Any]:
    return user({"kind": "text", "content": text})


def message(role: str, *texts: str) -> dict[str, Any]:
    content = [{"kind": "text", "text": text} for text in texts]
    return {"kind": "message", "role": role, "content": content}


def assistant(item: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "assistant_item", "ts": 3, "item": item}


def call(
    call_id: str = "c1", name: str = "Read", arguments: Any = '{"path":"a"}'
) -> dict[str, Any]:
    return {"kind": "tool_call", "call_id": call_id, "name": name, "arguments": arguments}


def result(call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"kind": "tool_result", "call_id": call_id, "summary": "read a", **more}


def returned(item: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "tool_result", "ts": 4, "item": item}


def system(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "system_item", "ts": 5, "item": {"kind": kind, **fields}}


def jsonl(values: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def segment(folder: Path, *values: Any, name: str = "g1.jsonl") -> SourceFile:
    path = folder / "s1" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(jsonl(values))
    return SourceFile(path)


def parse(source: SourceFile, state: dict[str, Any] | None = None) -> tuple[Any, list[Record]]:
    parser = YOI.parser(source, YOI.stubs(source)[0], state)
    return parser, list(parser.records())


def items(folder: Path, *values: Any) -> list[Item]:
    records = parse(segment(folder, start(), *values))[1]
    return [item for record in records for item in record.items]


def retagged(value: Any) -> Any:
    """The in-memory form: `type` instead of `kind`, below the record's own tag."""
    if isinstance(value, list):
        return [retagged(each) for each in value]
    if isinstance(value, dict):
        return {("type" if k == "kind" else k): retagged(v) for k, v in value.items()}
    return value


# ---------------------------------------------------------------- recognising


def test_a_segment_is_named_by_its_session_and_its_file(tmp_path: Path) -> None:
    source = segment(tmp_path, start(session_id="other"))
    assert YOI.matches(source.head(), source)
    assert YOI.stubs(source) == [SessionStub("other/g1")]
    parser, _ = parse(source)
    assert (parser.header.session_id, parser.header.segment_id) == ("other/g1", "g1")
    assert YOI.resume_command(parser.header) is None


def test_without_a_session_id_the_folder_names_the_session(tmp_path: Path) -> None:
    source = segment(tmp_path, said("hi"))
    assert YOI.matches(source.head(), source)
    assert YOI.stubs(source) == [SessionStub("s1/g1")]


def test_a_long_system_prompt_does_not_hide_the_format(tmp_path: Path) -> None:
    source = segment(tmp_path, start(system_prompt="x" * 100_000))
    assert YOI.matches(source.head(), source)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("g1.trace.jsonl", start()),
        ("g1.jsonl", {"kind": 0, "v": {}}),
        ("g1.jsonl", {"kind": "MessageEvent", "ts": 1}),
        ("g1.jsonl", {"type": "user", "message": {}}),
    ],
)
def test_traces_and_other_logs_are_no_segments(
    tmp_path: Path, name: str, value: dict[str, Any]
) -> None:
    source = segment(tmp_path, value, name=name)
    assert not YOI.matches(source.head(), source)


# ---------------------------------------------------------------- what commits


@pytest.mark.parametrize("tail", [b"", b"\xe3", b'{"kind":"user_in', jsonl([said("late")])[:-1]])
def test_an_unterminated_tail_is_no_record_and_never_settles(tmp_path: Path, tail: bytes) -> None:
    source = segment(tmp_path, start(), said("hi"))
    committed = source.path.read_bytes()
    source.path.write_bytes(committed + tail)
    parser = YOI.parser(source, YOI.stubs(source)[0])
    parser.settle = True  # type: ignore[attr-defined]
    assert [record.number for record in parser.records()] == [0, 1]
    assert parser.state()["offset"] == len(committed)


def test_the_tail_is_read_once_its_newline_is_there(tmp_path: Path) -> None:
    source = segment(tmp_path, start(), said("hi"))
    whole = source.path.read_bytes()
    source.path.write_bytes(whole[:-1])
    parser, first = parse(source)
    source.path.write_bytes(whole)
    _, rest = parse(source, parser.state())
    assert [record.number for record in first + rest] == [0, 1]
    assert rest[0].items[0].text == "hi"


# ---------------------------------------------------------------- records and items


def test_user_input_is_joined_as_the_model_gets_it(tmp_path: Path) -> None:
    (item,) = items(
        tmp_path,
        user(
            {"kind": "text", "content": "look at "},
            {"kind": "file_ref", "path": "src/main.rs"},
            {"kind": "paste", "id": 1, "chars": 3, "lines": 1, "content": " abc"},
            {"kind": "unknown_segment", "content": "SECRET"},
            {"kind": "flow", "selector": "ship/it"},
        ),
    )
    assert (item.kind, item.text) == ("user", "look at @src/main.rs abc[Flow: ship/it]")


def test_messages_join_text_and_refusal(tmp_path: Path) -> None:
    content = [{"kind": "text", "text": "a"}, {"kind": "refusal", "refusal": "I cannot"}]
    (item,) = items(tmp_path, assistant({**message("assistant"), "content": content}))
    assert (item.kind, item.text) == ("assistant", "a\nI cannot")


def test_calls_show_their_arguments_and_results_their_own_summary(tmp_path: Path) -> None:
    found = items(
        tmp_path,
        assistant(call()),
        returned(
            result(
                content="line 1",
                is_error=True,
                attachments=[{"kind": "image", "mime_type": "image/png", "data": "QUJDRA=="}],
            )
        ),
        assistant(call("c2", arguments="{cut")),
        returned(result("c2")),
    )
    assert [(i.kind, i.name, i.call_id, i.text, i.summary, i.error) for i in found] == [
        ("tool_call", "Read", "c1", "Read\npath: a", "", None),
        ("tool_result", "", "c1", "line 1", "read a", True),
        ("tool_call", "Read", "c2", "Read\n{cut", "", None),
        ("tool_result", "", "c2", "read a", "read a", False),
    ]
    assert found[1].attachments == [Attachment("image/png", 4)]


@pytest.mark.parametrize("arguments", ["{cut", "[1]", "", '{"a":' * 1000 + "1" + "}" * 1000])
def test_arguments_that_are_no_object_stay_raw(tmp_path: Path, arguments: str) -> None:
    (item,) = items(tmp_path, assistant(call(arguments=arguments)))
    assert item.text == f"Read\n{arguments}"


def test_reasoning_keeps_its_block_and_nothing_else(tmp_path: Path) -> None:
    thought = {"kind": "reasoning", "text": "SECRET", "summary": ["SECRET"], "signature": "SECRET"}
    assert items(tmp_path, assistant(thought)) == [Item(0, "reasoning")]


@pytest.mark.parametrize(
    ("record", "sub_kind", "plan"),
    [
        (system("notification", message="raw", body="BODY"), "notification", ""),
        (system("worker_event", event={}, body="BODY"), "worker_event", ""),
        (system("file_attachment", path="a", body="BODY"), "file_attachment", ""),
        (system("skill_activation", name="n", body="BODY"), "skill_activation", ""),
        (system("interrupt", body="BODY"), "interrupt", ""),
        (system("some_new_kind", body="BODY"), "some_new_kind", ""),
        (system("task_reminder", body="BODY"), "task_reminder", "BODY"),
        (system("task_snapshot", body="BODY"), "task_snapshot", "BODY"),
    ],
)
def test_system_items_are_their_body_under_their_sub_kind(
    tmp_path: Path, record: dict[str, Any], sub_kind: str, plan: str
) -> None:
    (item,) = items(tmp_path, record)
    assert (item.kind, item.text, item.sub_kind, item.plan) == ("system", "BODY", sub_kind, plan)


@pytest.mark.parametrize("kind", ["knowledge", "workflow"])
def test_system_items_that_yoi_itself_ignores_are_no_entries(tmp_path: Path, kind: str) -> None:
    assert items(tmp_path, system(kind, slug="s", body="SECRET")) == []


def test_task_lists_set_the_plan(tmp_path: Path) -> None:
    source = segment(
        tmp_path,
        start(
            message("system", SNAPSHOT), message("system", "[Session TaskStore snapshot]\n\n- a")
        ),
        system("task_reminder", body="<system-reminder>\n- [ ] test\n</system-reminder>"),
    )
    found = [item for record in parse(source)[1] for item in record.items]
    assert [item.plan for item in found] == [
        "[x] read\n[~] write\n[ ] test",
        "- a",
        "- [ ] test",
    ]


def test_both_tags_read_alike(tmp_path: Path) -> None:
    values = [
        start(message("user", "before"), call(), result(content="x")),
        user({"kind": "text", "content": "a"}, {"kind": "file_ref", "path": "b"}),
        assistant(message("assistant", "c")),
        returned(result(attachments=[{"kind": "image", "data": "QUI="}])),
        system("notification", body="d"),
    ]
    others = [{"kind": value["kind"], **retagged({**value, "kind": 0})} for value in values]
    plain = [record.items for record in parse(segment(tmp_path, *values))[1]]
    other = [record.items for record in parse(segment(tmp_path, *others))[1]]
    assert plain == other
    assert sum(map(len, plain)) == 7


def test_records_without_items_are_numbered(tmp_path: Path) -> None:
    kinds = ["invoke", "llm_usage", "config_changed", "extension", "run_completed", "brand_new"]
    values = [{"kind": kind, "ts": 9, "text": "SECRET"} for kind in kinds]
    _, records = parse(segment(tmp_path, start(), *values, "stray", said("hi")))
    assert [record.number for record in records] == list(range(9))
    assert [len(record.items) for record in records] == [0] * 8 + [1]
    assert [record.timestamp for record in records[:2]] == [1, 9]


@pytest.mark.parametrize(
    "kind", ["turn_end", "run_completed", "run_errored", "paused_turn_abandoned"]
)
def test_the_end_of_a_turn_or_run_closes_it(tmp_path: Path, kind: str) -> None:
    _, records = parse(segment(tmp_path, start(), said("hi"), {"kind": kind, "ts": 9}))
    assert [record.closes_turn for record in records] == [False, False, True]


def test_the_model_follows_the_configuration(tmp_path: Path) -> None:
    parser, records = parse(
        segment(
            tmp_path,
            start(config={"model": "m1"}),
            said("a"),
            {"kind": "config_changed", "ts": 3, "config": {"model": "m2"}},
            said("b"),
        )
    )
    assert [record.model for record in records] == ["m1", "m1", "m2", "m2"]
    assert parser.header.model == "m2"


# ---------------------------------------------------------------- histories


def test_a_history_is_blocks_of_the_first_record_and_the_prompt_is_none(tmp_path: Path) -> None:
    history = [message("user", "a"), {"kind": "reasoning", "text": "x"}, {"kind": "new"}, call()]
    _, (record,) = parse(segment(tmp_path, start(*history)))
    assert record.blocks == 4
    assert [(item.block, item.kind, item.pointer) for item in record.items] == [
        (0, "user", "/history/0"),
        (1, "reasoning", "/history/1"),
        (3, "tool_call", "/history/3"),
    ]
    assert not record.replayed
    assert not record.flags & COPIED
    assert "SECRET" not in "".join(item.text for item in record.items)


@pytest.mark.parametrize("origin", ["forked_from", "compacted_from"])
def test_the_history_of_a_later_segment_is_copied(tmp_path: Path, origin: str) -> None:
    source = segment(
        tmp_path,
        start(
            message("system", "[Compacted context summary]\nso far: A"),
            message("user", "a"),
            **{origin: {"segment_id": "g0", "at_turn_index": 1}},
        ),
        said("b"),
        name="g2.jsonl",
    )
    parser, records = parse(source)
    assert parser.header.parent == "s1/g0"
    assert [record.replayed for record in records] == [True, False]
    assert [bool(record.flags & COPIED) for record in records] == [True, False]
    assert [item.replayed for record in records for item in record.items] == [True, True, False]
    summary = records[0].items[0]
    assert (summary.sub_kind, summary.flags) == ("compaction_summary", COMPACTION_SUMMARY)


def test_copies_have_the_identities_of_their_originals(tmp_path: Path) -> None:
    own = [
        said("go on"),
        assistant(call()),
        returned(result(content="x")),
        system("notification", body="[Notification]\nchild done"),
        assistant(message("assistant", "done")),
        said("go on"),
    ]
    history = [
        message("user", "go on"),
        call(),
        result(content="x"),
        message("system", "[Notification]\nchild done"),
        message("assistant", "done"),
        message("user", "go on"),
    ]
    _, originals = parse(segment(tmp_path, start(), *own))
    later = start(*history, forked_from={"segment_id": "g1"})
    _, copies = parse(segment(tmp_path, later, said("more"), name="g2.jsonl"))
    names = [item.identity for record in originals for item in record.items]
    assert [item.identity for item in copies[0].items] == names
    assert len(set(names)) == 6
    assert copies[1].items[0].identity not in names
    _, others = parse(segment(tmp_path, start(session_id="s2"), *own))
    assert not set(names) & {item.identity for record in others for item in record.items}


def test_a_second_start_supersedes_what_its_history_replaces(tmp_path: Path) -> None:
    _, records = parse(segment(tmp_path, start(), said("a"), start(message("user", "b"))))
    assert [record.facts for record in records] == [[], [], [Fact(SUPERSEDED, 0, 1)]]


# ---------------------------------------------------------------- any content, any cut

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
TAGS = st.sampled_from(["message", "tool_call", "tool_result", "reasoning", "task_reminder"])
PARTS = st.fixed_dictionaries(
    {}, optional={"kind": st.sampled_from(["text", "refusal", "file_ref", "flow"]), "text": JSON}
)
ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "kind": TAGS | JSON,
        "role": st.sampled_from(["user", "assistant", "system"]) | JSON,
        "content": st.lists(PARTS, max_size=2) | JSON,
        "body": st.just(SNAPSHOT) | JSON,
        "call_id": JSON,
        "name": JSON,
        "arguments": JSON | JSON.map(json.dumps),
        "summary": JSON,
        "is_error": JSON,
        "attachments": JSON,
    },
)
RECORDS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(
            ["segment_start", "user_input", "assistant_item", "tool_result", "system_item"]
        )
        | JSON
    },
    optional={
        "ts": st.integers(0, 10**13) | JSON,
        "item": ITEMS | JSON,
        "segments": st.lists(PARTS, max_size=3) | JSON,
        "history": st.lists(ITEMS | JSON, max_size=3) | JSON,
        "forked_from": JSON,
        "compacted_from": st.just({"segment_id": "g0"}) | JSON,
        "session_id": JSON,
        "config": JSON,
    },
)


@given(st.lists(RECORDS | JSON, max_size=8))
def test_arbitrary_records_never_raise_and_lose_no_number(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any]
) -> None:
    source = segment(tmp_path_factory.mktemp("fuzz"), *values)
    YOI.matches(source.head(), source)
    parser, records = parse(source)
    assert [record.number for record in records] == list(range(len(values)))
    json.dumps(parser.state())
    for record in records:
        assert all(0 <= item.block < record.blocks for item in record.items)
        for item in record.items:
            assert item.kind != "reasoning" or not item.text
            item.text.encode()


@given(st.lists(RECORDS, max_size=6), st.data())
def test_a_cut_and_resumed_read_equals_one_read(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    whole = jsonl([start(), said("hi"), *values])
    first_line = whole.index(b"\n") + 1
    cut = data.draw(st.integers(first_line, len(whole)))
    source = segment(folder)
    source.path.write_bytes(whole[:cut])
    parser, first = parse(source)
    state = json.loads(json.dumps(parser.state()))
    source.path.write_bytes(whole)
    resumed, rest = parse(source, state)
    expected_parser, expected = parse(source)
    assert first + rest == expected
    assert resumed.header == expected_parser.header
    assert resumed.state() == expected_parser.state()
