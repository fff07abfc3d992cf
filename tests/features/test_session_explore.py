"""`builtin:session-explore` as a model meets it: three tools over one immutable capture."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.features import (
    CAPTURE,
    CLOCK,
    RUN_RANGE,
    Clock,
    Registry,
    RunRange,
    Services,
    SessionExplore,
)
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.limits import DEFAULT_REPLY, PAGE, QUERY_BYTES, READ_BYTES, READ_ENTRIES
from sessiondex.model import EntryRef, Item, Record
from tests import builders
from tests.builders import claude_path, claude_user, conversation, index, write_lines
from tests.features.calls import Caller, arguments_of, likely_arguments_of
from tests.features.marked_sessions import HIDDEN, RECORDS, assert_shows_nothing_forbidden
from tests.query.made_sessions import SECRET, capture_of

TOOLS = {tool.name: tool for tool in SessionExplore.descriptor.tools}


def explore(capture: Capture, **services: Any) -> Caller:
    keys = {"run_range": RUN_RANGE, "clock": CLOCK}
    given = {keys[name]: service for name, service in services.items()}
    return Caller([SessionExplore()], {CAPTURE: capture, **given})


def at(day: int, *, hour: int = 0) -> int:
    return int(datetime(2026, 5, day, hour, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def work() -> Caller:
    """A small session with everything that can be filtered."""
    return explore(
        Capture.from_items(
            [
                Item(0, "user", "Find the cargo bug", timestamp=at(1)),
                Item(0, "reasoning", HIDDEN),
                Item(0, "tool_call", "Bash\ncommand: cargo test", call_id="c1", name="Bash",
                     timestamp=at(2)),
                Item(0, "tool_result", "cargo: 1 failed", call_id="c1", error=True, timestamp=at(2),
                     summary="one test failed"),
                Item(0, "tool_call", "Read\nfile: a.rs", call_id="c2", name="Read"),
                Item(0, "tool_result", "fn main", call_id="c2", error=False),
                Item(0, "system", "cargo hook ran", sub_kind="hook"),
                Item(0, "user", "<harness says cargo>", flags=1),
                Item(0, "assistant", "The CARGO bug is fixed", timestamp=at(3)),
            ]
        )
    )  # fmt: skip


def refs(reply: dict[str, Any]) -> list[int]:
    return [EntryRef.parse(hit["entry_ref"]).record for hit in reply["hits"]]


# ---------------------------------------------------------------- what it is


def test_it_needs_a_capture_and_nothing_else() -> None:
    descriptor = SessionExplore.descriptor
    assert descriptor.id == "builtin:session-explore"
    assert [key.name for key in descriptor.requires] == ["capture"]
    assert [key.name for key in descriptor.optional] == ["run_range", "clock"]
    assert all(tool.annotations.read_only for tool in descriptor.tools)


def test_nothing_that_happens_later_changes_what_it_answers(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "s"), conversation(30))
    library = Library.create(tmp_path / "library")
    index(library, tmp_path)
    caller = explore(library.capture("s"))

    def answers() -> list[bytes]:
        replies = [
            caller("ShowOverview"),
            caller("SearchEntries", query="spindle", limit=7),
            caller("SearchEntries"),
            caller("ReadEntry", from_="E0", through="E00000149"),
        ]
        for reply in replies:
            reply.pop("stats", None)
        return [orjson.dumps(reply) for reply in replies]

    before = answers()
    write_lines(path, conversation(5, start=150), append=True)
    assert answers() == before
    index(library, tmp_path)
    assert answers() == before
    write_lines(path, conversation(3, word="bobbin"))
    index(library, tmp_path)
    assert answers() == before


def test_what_is_not_committed_is_not_shown(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "s"), conversation(1))
    tail = orjson.dumps(claude_user("not committed yet", 6)).decode()
    path.write_text(path.read_text() + tail)
    library = Library.create(tmp_path / "library")
    clock = builders.Clock(path.stat().st_mtime + 1)
    index(library, tmp_path, clock=clock)
    capture = library.capture("s", now=clock.now)
    assert capture.committed_count < capture.entry_count
    caller = explore(capture)
    assert caller("SearchEntries", query="not committed")["hits"] == []
    assert caller("SearchEntries", flags="provisional")["hits"] == []
    assert caller.refused("ReadEntry", entry_ref="E5")["kind"] == "past_end"


# ---------------------------------------------------------------- ShowOverview


def test_an_overview_shows_anchors_and_what_stands_between() -> None:
    caller = explore(capture_of("ask", "do", "done", "more", "end", kinds="uioua"))
    reply = caller("ShowOverview", stride=1)
    assert [anchor["entry_ref"] for anchor in reply["anchors"]] == [
        "E00000000", "E00000003", "E00000004",
    ]  # fmt: skip
    assert reply["anchors"][0] == {
        "entry_ref": "E00000000", "entry_range": [0, 0], "kind": "user", "label": "user message",
        "turn": 1, "timestamp": None, "text": "ask", "total_bytes": 3, "intervening_entries": 2,
        "intervening": {"user": 0, "assistant": 0, "system": 0, "tool": 2},
    }  # fmt: skip
    assert reply["capture"].startswith("c1.")


def test_an_overview_goes_on_with_its_cursor_and_zooms() -> None:
    caller = explore(capture_of(*(f"text {n}" for n in range(200))))
    first = caller("ShowOverview", limit=5)
    assert [EntryRef.parse(a["entry_ref"]).record for a in first["anchors"]] == [0, 8, 16, 24, 32]
    second = caller("ShowOverview", limit=5, cursor=first["next_cursor"])
    assert second["anchors"][0]["entry_ref"] == "E00000040"
    zoom = caller("ShowOverview", from_="E8", through="E16", capture=first["capture"])
    assert zoom["returned"] == 9
    assert caller.refused("ShowOverview", from_="E9", through="E8")["kind"] == "invalid_argument"
    assert caller.refused("ShowOverview", from_="E900")["kind"] == "past_end"


# ---------------------------------------------------------------- SearchEntries


def test_a_search_answers_in_hits_and_so_does_a_listing(work: Caller) -> None:
    found = work("SearchEntries", query="cargo")
    assert refs(found) == [0, 2, 3, 6, 7, 8]
    assert found["hits"][0]["snippet"]["matches"] == [
        {"start": 9, "end": 14, "byte_start": 9, "byte_end": 14}
    ]
    listed = work("SearchEntries")
    assert listed["total"] == listed["returned"] == 8
    assert listed["hits"][0]["text"] == "Find the cargo bug"
    assert "snippet" not in listed["hits"][0]
    assert work("SearchEntries", query="  ")["hits"] == listed["hits"]
    assert work("SearchEntries", query="nowhere")["hits"] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"kind": "user"}, [0, 7]),
        ({"kind": ["assistant", "system"]}, [6, 8]),
        ({"kind": "agent"}, [8]),
        ({"kind": ["user"], "flags": "synthetic"}, [7]),
        ({"tool_part": "input"}, [2, 4]),
        ({"tool_part": "both"}, [2, 3, 4, 5]),
        ({"tool_name": "Bash"}, [2, 3]),
        ({"tool_name": ["Read", "Bash"], "tool_part": "output"}, [3, 5]),
        ({"call_id": "c2"}, [4, 5]),
        ({"error": True}, [3]),
        ({"error": False}, [5]),
        ({"flags": ["synthetic"]}, [7]),
        ({"entry_refs": "E3"}, [3]),
        ({"entry_refs": ["E8", "E00000000.0"]}, [0, 8]),
        ({"from": "E3", "through": "E5"}, [3, 4, 5]),
        ({"from": "E6"}, [6, 7, 8]),
        ({"through": "E2"}, [0, 2]),
        ({"since": "2026-05-02"}, [2, 3, 8]),
        ({"until": "2026-05-02"}, [0, 2, 3]),
        ({"since": "2026-05-02T00:00:00Z", "until": "2026-05-02T01:00"}, [2, 3]),
        ({"order": "newest", "since": "2026-05-01"}, [8, 2, 3, 0]),
        ({"query": "CARGO", "match": "literal", "kind": "assistant"}, [8]),
        ({"query": "cargo bug", "match": "ranked", "order": "source"}, [0, 8]),
        ({"query": "(?i)^the cargo", "match": "regex"}, [8]),
        ({"query": "cargo", "limit": 2}, [0, 2]),
    ],
)
def test_every_argument_of_a_search_counts(
    work: Caller, arguments: dict[str, Any], expected: list[int]
) -> None:
    reply = work.reply("SearchEntries", arguments).value
    assert refs(dict(reply)) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"kind": "human"}, "argument 'kind'"),
        ({"kind": "user", "tool_part": "input"}, "tool_part"),
        ({"kind": "user", "tool_name": "Bash"}, "tool_name"),
        ({"from": "E3", "through": "E2"}, "lies after"),
        ({"from": "e3"}, "malformed entry ref"),
        ({"limit": 0}, "limit is 0"),
        ({"cursor": "nonsense"}, "malformed cursor"),
        ({"query": "x" * (QUERY_BYTES.maximum + 1)}, "bytes"),
        ({"query": "(", "match": "regex"}, "("),
        ({"since": "soon"}, "'soon' is no time"),
        ({"since": "2026-05-03", "until": "2026-05-02"}, "since lies after until"),
        ({"capture": "x"}, "capture"),
        ({"flags": "fancy"}, "argument 'flags'"),
        ({"query": 3}, "argument 'query' is not as expected: a valid string"),
        ({"reveal": True}, "unknown argument 'reveal'"),
        ({"entry_refs": ["E1"] * 1001}, "at most 1000"),
    ],
)
def test_what_a_search_cannot_serve_it_names(
    work: Caller, arguments: dict[str, Any], said: str
) -> None:
    error = work.reply("SearchEntries", arguments).value["error"]
    assert error["class"] == error["kind"] == "invalid_argument"
    assert said in error["message"]


def test_pages_visit_every_match_once() -> None:
    caller = explore(capture_of(*(f"match {n}" for n in range(45))))
    seen: list[int] = []
    cursor = None
    while True:
        page = caller("SearchEntries", query="match", limit=20, cursor=cursor)
        seen += refs(page)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == list(range(45))
    foreign = caller("SearchEntries", query="match", limit=20)["next_cursor"]
    error = caller.refused("SearchEntries", query="other", cursor=foreign)
    assert "another query" in error["message"]


def test_an_age_means_the_same_on_every_page() -> None:
    now = [datetime(2026, 5, 3, tzinfo=UTC)]
    items = [Item(0, "user", "x", timestamp=at(1, hour=n)) for n in range(24)]
    caller = explore(Capture.from_items(items), clock=Clock(lambda: now[0]))
    asked = {"since": "2d", "limit": 10}
    first = caller("SearchEntries", **asked)
    now[0] += timedelta(hours=9)
    second = caller("SearchEntries", cursor=first["next_cursor"], **asked)
    third = caller("SearchEntries", cursor=second["next_cursor"], **asked)
    assert refs(first) + refs(second) + refs(third) == list(range(24))
    assert refs(caller("SearchEntries", since="2d", limit=30)) == list(range(9, 24))
    forged = first["next_cursor"].rpartition("~")[0] + "~99999999999999"
    assert caller.refused("SearchEntries", cursor=forged, **asked)["kind"] == "invalid_argument"


# ---------------------------------------------------------------- ReadEntry


def test_reading_takes_one_entry_several_or_a_range(work: Caller) -> None:
    one = work("ReadEntry", entry_ref="E3")
    assert [entry["text"] for entry in one["entries"]] == ["cargo: 1 failed"]
    several = work("ReadEntry", entry_refs=["E3", "E0", "E3"])
    assert [entry["entry_range"] for entry in several["entries"]] == [[3, 3], [0, 0]]
    ranged = work("ReadEntry", from_="E1", through="E4", kind="tool", tool_part="input")
    assert [entry["entry_range"][0] for entry in ranged["entries"]] == [2, 4]
    no_tools = work("ReadEntry", from_="E0", through="E8", include_tools=False)
    assert [entry["entry_range"][0] for entry in no_tools["entries"]] == [0, 6, 7, 8]
    around = work("ReadEntry", entry_ref="E4", context=1)
    assert [entry.get("context", False) for entry in around["entries"]] == [True, False, True]
    compact = work("ReadEntry", entry_ref="E3", mode="compact")["entries"][0]
    assert compact["left_out"] == {"part": "result", "bytes": 15}
    assert (compact["text"], compact["summary"]) == ("", "one test failed")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"entry_ref": "E0", "entry_refs": ["E1"]},
        {"from": "E0"},
        {"entry_ref": "E0", "from": "E0", "through": "E1"},
        {"entry_refs": []},
        {"entry_ref": "E0", "max_bytes": 10},
        {"entry_ref": "E0", "from_byte": 900},
        {"entry_ref": "E0", "context": -1},
        {"entry_ref": "E0", "mode": "brief"},
        {"entry_refs": "E0"},
    ],
)
def test_a_reading_that_cannot_be_served_is_an_invalid_argument(
    work: Caller, arguments: dict[str, Any]
) -> None:
    assert work.reply("ReadEntry", arguments).value["error"]["kind"] == "invalid_argument"


def test_unknown_hidden_and_later_entries_are_told_apart(work: Caller) -> None:
    assert work.refused("ReadEntry", entry_ref="E0.1")["kind"] == "not_found"
    assert work.refused("ReadEntry", entry_ref="E1")["kind"] == "hidden_entry"
    assert work.refused("ReadEntry", entry_ref="E9")["kind"] == "past_end"


def test_a_long_entry_is_read_on_where_it_was_cut() -> None:
    text = "".join(f"line {n} é\n" for n in range(4_000))
    caller = explore(capture_of(text))
    whole = ""
    at: int | None = 0
    while at is not None:
        reply = caller("ReadEntry", entry_ref="E0", from_byte=at, max_tokens=2_000)
        assert len(orjson.dumps(reply)) <= 8_000
        whole += reply["entries"][0]["text"]
        at = reply["entries"][0]["next_byte"]
    assert whole == text


# ---------------------------------------------------------------- maxima


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ShowOverview", {"limit": PAGE.maximum + 1}),
        ("SearchEntries", {"limit": PAGE.maximum + 1}),
        ("SearchEntries", {"query": "e", "limit": 10**30}),
        ("ReadEntry", {"entry_ref": "E0", "max_items": READ_ENTRIES.maximum + 1}),
        ("ReadEntry", {"entry_ref": "E0", "max_bytes": READ_BYTES.maximum + 1}),
        ("ReadEntry", {"entry_ref": "E0", "max_tokens": 10**9}),
    ],
)
def test_a_request_above_a_maximum_is_served_with_the_maximum(
    work: Caller, tool: str, arguments: dict[str, Any]
) -> None:
    reply = work.reply(tool, arguments)
    assert not reply.is_error
    assert [note["code"] for note in reply.value["notes"]] == ["clamped"]


@pytest.mark.parametrize("text", ["\x01" * 2_000, "é" * 2_000, '"' * 2_000, "\U0001f980" * 900])
def test_a_default_reply_stays_under_ten_thousand_tokens(text: str) -> None:
    names = [f"{text[:150]}{n}" for n in range(60)]
    items = [
        item
        for name in names
        for item in (
            Item(0, "user", text, attachments=[]),
            Item(0, "tool_call", text, call_id=name, name=name),
            Item(0, "tool_result", text, call_id=name, error=True),
        )
    ]
    caller = explore(Capture.from_items(items))
    for tool, arguments in (
        ("ShowOverview", {}),
        ("ShowOverview", {"stride": 1}),
        ("SearchEntries", {}),
        ("SearchEntries", {"query": text[:1]}),
        ("SearchEntries", {"query": text[:1], "kind": "tool"}),
        ("ReadEntry", {"from": "E0", "through": "E100"}),
    ):
        reply = caller.reply(tool, arguments)
        assert not reply.is_error
        assert len(reply.data) <= DEFAULT_REPLY.maximum < 40_000


# ---------------------------------------------------------------- the range of a run


def test_a_run_sees_the_records_of_its_range_and_no_others() -> None:
    texts = [f"text {n}" for n in range(40)]
    caller = explore(capture_of(*texts), run_range=RunRange(10, 29))
    assert refs(caller("SearchEntries", query="text", limit=100)) == list(range(10, 30))
    assert caller("SearchEntries")["total"] == 20
    overview = caller("ShowOverview")
    assert [a["entry_ref"] for a in overview["anchors"]] == [
        "E00000010", "E00000018", "E00000026", "E00000029",
    ]  # fmt: skip
    assert (overview["before"], overview["after"]) == (0, 0)
    around = caller("ReadEntry", entry_ref="E10", context=5)
    assert [e["entry_range"][0] for e in around["entries"]] == list(range(10, 16))
    around = caller("ReadEntry", from_="E28", through="E29", context=2)
    assert [e["entry_range"][0] for e in around["entries"]] == [26, 27, 28, 29]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ShowOverview", {"from": "E9"}),
        ("ShowOverview", {"through": "E30"}),
        ("SearchEntries", {"from": "E9"}),
        ("SearchEntries", {"query": "text", "through": "E30"}),
        ("SearchEntries", {"entry_refs": ["E10", "E30"]}),
        ("ReadEntry", {"entry_ref": "E9"}),
        ("ReadEntry", {"entry_refs": ["E10", "E30"]}),
        ("ReadEntry", {"from": "E9", "through": "E12"}),
        ("ReadEntry", {"entry_ref": "E99"}),
    ],
)
def test_a_ref_outside_the_range_is_refused_by_name(tool: str, arguments: dict[str, Any]) -> None:
    texts = [f"text {n}" for n in range(40)]
    caller = explore(capture_of(*texts), run_range=RunRange(10, 29))
    error = caller.reply(tool, arguments).value["error"]
    assert error["kind"] == "not_found"
    assert "lies outside the range of this run" in error["message"]
    assert error["hint"] == "the run covers E00000010 through E00000029"


@pytest.mark.parametrize("run_range", [RunRange(0, 2), RunRange(1, 0), RunRange(-1, 1)])
def test_a_range_that_does_not_lie_in_the_capture_is_not_installed(run_range: RunRange) -> None:
    services = Services({CAPTURE: capture_of("a", "b"), RUN_RANGE: run_range})
    report = Registry().install([SessionExplore()], services).features[0]
    assert not report.installed
    assert "does not lie in the capture of 2 records" in report.diagnostics[0]


@settings(max_examples=80)
@given(data=st.data(), records=RECORDS)
def test_no_call_shows_anything_outside_the_range(
    data: st.DataObject, records: list[Record]
) -> None:
    capture = Capture.from_items(records)
    first = data.draw(st.integers(0, len(records) - 1))
    last = data.draw(st.integers(first, len(records) - 1))
    caller = explore(capture, run_range=RunRange(first, last))
    for name, tool in TOOLS.items():
        reply = caller.reply(name, data.draw(likely_arguments_of(tool))).value
        for shown in (*reply.get("anchors", ()), *reply.get("hits", ()), *reply.get("entries", ())):
            assert first <= shown["entry_range"][0] <= last
        context = reply.get("task_context")
        assert context is None or first <= context["entry_range"][0] <= last
        if reply.get("next_ref"):
            assert first <= EntryRef.parse(reply["next_ref"]).record <= last


# ---------------------------------------------------------------- any JSON, and what is never shown


@settings(max_examples=120)
@given(data=st.data())
def test_no_json_makes_a_tool_fail(data: st.DataObject) -> None:
    caller = explore(Capture.from_items(data.draw(RECORDS)))
    for name, tool in TOOLS.items():
        caller.reply(name, data.draw(arguments_of(tool)))


@settings(max_examples=120)
@given(data=st.data(), records=RECORDS)
def test_no_reply_shows_reasoning_prompts_or_secrets(
    data: st.DataObject, records: list[Record]
) -> None:
    caller = explore(Capture.from_items(records))
    queries = st.sampled_from([SECRET, SECRET[:12], SECRET[6:], HIDDEN, "ghp_", "KEY", "plain"])
    for name, tool in TOOLS.items():
        arguments = data.draw(likely_arguments_of(tool))
        if name == "SearchEntries":
            arguments |= data.draw(st.fixed_dictionaries({}, optional={"query": queries}))
        if name == "ReadEntry":
            arguments["max_bytes"] = data.draw(st.integers(600, 4_000))
        assert_shows_nothing_forbidden(caller.reply(name, arguments).data)


def test_a_hit_that_lies_wholly_inside_a_masked_value_is_dropped() -> None:
    caller = explore(capture_of(f"the key {SECRET} is here"))
    assert caller("SearchEntries", query=SECRET[5:15])["hits"] == []
    assert caller("SearchEntries", query=SECRET)["hits"] == []
    assert refs(caller("SearchEntries", query="the key")) == [0]
