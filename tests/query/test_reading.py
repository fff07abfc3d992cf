"""Reading: bounded replies that say what they leave out, and put together give the exact text."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessiondex.errors import HiddenEntry, InvalidArgument, NotFound, PastEnd
from sessiondex.indexer.capture import Capture
from sessiondex.limits import READ_BYTES
from sessiondex.masking import mask
from sessiondex.model import Attachment, Item, Record
from sessiondex.query.reading import ReadRequest, iterate_entries, read
from tests.query.made_sessions import PRIVATE_KEY, RECORDS, SECRET, TEXTS, capture_of, visible


def ask(capture: Capture, /, *, reveal: bool = False, **arguments: Any) -> dict[str, Any]:
    """One read, checked against its budget."""
    reply = read(capture, ReadRequest(**arguments), reveal=reveal)
    budget = min(
        arguments.get("max_bytes") or READ_BYTES.maximum,
        (arguments.get("max_tokens") or 10**6) * 4,
        READ_BYTES.maximum,
    )
    assert len(orjson.dumps(reply)) <= budget
    cut = [entry for entry in reply["entries"] if entry["next_byte"] is not None]
    assert reply["truncated"] == bool(reply["omitted_entries"] or cut)
    assert (reply["stopped"] is not None) == reply["truncated"]
    return reply


def whole_texts(capture: Capture, *, reveal: bool, **arguments: Any) -> dict[str, str]:
    """The texts of a range, put together by following `next_byte` and `next_ref`."""
    texts: dict[str, str] = {}
    through = arguments.pop("through_ref")
    at = arguments.pop("from_ref")
    while at is not None:
        reply = ask(capture, reveal=reveal, from_ref=at, through_ref=through, **arguments)
        for entry in reply["entries"]:
            assert entry["entry_ref"] not in texts
            text, next_byte = entry["text"], entry["next_byte"]
            seen = entry["returned_bytes"]
            while next_byte is not None:
                rest = ask(
                    capture, reveal=reveal, entry_ref=entry["entry_ref"], from_byte=next_byte,
                    max_bytes=arguments.get("max_bytes"),
                )["entries"][0]  # fmt: skip
                assert rest["from_byte"] == next_byte
                text += rest["text"]
                seen += rest["returned_bytes"]
                next_byte = rest["next_byte"]
            assert seen == entry["total_bytes"]
            texts[entry["entry_ref"]] = text
        at = reply["next_ref"]
    return texts


@settings(max_examples=30)
@given(RECORDS, st.integers(900, 3000), st.integers(1, 6), st.booleans())
def test_reading_on_puts_the_exact_texts_together(
    records: list[Record], max_bytes: int, max_items: int, reveal: bool
) -> None:
    entries = visible(records)
    capture = Capture.from_items(records)
    texts = whole_texts(
        capture, reveal=reveal, from_ref="E0", through_ref=f"E{len(records) - 1}",
        max_bytes=max_bytes, max_items=max_items,
    )  # fmt: skip
    shown = {e.ref: e.text if reveal else mask(e.text).text for e in entries}
    assert texts == shown


@settings(max_examples=12)
@example(f"0\x80\x80{PRIVATE_KEY}", 900)
@given(TEXTS, st.integers(900, 5000))
def test_reading_on_inside_a_long_entry_gives_its_exact_text(text: str, max_bytes: int) -> None:
    text = text * (1 + 80_000 // (len(text) + 1))
    capture = capture_of(text)
    budget = max_bytes * 8
    found = whole_texts(capture, reveal=False, from_ref="E0", through_ref="E0", max_bytes=budget)
    assert found == {"E00000000": mask(text).text}
    streamed = next(iterate_entries(capture, ReadRequest(entry_ref="E0")))
    assert "".join(streamed.text) == mask(text).text


@settings(max_examples=30)
@given(
    RECORDS,
    st.sampled_from([None, "user", "agent", "assistant", "system", "tool", ["user", "tool"]]),
    st.sampled_from([None, "input", "output", "both"]),
    st.booleans(),
    st.data(),
)
def test_a_range_gives_what_its_filters_admit_and_counts_the_rest(
    records: list[Record], kind: Any, part: str | None, include_tools: bool, data: st.DataObject
) -> None:
    capture = Capture.from_items(records)
    low = data.draw(st.integers(0, len(records) - 1))
    high = data.draw(st.integers(low, len(records) - 1))
    arguments = {"kind": kind, "tool_part": part, "include_tools": include_tools}
    request = {"from_ref": f"E{low}", "through_ref": f"E{high}", "max_items": 3, **arguments}
    kinds = {"agent": ["assistant"], None: []}.get(
        kind if not isinstance(kind, list) else "", [kind] if isinstance(kind, str) else kind
    )
    only_tools = (kinds or (["tool"] if part else [])) == ["tool"]
    if (part and kinds and "tool" not in kinds) or (only_tools and not include_tools):
        with pytest.raises(InvalidArgument):
            ask(capture, **request)
        return
    kinds = kinds or (["tool"] if part else ["user", "assistant", "system", "tool"])
    expected = [
        e
        for e in visible(records)
        if low <= int(e.ref[1:9]) <= high
        and e.kind in kinds
        and (e.kind != "tool" or (include_tools and part in (None, "both", e.tool_part)))
    ]
    reply = ask(capture, **request)
    got = [entry["entry_ref"] for entry in reply["entries"]]
    assert got == [e.ref for e in expected][: len(got)]
    assert len(got) + reply["omitted_entries"] == len(expected)
    assert len(got) == min(3, len(expected))
    following = expected[len(got)].ref if len(got) < len(expected) else None
    assert reply["next_ref"] == following
    streamed = [item.view["entry_ref"] for item in iterate_entries(capture, ReadRequest(**request))]
    assert streamed == [e.ref for e in expected]


@settings(max_examples=30)
@given(RECORDS, st.integers(1, 4), st.integers(1, 12), st.data())
def test_context_gives_the_nearest_neighbours_in_source_order(
    records: list[Record], context: int, max_items: int, data: st.DataObject
) -> None:
    entries = visible(records)
    if not entries:
        return
    capture = Capture.from_items(records)
    at = data.draw(st.integers(0, len(entries) - 1))
    reply = ask(capture, entry_ref=entries[at].ref, context=context, max_items=max_items)
    got = [entry["entry_ref"] for entry in reply["entries"]]
    around = [e.ref for e in entries[max(at - context, 0) : at + context + 1]]
    assert entries[at].ref in got
    assert got == [ref for ref in around if ref in got]
    assert len(got) + reply["omitted_entries"] == len(around)
    marked = {entry["entry_ref"] for entry in reply["entries"] if entry.get("context")}
    assert marked == set(got) - {entries[at].ref}


@given(st.integers(1, 400))
@settings(max_examples=40)
def test_a_budget_too_small_for_the_first_entry_is_refused_with_what_it_needs(
    max_tokens: int,
) -> None:
    capture = capture_of(PRIVATE_KEY + "語" * 500)
    try:
        reply = ask(capture, entry_ref="E0", max_tokens=max_tokens)
        assert reply["entries"][0]["returned_bytes"] > 0
    except InvalidArgument as error:
        assert "max_tokens is too small for entry E00000000" in error.message
        needed = int(error.hint.rsplit(" ", 1)[1])
        assert needed > max_tokens
        ask(capture, entry_ref="E0", max_tokens=needed)


def test_an_entry_has_the_fields_of_the_contract() -> None:
    items = [
        Item(0, "user", "look", attachments=[Attachment("image/png", 2048)]),
        Item(0, "tool_call", "Bash\ncommand: ls", call_id="call_1", name="Bash"),
        Item(0, "tool_result", "a.py", call_id="call_1", error=True, timestamp=1_773_144_030_123),
    ]
    reply = ask(Capture.from_items(items), from_ref="E0", through_ref="E2")
    assert set(reply) == {
        "session", "capture", "entries", "truncated", "omitted_entries", "next_ref", "stopped",
        "notes",
    }  # fmt: skip
    assert reply["entries"][2] == {
        "entry_ref": "E00000002",
        "entry_range": [2, 2],
        "kind": "tool",
        "tool_part": "output",
        "tool_name": "Bash",
        "call_id": "call_1",
        "error": True,
        "timestamp": "2026-03-10T12:00:30.123Z",
        "label": "tool output: Bash",
        "flags": [],
        "text": "a.py",
        "total_bytes": 4,
        "returned_bytes": 4,
        "next_byte": None,
    }
    assert reply["entries"][0]["attachments"] == [{"media_type": "image/png", "size": 2048}]


def test_compact_leaves_out_bodies_and_says_how_large_they_are() -> None:
    items = [
        Item(0, "user", "go"),
        Item(0, "tool_call", "Bash\ncommand: ls", name="Bash"),
        Item(0, "tool_result", "x" * 100_000, summary=f"100 kB for {SECRET}"),
    ]
    capture = Capture.from_items(items)
    reply = ask(capture, from_ref="E0", through_ref="E2", mode="compact")
    user, call, result = reply["entries"]
    assert user["text"] == "go"
    assert (call["text"], call["left_out"]) == ("", {"part": "arguments", "bytes": 16})
    assert result["left_out"] == {"part": "result", "bytes": 100_000}
    assert result["summary"] == "100 kB for [REDACTED:github_token]"
    assert (result["total_bytes"], result["returned_bytes"]) == (100_000, 0)
    assert not reply["truncated"]
    request = ReadRequest(from_ref="E0", through_ref="E2", mode="compact")
    assert ["".join(item.text) for item in iterate_entries(capture, request)] == ["go", "", ""]


def test_entry_refs_are_read_in_the_order_asked_each_once() -> None:
    capture = capture_of(*"abcdef")
    reply = ask(capture, entry_refs=["E4", "E1", "E00000004", "E2"], max_items=2)
    assert [entry["text"] for entry in reply["entries"]] == ["e", "b"]
    assert (reply["omitted_entries"], reply["next_ref"]) == (1, "E00000002")
    assert reply["stopped"] == "items"


def test_unknown_hidden_and_past_refs_are_told_apart() -> None:
    items = [Item(0, "user", "a"), Item(0, "reasoning"), Item(0, "assistant", "b")]
    capture = Capture.from_items(items)
    for ref, error in (("E1", HiddenEntry), ("E3", PastEnd), ("E0.1", NotFound)):
        with pytest.raises(error) as caught:
            ask(capture, entry_ref=ref)
        assert type(caught.value) is error
    reply = ask(capture, from_ref="E0", through_ref="E2")
    assert [entry["text"] for entry in reply["entries"]] == ["a", "b"]
    with pytest.raises(PastEnd):
        ask(capture, from_ref="E0", through_ref="E3")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"entry_ref": "E0", "entry_refs": ["E1"]},
        {"entry_ref": "E0", "from_ref": "E0", "through_ref": "E1"},
        {"from_ref": "E0"},
        {"through_ref": "E0"},
        {"entry_refs": []},
        {"entry_refs": "E0"},
        {"from_ref": "E1", "through_ref": "E0"},
        {"entry_ref": "e0"},
        {"entry_ref": "E0", "mode": "short"},
        {"entry_ref": "E0", "kind": "nobody"},
        {"entry_ref": "E0", "tool_part": "half"},
        {"entry_ref": "E0", "context": -1},
        {"entry_ref": "E0", "from_byte": -1},
        {"entry_ref": "E0", "from_byte": 99},
        {"entry_ref": "E0", "max_items": 0},
        {"entry_ref": "E0", "max_bytes": 0},
        {"entry_ref": "E0", "max_tokens": 0},
        {"entry_ref": "E0", "max_bytes": 10},
        {"entry_ref": "E0", "capture": "no token"},
    ],
)
def test_bad_requests_are_invalid_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        ask(capture_of("a", "b"), **arguments)


def test_a_request_above_a_maximum_is_clamped_with_a_note() -> None:
    capture = capture_of("a" * 100_000)
    reply = ask(capture, entry_ref="E0", max_bytes=10**6, max_items=81, max_tokens=10**6)
    assert [note["code"] for note in reply["notes"]] == ["clamped"] * 3
    assert 48_000 < len(orjson.dumps(reply)) <= 48 * 1024


def test_the_smaller_budget_wins_and_is_named() -> None:
    capture = capture_of("a" * 100_000)
    assert ask(capture, entry_ref="E0", max_bytes=8000, max_tokens=500)["stopped"] == "tokens"
    assert ask(capture, entry_ref="E0", max_bytes=2000, max_tokens=5000)["stopped"] == "bytes"
    assert ask(capture, entry_ref="E0")["entries"][0]["returned_bytes"] > 15_000


def test_a_start_inside_a_code_point_or_a_masked_value_moves_back() -> None:
    text = f"語語 {SECRET} end"
    capture = capture_of(text)
    moved = ask(capture, entry_ref="E0", from_byte=4)["entries"][0]
    assert (moved["from_byte"], moved["text"][0]) == (3, "語")
    inside = ask(capture, entry_ref="E0", from_byte=20)["entries"][0]
    assert (inside["from_byte"], inside["text"]) == (7, "[REDACTED:github_token] end")
    end = ask(capture, entry_ref="E0", from_byte=len(text.encode()))["entries"][0]
    assert (end["text"], end["returned_bytes"], end["next_byte"]) == ("", 0, None)


def test_masked_values_are_counted_and_revealed_only_on_request() -> None:
    capture = capture_of(f"{SECRET} and {SECRET}")
    entry = ask(capture, entry_ref="E0")["entries"][0]
    assert entry["redacted"] == 2
    assert entry["total_bytes"] == entry["returned_bytes"] == len(f"{SECRET} and {SECRET}")
    revealed = ask(capture, entry_ref="E0", reveal=True)["entries"][0]
    assert revealed["text"] == f"{SECRET} and {SECRET}"
    assert "redacted" not in revealed


def test_no_cut_shows_a_part_of_a_secret() -> None:
    capture = capture_of(("x" * 7 + " " + SECRET + " ") * 200)
    for max_bytes in range(1000, 1100):
        reply = ask(capture, entry_ref="E0", max_bytes=max_bytes)
        assert "ghp_" not in reply["entries"][0]["text"]


def test_hostile_names_are_bounded_and_masked() -> None:
    item = Item(0, "tool_call", "x", name=f"{SECRET} " + "語" * 5000, call_id="c" * 9000)
    items = [Item(0, "user", "go", attachments=[Attachment("m" * 500, 1)] * 90), item]
    user, call = ask(Capture.from_items(items), from_ref="E0", through_ref="E1")["entries"]
    assert call["tool_name"].startswith("[REDACTED:github_token] 語")
    assert max(len(call[name].encode()) for name in ("tool_name", "call_id", "label")) <= 203
    assert (len(user["attachments"]), user["attachments_total"]) == (20, 90)


def test_a_text_stream_holds_one_block_at_a_time() -> None:
    capture = capture_of("word " * 400_000)
    streamed = next(iterate_entries(capture, ReadRequest(entry_ref="E0")))
    pieces = list(streamed.text)
    assert "".join(pieces) == "word " * 400_000
    assert max(len(piece) for piece in pieces) < 200_000
