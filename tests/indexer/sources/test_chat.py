"""Plain chat: OpenAI, Responses, Anthropic and ShareGPT, in documents and in lines."""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.errors import Failed
from sessiondex.indexer.sources.base import Format, SourceFile, SourceOptions
from sessiondex.indexer.sources.chat import CHAT, CHAT_LINES
from sessiondex.model import Attachment, Record, SessionHeader

USER = {"role": "user", "content": "list the files"}
ANSWER = {"role": "assistant", "content": "There is one."}
SYSTEM = {"role": "system", "content": "You are helpful."}


def write(path: Path, text: str | bytes) -> SourceFile:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return SourceFile(path)


def lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def claims(source: SourceFile) -> list[str]:
    return [each.name for each in (CHAT_LINES, CHAT) if each.matches(source.head(), source)]


def read(
    source: SourceFile, format_: Format = CHAT, n: int = 0
) -> tuple[SessionHeader, list[Record]]:
    parser = format_.parser(source, format_.stubs(source)[n])
    records = list(parser.records())
    return parser.header, records


def items_of(tmp_path: Path, *messages: Any, **fields: Any) -> list[tuple[Any, ...]]:
    """(record, block, kind, text, name, call id) of everything in a conversation."""
    source = write(tmp_path / "chat.json", json.dumps({"messages": messages, **fields}))
    assert claims(source) == ["chat"]
    return [
        (r.number, i.block, i.kind, i.text, i.name, i.call_id)
        for r in read(source)[1]
        for i in r.items
    ]


def call(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# ---------------------------------------------------------------- containers


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("conversation", "pointer"),
    [
        ({"model": "m", "messages": [USER, ANSWER]}, "/messages/1"),
        ([USER, ANSWER], "/1"),
        (
            {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
            "/conversations/1",
        ),
        ({"input": [USER, {"type": "message", **ANSWER}]}, "/input/1"),
        ({"input": "hi", "output": [{"type": "message", **ANSWER}]}, "/output/0"),
    ],
)
def test_a_document_with_one_conversation_is_one_session(
    tmp_path: Path, conversation: Any, pointer: str, indent: int | None
) -> None:
    source = write(tmp_path / "c", json.dumps(conversation, indent=indent))
    assert claims(source) == ["chat"]
    real = str(tmp_path.resolve() / "c").encode()
    assert [stub.session_id for stub in CHAT.stubs(source)] == [sha256(real).hexdigest()[:16]]
    header, records = read(source)
    assert [r.items[0].kind for r in records] == ["user", "assistant"]
    assert records[1].pointer == pointer
    assert (header.agent, header.format) == ("chat", "chat")


def test_each_line_that_holds_a_conversation_is_a_session(tmp_path: Path) -> None:
    text = lines({"messages": [USER]}, {"id": 1}) + "\n" + '{"messages": [torn\n' + lines([ANSWER])
    source = write(tmp_path / "c.jsonl", text)
    assert claims(source) == ["chat"]
    whole = sha256(str(source.path.resolve()).encode()).hexdigest()[:16]
    stubs = CHAT.stubs(source)
    assert [stub.session_id for stub in stubs] == [f"{whole}/{line}" for line in (1, 4, 5)]
    first, torn, last = (read(source, n=n)[1] for n in range(3))
    assert [(r.line, r.pointer, r.items[0].text) for r in (*first, *last)] == [
        (1, "/messages/0", "list the files"),
        (5, "/0", "There is one."),
    ]
    assert [(r.number, r.line, r.items) for r in torn] == [(0, 4, [])]
    assert torn[0].corrupt
    assert text.encode()[torn[0].byte_offset :].startswith(b'{"messages": [torn')


def test_conversations_a_line_are_read_in_utf_16_too(tmp_path: Path) -> None:
    source = write(tmp_path / "c.jsonl", lines([USER], [ANSWER]).encode("utf-16"))
    assert [read(source, n=n)[1][0].items[0].text for n in range(2)] == [
        "list the files",
        "There is one.",
    ]


def test_one_line_with_a_conversation_is_the_session_of_its_file(tmp_path: Path) -> None:
    source = write(tmp_path / "c.jsonl", lines({"messages": [USER]}))
    assert "/" not in CHAT.stubs(source)[0].session_id


def test_a_line_above_the_bound_is_a_session_with_one_oversized_record(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    big = [{"role": "user", "content": "x" * 500}]
    path.write_text(lines([USER], big), encoding="utf-8")
    source = SourceFile(path, options=SourceOptions(record_bytes=200))
    records = read(source, n=1)[1]
    assert [(r.oversized, r.items) for r in records] == [(True, [])]


def test_a_line_that_is_gone_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "c.jsonl", lines([USER], [USER]))
    stub = CHAT.stubs(source)[1]
    source.path.write_text(lines([USER]), encoding="utf-8")
    with pytest.raises(Failed, match="no line 2 any more"):
        CHAT.parser(source, stub)


def test_lines_of_single_messages_are_one_session(tmp_path: Path) -> None:
    text = lines(SYSTEM, USER) + "\nnot json\n[1]\n" + lines(SYSTEM, ANSWER)
    source = write(tmp_path / "c.jsonl", text)
    assert claims(source) == ["chat_lines"]
    header, records = read(source, CHAT_LINES)
    assert header.session_id == sha256(str(source.path.resolve()).encode()).hexdigest()[:16]
    assert [[i.kind for i in r.items] for r in records] == [
        ["prompt"], ["user"], [], [], [], ["system"], ["assistant"],
    ]  # fmt: skip
    assert [r.line for r in records] == list(range(1, 8))
    assert records[3].corrupt
    assert records[1].byte_offset == len(lines(SYSTEM))


def test_a_single_message_without_a_newline_is_the_beginning_of_such_a_file(
    tmp_path: Path,
) -> None:
    source = write(tmp_path / "c.jsonl", json.dumps(USER))
    assert claims(source) == ["chat_lines"]
    assert read(source, CHAT_LINES)[1][0].provisional


def test_lines_resumed_anywhere_give_the_same_records(tmp_path: Path) -> None:
    source = write(tmp_path / "c.jsonl", lines(SYSTEM, USER, SYSTEM, {"model": "m", **ANSWER}))
    stub = CHAT_LINES.stubs(source)[0]
    whole = list(CHAT_LINES.parser(source, stub).records())
    for stop in range(5):
        parser = CHAT_LINES.parser(source, stub)
        seen = list(islice(parser.records(), stop))
        state = json.loads(json.dumps(parser.state()))
        resumed = CHAT_LINES.parser(source, stub, state)
        assert seen + list(resumed.records()) == whole
        assert resumed.header.model == "m"


def test_a_document_resumed_yields_only_what_is_new(tmp_path: Path) -> None:
    source = write(tmp_path / "c.json", json.dumps([SYSTEM, USER, SYSTEM]))
    stub = CHAT.stubs(source)[0]
    resumed = list(CHAT.parser(source, stub, {"number": 2}).records())
    assert [(r.number, r.items[0].kind) for r in resumed] == [(2, "system")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("is_lines", [True, False])
def test_both_containers_are_read_in_other_encodings(
    tmp_path: Path, encoding: str, is_lines: bool
) -> None:
    messages = [USER, {"role": "assistant", "content": "größer"}]
    text = lines(*messages) if is_lines else json.dumps(messages, ensure_ascii=False)
    source = write(tmp_path / "c", text.encode(encoding))
    format_ = CHAT_LINES if is_lines else CHAT
    assert claims(source) == [format_.name]
    assert read(source, format_)[1][1].items[0].text == "größer"


# ---------------------------------------------------------------- recognising

LONG = {"role": "user", "content": "x" * 90_000}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"messages": [LONG, ANSWER]}), "chat"),
        (json.dumps([LONG, ANSWER], indent=1), "chat"),
        (json.dumps({"tools": ["x" * 90_000], "messages": [USER]}), "chat"),
        (lines({"messages": [LONG]}, {"messages": [USER]}), "chat"),
        (lines(LONG, ANSWER), "chat_lines"),
        (lines(LONG), "chat_lines"),
        ('{"role": "user", "content": "torn\n' + lines(USER), "chat_lines"),
        ('{"messages": [{"role": "user", "content": "torn\n' + lines({"messages": [USER]}), "chat"),
        (json.dumps({"messages": [LONG], "trajectory_format": "mini-swe-agent-1.1"}), None),
        (json.dumps({"info": {}, "messages": [USER], "trajectory_format": "m"}), None),
        (json.dumps({"rows": ["x" * 90_000]}), None),
        (json.dumps({"rows": ["x" * 90_000], "messages": 3}), None),
    ],
)
def test_shape_is_recognised_by_content_however_long_it_is(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    assert claims(write(tmp_path / "c", text)) == ([expected] if expected else [])


@pytest.mark.parametrize(
    "value",
    [
        {"schema_version": "ATIF-v1.5", "steps": [], "messages": [USER]},
        {"eval": {}, "samples": [], "messages": [USER]},
        {"trajectory": [], "history": [], "messages": [USER]},
        {"resourceSpans": [], "messages": [USER]},
        {"sessionId": "s", "messages": [{"type": "user", "content": "a"}]},
        {"info": {}, "messages": [{"info": {"role": "user"}, "parts": []}]},
        {"type": "user", "message": USER, "uuid": "u", "sessionId": "s"},
        {"type": "response_item", "payload": {"type": "message", **USER}},
        {"role": "user", "message": {"content": []}},
        [{"conversations": [USER]}],
        {"input": ["embed this"], "model": "m"},
        {"messages": []},
        [],
        {},
        [1, 2],
        {"role": "user"},
        {"role": "user", "content": 3},
        {"role": "wizard", "content": "a"},
        {"type": "tool_call"},
    ],
)
def test_what_another_format_would_claim_is_left_to_it(tmp_path: Path, value: Any) -> None:
    assert claims(write(tmp_path / "c", lines(value))) == []
    assert claims(write(tmp_path / "c", json.dumps(value, indent=2))) == []
    assert claims(write(tmp_path / "c", lines(value, value))) == []


# ---------------------------------------------------------------- OpenAI


def test_openai_messages_become_messages_calls_and_results(tmp_path: Path) -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [
        call("ls", '{"path": ".", "all": true}'), call("cat", {"file": "a"}, "c2"),
    ]}  # fmt: skip
    results = [
        {"role": "tool", "tool_call_id": "c2", "content": "hello"},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a"}, "b"]},
    ]
    assert items_of(tmp_path, SYSTEM, USER, called, *results, ANSWER) == [
        (0, 0, "prompt", "", "", ""),
        (1, 0, "user", "list the files", "", ""),
        (2, 0, "tool_call", "ls\npath: .\nall: true", "ls", "c1"),
        (2, 1, "tool_call", "cat\nfile: a", "cat", "c2"),
        (3, 0, "tool_result", "hello", "", "c2"),
        (4, 0, "tool_result", "a\nb", "", "c1"),
        (5, 0, "assistant", "There is one.", "", ""),
    ]


def test_only_system_messages_before_the_first_user_message_are_the_prompt(tmp_path: Path) -> None:
    developer = {"role": "developer", "content": [{"type": "text", "text": "Obey."}]}
    found = items_of(tmp_path, SYSTEM, developer, USER, developer, SYSTEM)
    assert [(kind, text) for _, _, kind, text, *_ in found] == [
        ("prompt", ""),
        ("prompt", ""),
        ("user", "list the files"),
        ("system", "Obey."),
        ("system", "You are helpful."),
    ]


@pytest.mark.parametrize("arguments", ['{"path": ', "ls -la", "[1]", '{"a": 1} tail'])
def test_arguments_that_are_no_json_object_are_kept_raw(tmp_path: Path, arguments: str) -> None:
    called = {"role": "assistant", "content": "", "tool_calls": [call("run", arguments)]}
    assert items_of(tmp_path, USER, called)[1][3] == f"run\n{arguments}"


def test_custom_tools_take_text(tmp_path: Path) -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    called = {"role": "assistant", "content": None, "tool_calls": [custom]}
    assert items_of(tmp_path, USER, called)[1][2:] == (
        "tool_call",
        "patch\n*** Begin",
        "patch",
        "c",
    )


def test_legacy_function_calls_are_joined_by_name(tmp_path: Path) -> None:
    function = {"name": "ls", "arguments": '{"path": "."}'}
    called = {"role": "assistant", "content": None, "function_call": function}
    doubled = {**called, "tool_calls": [call("ls", "{}")]}
    result = {"role": "function", "name": "ls", "content": "a"}
    assert items_of(tmp_path, USER, called, result, doubled)[1:] == [
        (1, 0, "tool_call", "ls\npath: .", "ls", ""),
        (2, 0, "tool_result", "a", "ls", ""),
        (3, 0, "tool_call", "ls", "ls", "c1"),
    ]


def test_reasoning_is_a_hidden_block_before_the_answer(tmp_path: Path) -> None:
    found = items_of(tmp_path, USER, {**ANSWER, "reasoning_content": "needle"})
    assert found[1:] == [
        (1, 0, "reasoning", "", "", ""),
        (1, 1, "assistant", "There is one.", "", ""),
    ]


def test_parts_are_one_message_with_attachments(tmp_path: Path) -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
        {"type": "text", "text": "what is"},
        {"type": "input_audio", "input_audio": {"format": "wav", "data": "aGVsbG8="}},
        {"type": "text", "text": "this"},
        {"type": "image_url", "image_url": "https://example.org/a.png"},
        {"type": "file", "file": {"file_data": "data:text/csv;base64,aGVsbG8="}},
        {"type": "hologram"},
    ]
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    source = write(tmp_path / "c", json.dumps([{"role": "user", "content": parts}, refused]))
    first, second = read(source)[1]
    assert [(i.block, i.text) for i in first.items] == [(0, "what is\nthis")]
    assert first.blocks == 7
    assert first.items[0].attachments == [
        Attachment("image/png", 5),
        Attachment("audio/wav", 5),
        Attachment("image", 0),
        Attachment("text/csv", 5),
    ]
    assert [(i.kind, i.text) for i in second.items] == [("assistant", "I cannot.")]
    assert "aGVsbG8" not in repr((first, second))


def test_refusals_and_spoken_answers_beside_the_content_are_kept(tmp_path: Path) -> None:
    refused = {"role": "assistant", "content": None, "refusal": "I cannot."}
    spoken = {"role": "assistant", "content": None, "audio": {"transcript": "Hello.", "data": "x"}}
    found = items_of(tmp_path, USER, refused, spoken)
    assert [text for _, _, _, text, *_ in found[1:]] == ["I cannot.", "Hello."]


def test_a_role_of_some_harness_is_kept_as_a_system_entry(tmp_path: Path) -> None:
    source = write(tmp_path / "c", json.dumps([USER, {"role": "exit", "content": "Submitted"}]))
    item = read(source)[1][1].items[0]
    assert (item.kind, item.sub_kind, item.text) == ("system", "exit", "Submitted")


def test_times_models_and_titles_are_kept_where_they_are(tmp_path: Path) -> None:
    timed = [
        {**USER, "timestamp": "2026-01-02T03:04:05Z"},
        {**ANSWER, "created": 1767323045, "model": "small"},
        {**ANSWER, "extra": {"timestamp": 1767323045.5}},
        ANSWER,
    ]
    source = write(tmp_path / "c", json.dumps({"messages": timed, "title": "T", "model": "large"}))
    header, records = read(source)
    assert (header.title, header.model) == ("T", "large")
    assert [r.timestamp for r in records] == [
        1767323045000, 1767323045000, 1767323045500, None,
    ]  # fmt: skip
    assert [r.model for r in records] == ["", "small", "", ""]


def test_an_answer_without_calls_closes_the_turn(tmp_path: Path) -> None:
    busy = {**ANSWER, "tool_calls": [call("ls", "{}")]}
    source = write(tmp_path / "c", json.dumps([USER, busy, ANSWER]))
    assert [r.closes_turn for r in read(source)[1]] == [False, False, True]


# ---------------------------------------------------------------- Responses API


def test_items_of_the_responses_api_become_messages_calls_and_results(tmp_path: Path) -> None:
    sequence = [
        {"type": "message", "role": "developer", "content": "Obey."},
        {"role": "user", "content": [
            {"type": "input_text", "text": "look"},
            {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8="},
        ]},
        {"type": "reasoning", "summary": [{"text": "needle"}], "encrypted_content": "needle"},
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": '{"path": "."}'},
        {"type": "function_call_output", "call_id": "c", "output": "a"},
        {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": [
            {"type": "input_text", "text": "ok"}]},
        {"type": "web_search_call", "id": "w", "action": {"query": "rust"}},
        {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "output": "yes"},
        {"type": "item_reference", "id": "x"},
        {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "Done."}]},
    ]  # fmt: skip
    for container in (sequence, {"input": sequence, "instructions": "needle"}):
        source = write(tmp_path / "c", json.dumps(container))
        assert claims(source) == ["chat"]
        records = read(source)[1]
        assert [
            (r.number, i.block, i.kind, i.text, i.name, i.call_id) for r in records for i in r.items
        ] == [
            (0, 0, "prompt", "", "", ""),
            (1, 0, "user", "look", "", ""),
            (2, 0, "reasoning", "", "", ""),
            (3, 0, "tool_call", "ls\npath: .", "ls", "c"),
            (4, 0, "tool_result", "a", "", "c"),
            (5, 0, "tool_call", "patch\n*** Begin", "patch", "d"),
            (6, 0, "tool_result", "ok", "", "d"),
            (7, 0, "tool_call", "web_search\nquery: rust", "web_search", "w"),
            (8, 0, "tool_call", "ask", "ask", "m"),
            (8, 1, "tool_result", "yes", "ask", "m"),
            (10, 0, "assistant", "Done.", "", ""),
        ]
        assert records[1].items[0].attachments == [Attachment("image/png", 5)]
        assert "needle" not in repr(records)


# ---------------------------------------------------------------- Anthropic


def test_anthropic_blocks_keep_their_places(tmp_path: Path) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    messages = [
        {"role": "user", "content": [
            {"type": "text", "text": "look"}, {"type": "image", "source": image}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "needle", "signature": "needle"},
            {"type": "text", "text": "I list."},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}},
            {"type": "tool_use", "id": "t2", "name": "cat", "input": {}},
            {"type": "text", "text": "Wait."},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": "no file"},
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": "a"}, {"type": "image", "source": image}]},
            {"type": "text", "text": "go on"},
        ]},
    ]  # fmt: skip
    source = write(tmp_path / "c", json.dumps({"system": "needle", "messages": messages}))
    records = read(source)[1]
    assert [
        (r.number, i.block, i.kind, i.text, i.call_id, i.error, len(i.attachments))
        for r in records
        for i in r.items
    ] == [
        (0, 0, "user", "look", "", None, 1),
        (1, 0, "reasoning", "", "", None, 0),
        (1, 1, "assistant", "I list.", "", None, 0),
        (1, 2, "tool_call", "ls\npath: .", "t1", None, 0),
        (1, 3, "tool_call", "cat", "t2", None, 0),
        (1, 4, "assistant", "Wait.", "", None, 0),
        (2, 0, "tool_result", "no file", "t2", True, 0),
        (2, 1, "tool_result", "a", "t1", None, 1),
        (2, 2, "user", "go on", "", None, 0),
    ]
    assert [r.blocks for r in records] == [2, 5, 3]
    assert records[1].items[2].pointer == "/content/2"
    assert "needle" not in repr(records)
    assert "aGVsbG8" not in repr(records)


def test_server_side_tools_are_calls_with_results(tmp_path: Path) -> None:
    found_page = {"type": "web_search_result", "url": "u", "encrypted_content": "needle"}
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [found_page]},
    ]
    assert items_of(tmp_path, USER, {"role": "assistant", "content": blocks})[1:] == [
        (1, 0, "tool_call", "web_search\nquery: q", "web_search", "s"),
        (1, 1, "tool_result", '{"type":"web_search_result","url":"u"}', "", "s"),
    ]


# ---------------------------------------------------------------- ShareGPT


def test_sharegpt_turns_become_messages_calls_and_results(tmp_path: Path) -> None:
    turns = [
        {"from": "system", "value": "You are helpful."},
        {"from": "human", "value": "hi"},
        {"from": "function_call", "value": '{"name": "ls", "arguments": {"path": "."}}'},
        {"from": "observation", "value": "a"},
        {"from": "gpt", "value": "There is one."},
        {"from": "function_call", "value": "ls please"},
    ]
    source = write(tmp_path / "c", json.dumps({"id": "x", "conversations": turns}))
    assert claims(source) == ["chat"]
    records = read(source)[1]
    assert [(i.kind, i.text, i.name) for r in records for i in r.items] == [
        ("prompt", "", ""),
        ("user", "hi", ""),
        ("tool_call", "ls\npath: .", "ls"),
        ("tool_result", "a", ""),
        ("assistant", "There is one.", ""),
        ("tool_call", "\nls please", ""),
    ]
    assert records[1].items[0].pointer == "/value"


# ---------------------------------------------------------------- anything

SMALL = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(
    ["role", "content", "type", "text", "name", "arguments", "id", "call_id", "tool_calls", "from",
     "function_call", "value", "output", "input", "source", "data", "summary", "image_url",
     "is_error", "reasoning_content", "audio", "file"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["user", "assistant", "system", "tool", "function", "text", "image", "image_url", "human",
     "input_audio", "file", "tool_use", "tool_result", "thinking", "function_call", "gpt",
     "function_call_output", "mcp_call", "reasoning", "refusal", "resource", "document", "{}",
     "[]", "data:,x"]
)  # fmt: skip
VALUES = st.recursive(
    SMALL | WORDS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=5)
)


@given(st.lists(VALUES, max_size=4))
def test_no_content_of_a_chat_stops_the_parser(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-chat.json"
    as_document = write(path, json.dumps([USER, *messages]))
    records = list(CHAT.parser(as_document, CHAT.stubs(as_document)[0]).records())
    assert len(records) == len(messages) + 1
    as_lines = write(path, lines(USER, *messages))
    read_as_lines = list(CHAT_LINES.parser(as_lines, CHAT_LINES.stubs(as_lines)[0]).records())
    assert [r.items for r in read_as_lines] == [r.items for r in records]
    for record in records:
        blocks = [item.block for item in record.items]
        assert blocks == sorted(set(blocks))
        assert all(block < record.blocks for block in blocks)
        for item in record.items:
            item.text.encode()
            if item.kind in ("prompt", "reasoning"):
                assert item.text == ""


@given(VALUES, VALUES, st.sampled_from([None, 1]))
def test_recognising_never_fails(
    tmp_path_factory: pytest.TempPathFactory, first: Any, second: Any, indent: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz-shape.json"
    for text in (json.dumps(first, indent=indent), lines(first, second)):
        source = write(path, text)
        for name in claims(source):
            format_ = CHAT if name == "chat" else CHAT_LINES
            for stub in format_.stubs(source):
                list(format_.parser(source, stub).records())


def test_a_chat_has_no_command_that_resumes_it(tmp_path: Path) -> None:
    header = read(write(tmp_path / "c", json.dumps([USER])))[0]
    assert CHAT.resume_command(header) is None
    assert CHAT_LINES.resume_command(header) is None
