"""`builtin:library` as a model meets it: across sessions, and without its own echo."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.features import (
    CALLING_SESSION,
    CLOCK,
    LIBRARY,
    CallingSession,
    Clock,
    LibraryTools,
)
from sessiondex.indexer.library import Library
from sessiondex.limits import DEFAULT_REPLY, PAGE, REPLY_BYTES
from sessiondex.model import EntryRef
from tests.builders import (
    claude_assistant,
    claude_call,
    claude_path,
    claude_result,
    claude_thinking,
    claude_user,
    conversation,
    index,
    write_lines,
)
from tests.features.calls import Caller, arguments_of, likely_arguments_of
from tests.features.marked_sessions import HIDDEN, TEXTS, assert_shows_nothing_forbidden
from tests.query.made_sessions import SECRET

TOOLS = {tool.name: tool for tool in LibraryTools.descriptor.tools}
NOW = datetime(2026, 5, 5, tzinfo=UTC)


def tools(library: Library, *, calling: str = "", now: datetime = NOW) -> Caller:
    services: dict[Any, object] = {LIBRARY: library, CLOCK: Clock(lambda: now)}
    if calling:
        services[CALLING_SESSION] = CallingSession(calling)
    return Caller([LibraryTools()], services)


def places(reply: dict[str, Any]) -> list[str]:
    return [f"{hit['session']}:{EntryRef.parse(hit['entry_ref']).record}" for hit in reply["hits"]]


def own_call(word: str, n: int) -> list[dict[str, Any]]:
    """A call of sessiondex from inside a session, and what it answered."""
    return [
        claude_call("mcp__sessiondex__SearchLibrary", {"query": word}, f"own-{n}", n),
        claude_result(f'{{"hits": ["{word}"]}}', f"own-{n}", n + 1),
    ]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def library(home: Path, tmp_path: Path) -> Library:
    """Two sessions about a spindle, of which one looked for it with sessiondex."""
    write_lines(claude_path(home, "first"), conversation(2))
    write_lines(
        claude_path(home, "second"),
        [
            claude_user("what of the spindle", 100, gitBranch="topic", cwd="/home/ada/mill"),
            *own_call("spindle", 101),
            claude_assistant("spindle found", 103, gitBranch="topic"),
        ],
    )
    made = Library.create(tmp_path / "library")
    index(made, home)
    return made


# ---------------------------------------------------------------- what every reply says


def test_every_reply_says_when_the_library_was_last_refreshed(library: Library) -> None:
    caller = tools(library)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("SearchLibrary", {"query": "spindle"}),
        ("SearchLibrary", {"query": "spindle", "session": "first"}),
        ("SearchLibrary", {}),
        ("ListSessions", {}),
        ("ShowLibraryOverview", {"session": "first"}),
        ("ReadLibraryEntry", {"session": "first", "entry_ref": "E0"}),
    ]
    for name, arguments in calls:
        assert caller.reply(name, arguments).value["refreshed_at"] == "2033-05-18T03:33:20.000Z"
    never = tools(Library.in_memory())
    assert never("ListSessions")["refreshed_at"] is None
    assert never("SearchLibrary", query="x")["refreshed_at"] is None


def test_a_session_is_an_id_of_an_earlier_reply_and_never_a_path(
    library: Library, home: Path, tmp_path: Path
) -> None:
    caller = tools(library)
    names = ["firs", "f", "", str(claude_path(home, "first")), "first.jsonl", "/etc/passwd",
             str(tmp_path / "library"), "first/", "\ud800", "%", "x" * 10_000]  # fmt: skip
    for name, more in (
        ("SearchLibrary", {"query": "x"}),
        ("SearchLibrary", {}),
        ("ShowLibraryOverview", {}),
        ("ReadLibraryEntry", {"entry_ref": "E0"}),
    ):
        for session in names:
            error = caller.refused(name, session=session, **more)
            assert error["kind"] == "not_found"
            assert error["message"].startswith("no session ")
    error = caller.refused("SearchLibrary", query="x", session=["first", "gone"])
    assert error["message"] == "no session 'gone'"


def test_no_reply_says_where_a_session_lies(library: Library, tmp_path: Path) -> None:
    caller = tools(library)
    for name, arguments in (
        ("SearchLibrary", {"query": "spindle"}),
        ("ListSessions", {}),
        ("ShowLibraryOverview", {"session": "first"}),
        ("ReadLibraryEntry", {"session": "first", "from": "E0", "through": "E4"}),
    ):
        assert str(tmp_path).encode() not in caller.reply(name, dict(arguments)).data


# ---------------------------------------------------------------- SearchLibrary


def test_a_library_is_searched_by_rank_and_one_session_literally(library: Library) -> None:
    caller = tools(library)
    ranked = caller("SearchLibrary", query="number 5 spindle")
    assert {place.partition(":")[0] for place in places(ranked)} == {"first"}
    assert ranked["capture"].startswith("l1.")
    literal = caller("SearchLibrary", query="spindle number", session="first")
    assert places(literal) == ["first:0", "first:4", "first:5", "first:9"]
    assert literal["capture"].startswith("c1.")
    both = caller("SearchLibrary", query="spindle", match="literal", session=["first", "second"])
    assert places(both)[0] == "second:3"


@pytest.mark.parametrize(
    ("arguments", "sessions"),
    [
        ({}, {"first", "second"}),
        ({"agent": "claude-code"}, {"first", "second"}),
        ({"agent": ["codex", "yoi"]}, set()),
        ({"project": "/home/ada/mill"}, {"second"}),
        ({"project": ["lathe"]}, {"first"}),
        ({"branch": "topic"}, {"second"}),
        ({"model": "claude-opus-4-5"}, {"first", "second"}),
        ({"model": "other"}, set()),
        ({"since": "2026-05-04T01:00:00Z"}, {"second"}),
        ({"until": "2026-05-04T01:00:00Z"}, {"first"}),
        ({"since": "22h"}, set()),
        ({"kind": "user", "session": ["first"]}, {"first"}),
    ],
)
def test_every_filter_of_a_library_search_counts(
    library: Library, arguments: dict[str, Any], sessions: set[str]
) -> None:
    caller = tools(library, now=NOW)
    for query in ({"query": "spindle"}, {}):
        reply = caller.reply("SearchLibrary", {**query, **arguments, "limit": 100})
        assert {hit["session"] for hit in reply.value["hits"]} == sessions


def test_refs_go_with_one_session_only(library: Library) -> None:
    caller = tools(library)
    assert places(caller("SearchLibrary", session="first", from_="E5")) == [
        "first:5", "first:7", "first:8", "first:9",
    ]  # fmt: skip
    for arguments in ({"from": "E1"}, {"entry_refs": "E1", "session": ["first", "second"]}):
        error = caller.reply("SearchLibrary", arguments).value["error"]
        assert error["kind"] == "invalid_argument"
        assert "one session" in error["hint"]


def test_calls_of_sessiondex_itself_are_left_out_and_counted(library: Library) -> None:
    caller = tools(library)
    for session in ({}, {"session": "second"}):
        asked = {"query": "spindle", "branch": None, "match": "literal", **session}
        reply = caller("SearchLibrary", **asked, limit=100)
        assert not {"second:1", "second:2"} & set(places(reply))
        assert reply["left_out"] == {"own_output": 2}
        more = caller("SearchLibrary", **asked, limit=100, include_own_output=True)
        assert {"second:1", "second:2"} < set(places(more))
        assert "left_out" not in more
    asked_for = caller("SearchLibrary", query="spindle", flags="own_output")
    assert set(places(asked_for)) == {"second:1", "second:2"}
    listing = caller("SearchLibrary", session="second")
    assert places(listing) == ["second:0", "second:3"]
    assert listing["left_out"] == {"own_output": 2}


def test_the_calling_session_is_left_out_and_counted(library: Library) -> None:
    caller = tools(library, calling="second")
    reply = caller("SearchLibrary", query="spindle", limit=100)
    assert {hit["session"] for hit in reply["hits"]} == {"first"}
    assert reply["left_out"] == {"own_output": 2, "calling_session": 2}
    more = caller("SearchLibrary", query="spindle", limit=100, include_calling_session=True)
    assert {hit["session"] for hit in more["hits"]} == {"first", "second"}
    named = caller("SearchLibrary", query="spindle", session="second")
    assert places(named) == ["second:0", "second:3"]
    assert named["left_out"] == {"own_output": 2}


def test_a_page_has_no_cursor_when_only_what_is_left_out_follows(library: Library) -> None:
    caller = tools(library, calling="second")
    reply = caller("SearchLibrary", match="literal", query="spindle number", order="source")
    again = caller(
        "SearchLibrary", match="literal", query="spindle number", order="source", limit=4
    )
    assert places(reply) == places(again)
    assert (again["has_more"], again["next_cursor"], again["total"]) == (False, None, 4)


def test_pages_of_a_library_visit_every_hit_once(home: Path, tmp_path: Path) -> None:
    for number in range(6):
        talk = conversation(2, start=20 * number)
        write_lines(claude_path(home, f"s{number}"), talk + own_call("spindle", 500 + number * 2))
    library = Library.create(tmp_path / "library")
    index(library, home)
    caller = tools(library, calling="s3")
    for order in ("source", "newest", "relevance"):
        asked = {"query": "spindle", "order": order, "since": "3d"}
        whole = places(caller("SearchLibrary", **asked, limit=100))
        seen: list[str] = []
        cursor = None
        while True:
            page = caller("SearchLibrary", **asked, limit=7, cursor=cursor)
            seen += places(page)
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert seen == whole
        assert len(whole) == len(set(whole)) == 5 * 8


def test_copies_are_collapsed_and_one_outside_the_calling_session_stands_for_all(
    home: Path, tmp_path: Path
) -> None:
    write_lines(claude_path(home, "one"), conversation(2))
    write_lines(claude_path(home, "two"), conversation(2) + conversation(1, start=50))
    library = Library.create(tmp_path / "library")
    index(library, home)
    query = {"query": "check the spindle number 5", "match": "literal"}
    alone = tools(library)("SearchLibrary", **query)
    hits = {hit["session"]: hit for hit in alone["hits"]}
    assert set(hits) == {"one", "two"}
    assert hits["one"]["also_in"] == ["two"]
    both = tools(library)("SearchLibrary", **query, copies=True, limit=1)
    assert both["returned"] == 1
    inside = tools(library, calling="one")("SearchLibrary", **query)
    assert {hit["session"] for hit in inside["hits"]} == {"two"}


# ---------------------------------------------------------------- ListSessions


def test_sessions_are_listed_newest_first(library: Library) -> None:
    reply = tools(library)("ListSessions")
    assert [each["session"] for each in reply["sessions"]] == ["second", "first"]
    assert reply["sessions"][1] == {
        "session": "first", "agent": "claude-code", "project": "/home/ada/lathe", "branch": "main",
        "model": "claude-opus-4-5", "title": "please check the spindle number 0",
        "started": "2026-05-04T00:00:00.000Z", "ended": "2026-05-04T00:09:00.000Z", "turns": 2,
        "entries": {"user": 2, "assistant": 2, "system": 0, "tool": 4}, "parent": None,
        "sub_agent": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sessions"),
    [
        ({"words": "SPINDLE what"}, ["second"]),
        ({"agent": "codex"}, []),
        ({"project": "mill"}, ["second"]),
        ({"branch": ["main"]}, ["first"]),
        ({"model": "claude-opus-4-5"}, ["second", "first"]),
        ({"since": "2026-05-04T01:00:00Z"}, ["second"]),
        ({"until": "2026-05-04T01:00:00Z"}, ["first"]),
        ({"since": "30h"}, ["second", "first"]),
        ({"limit": 1}, ["second"]),
    ],
)
def test_every_filter_of_a_list_counts(
    library: Library, arguments: dict[str, Any], sessions: list[str]
) -> None:
    reply = tools(library).reply("ListSessions", arguments).value
    assert [each["session"] for each in reply["sessions"]] == sessions


def test_the_calling_session_is_not_listed_but_counted(library: Library) -> None:
    caller = tools(library, calling="second")
    reply = caller("ListSessions")
    assert [each["session"] for each in reply["sessions"]] == ["first"]
    assert reply["left_out"] == {"calling_session": 1}
    assert caller("ListSessions", include_calling_session=True)["returned"] == 2


def test_pages_of_sessions_keep_their_bound_and_visit_each_once(home: Path, tmp_path: Path) -> None:
    wide = "\x01é" * 400
    for number in range(130):
        record = claude_user(f"{wide}{number}", number, cwd=f"/{wide}", gitBranch=wide)
        write_lines(claude_path(home, f"s{number}"), [record])
    library = Library.create(tmp_path / "library")
    index(library, home)
    now = [NOW]
    caller = Caller([LibraryTools()], {LIBRARY: library, CLOCK: Clock(lambda: now[0])})
    assert len(caller.reply("ListSessions", {}).data) <= DEFAULT_REPLY.maximum < 40_000
    seen: list[str] = []
    cursor = None
    while True:
        page = caller("ListSessions", since="9d", limit=500, cursor=cursor)
        assert page["notes"][0]["code"] == "clamped"
        assert page["has_more"] == (page["next_cursor"] is not None)
        assert page["returned"] == PAGE.maximum or page.get("stopped") or not page["has_more"]
        seen += [each["session"] for each in page["sessions"]]
        cursor = page["next_cursor"]
        now[0] += timedelta(hours=1)
        if cursor is None:
            break
    assert seen == [f"s{number}" for number in reversed(range(130))]
    error = caller.refused("ListSessions", cursor="x")
    assert error["kind"] == "invalid_argument"


# ---------------------------------------------------------------- overview and reading


def test_one_session_is_overviewed_and_read(library: Library) -> None:
    caller = tools(library)
    overview = caller("ShowLibraryOverview", session="first", stride=1)
    assert [EntryRef.parse(a["entry_ref"]).record for a in overview["anchors"]] == [0, 4, 5, 9]
    read = caller("ReadLibraryEntry", session="first", from_="E2", through="E3", mode="compact")
    assert [entry["left_out"]["part"] for entry in read["entries"]] == ["arguments", "result"]
    assert caller.refused("ReadLibraryEntry", session="first", entry_ref="E1")["kind"] == (
        "hidden_entry"
    )
    small = caller.reply(
        "ReadLibraryEntry", {"session": "first", "entry_ref": "E0", "max_bytes": 700}
    )
    assert len(small.data) <= 700


def test_the_calling_session_can_be_read_when_it_is_named(library: Library) -> None:
    caller = tools(library, calling="second")
    assert caller("ReadLibraryEntry", session="second", entry_ref="E2")["entries"]
    assert caller("ShowLibraryOverview", session="second")["anchors"]


def test_what_a_session_has_beyond_the_library_is_shown_and_nothing_is_written(
    library: Library, home: Path
) -> None:
    assert library.path is not None
    caller = tools(Library.open(library.path, read_only=True))
    files = {path: path.stat().st_mtime_ns for path in library.path.rglob("*")}
    write_lines(claude_path(home, "first"), [claude_user("brand new", 200)], append=True)
    with library.writing():
        found = caller("SearchLibrary", query="brand new", session="first")
        assert places(found) == ["first:10"]
        assert caller("ReadLibraryEntry", session="first", entry_ref="E10")["entries"]
        assert caller("SearchLibrary", query='"brand new"')["hits"] == []
        caller("ShowLibraryOverview", session="first")
        caller("ListSessions")
    kept = {
        path: stamp
        for path, stamp in files.items()
        if path.is_file() and path.name != "writer.lock"
    }
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_ref_of_a_session_that_was_rewritten_is_stale(library: Library, home: Path) -> None:
    caller = tools(library)
    token = caller("ShowLibraryOverview", session="first")["capture"]
    write_lines(claude_path(home, "first"), conversation(3, word="bobbin"))
    asked = {"session": "first", "entry_ref": "E4", "capture": token}
    assert caller.refused("ReadLibraryEntry", **asked)["kind"] == "stale"
    index(library, home)
    assert caller.refused("ReadLibraryEntry", **asked)["kind"] == "stale"
    fresh = caller("ShowLibraryOverview", session="first")["capture"]
    assert caller("ReadLibraryEntry", **{**asked, "capture": fresh})["entries"]


# ---------------------------------------------------------------- bounds, any JSON, secrets


def _marked(home: Path, texts: list[str]) -> None:
    records: list[dict[str, Any]] = []
    for n, text in enumerate(texts):
        records += [
            claude_user(text, 10 * n, cwd=f"/home/{SECRET}", gitBranch=SECRET),
            claude_thinking(HIDDEN, 10 * n + 1),
            claude_call("Bash", {"command": text}, f"call-{n}", 10 * n + 2),
            claude_result(text, f"call-{n}", 10 * n + 3),
            claude_assistant(text, 10 * n + 4),
        ]
    for name in ("one", "two"):
        write_lines(claude_path(home, name), records)


@settings(max_examples=25)
@given(data=st.data(), texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_no_reply_shows_reasoning_or_secrets(
    data: st.DataObject, texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    _marked(home, texts)
    library = Library.in_memory()
    index(library, home)
    caller = tools(library)
    queries = st.sampled_from([SECRET, SECRET[:12], HIDDEN, "ghp", "KEY", "plain words", None])
    for name, tool in TOOLS.items():
        for _ in range(4):
            arguments = data.draw(likely_arguments_of(tool))
            if "session" in tool.input_schema()["properties"]:
                arguments["session"] = data.draw(st.sampled_from(["one", "two"]))
            if name == "SearchLibrary":
                arguments["query"] = data.draw(queries)
                if data.draw(st.booleans()):
                    del arguments["session"]
            assert_shows_nothing_forbidden(caller.reply(name, arguments).data)


@settings(max_examples=100)
@given(data=st.data())
def test_no_json_makes_a_tool_fail(data: st.DataObject) -> None:
    for name, tool in TOOLS.items():
        arguments = data.draw(arguments_of(tool))
        if isinstance(arguments, dict) and data.draw(st.booleans()):
            arguments = arguments | {"session": "one"}
        _any_json()(name, arguments)


_KEPT: list[Caller] = []


def _any_json() -> Any:
    """One library for all examples: the calls change nothing."""
    if not _KEPT:
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:
            _marked(Path(folder), ["plain words", f"x {SECRET}"])
            library = Library.in_memory()
            index(library, Path(folder))
        _KEPT.append(tools(library, calling="two"))
    return _KEPT[0].reply


def test_a_default_reply_stays_under_ten_thousand_tokens(home: Path, tmp_path: Path) -> None:
    text = "\x01 needle é" * 300
    talk = [
        record
        for n in range(40)
        for record in (
            claude_user(text, 10 * n),
            claude_call(text[:150], {"command": text}, f"{text[:150]}{n}", 10 * n + 2),
            claude_result(text, f"{text[:150]}{n}", 10 * n + 3),
        )
    ]
    for number in range(25):
        write_lines(claude_path(home, f"{number}-{'long' * 20}"), talk[: 120 - number])
    library = Library.create(tmp_path / "library")
    index(library, home)
    caller = tools(library)
    session = f"0-{'long' * 20}"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("SearchLibrary", {"query": "needle"}),
        ("SearchLibrary", {"query": "needle", "kind": "tool"}),
        ("SearchLibrary", {"query": "needle", "copies": True}),
        ("SearchLibrary", {}),
        ("SearchLibrary", {"session": session}),
        ("ListSessions", {}),
        ("ShowLibraryOverview", {"session": session}),
        ("ReadLibraryEntry", {"session": session, "from": "E0", "through": "E100"}),
    ]
    for name, arguments in calls:
        reply = caller.reply(name, arguments)
        assert not reply.is_error, reply.value
        assert len(reply.data) <= DEFAULT_REPLY.maximum < 40_000
        bounded = (
            {"max_items": 80, "max_bytes": 10**6} if name.startswith("Read") else {"limit": 100}
        )
        most = caller.reply(name, arguments | bounded)
        assert not most.is_error
        assert len(most.data) <= REPLY_BYTES.maximum
        assert orjson.loads(most.data)["refreshed_at"]
