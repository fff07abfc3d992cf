"""Search and listing: what a page promises, what is refused, and what a library adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from sessiondex.errors import InvalidArgument, NotFound, PastEnd, Stale
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.indexer.snapshot import LibrarySnapshot
from sessiondex.model import Item
from sessiondex.query import search as search_module
from sessiondex.query.search import SearchRequest, iterate, search
from sessiondex.query.session_list import SessionFilter, list_sessions
from tests.builders import claude_path, claude_result, claude_user, conversation, index, write_lines
from tests.query.made_sessions import SECRET, capture_of


def ask(place: Capture | LibrarySnapshot, **arguments: Any) -> dict[str, Any]:
    return search(place, SearchRequest.from_arguments(arguments))


def refs(page: dict[str, Any]) -> list[str]:
    return [f"{hit['session']}:{hit['entry_ref']}" for hit in page["hits"]]


def follow(place: Any, **arguments: Any) -> list[str]:
    """Refs of all pages; `place` gives a new state for every page."""
    found: list[str] = []
    cursor = None
    while True:
        page = ask(place(), **arguments, cursor=cursor)
        found += refs(page)
        cursor = page["next_cursor"]
        if cursor is None:
            return found


def codes(page: dict[str, Any]) -> list[str]:
    return [note["code"] for note in page["notes"]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(params=["disk", "memory"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Library:
    return Library.create(tmp_path / "lib") if request.param == "disk" else Library.in_memory()


# ---------------------------------------------------------------- one session


def test_a_hit_has_the_fields_of_the_contract() -> None:
    capture = Capture.from_items(
        [
            Item(0, "user", "go", timestamp=1_700_000_000_000),
            Item(0, "tool_call", "Bash\ncommand: cargo test", call_id="c", name="Bash"),
        ]
    )
    page = ask(capture, query="CARGO")
    assert page == {
        "hits": [
            {
                "session": "session",
                "entry_ref": "E00000001",
                "entry_range": [1, 1],
                "kind": "tool",
                "tool_part": "input",
                "tool_name": "Bash",
                "call_id": "c",
                "error": None,
                "timestamp": None,
                "label": "tool input: Bash",
                "flags": [],
                "snippet": {
                    "text": "Bash\ncommand: cargo test",
                    "matches": [{"start": 14, "end": 19, "byte_start": 14, "byte_end": 19}],
                    "more_matches": 0,
                },
            }
        ],
        "session": "session",
        "returned": 1,
        "has_more": False,
        "next_cursor": None,
        "total": 1,
        "capture": capture.token,
        "stats": page["stats"],
        "notes": [],
    }
    assert set(page["stats"]) == {"entries_considered", "batches_read", "bytes_read"}


def test_without_a_query_each_entry_is_one_line() -> None:
    page = ask(capture_of("first line\n\n  second", "x" * 500))
    assert [hit["text"] for hit in page["hits"]] == ["first line second", "x" * 160]
    assert all("snippet" not in hit for hit in page["hits"])


def test_a_blank_query_is_a_listing() -> None:
    assert ask(capture_of("a", "b"), query=" \n")["returned"] == 2


def test_the_total_of_a_listing_by_kind_is_free() -> None:
    page = ask(capture_of(*"abcdefgh"), kind="user", limit=1)
    assert (page["returned"], page["total"]) == (1, 4)
    assert ask(capture_of(*"aaaa"), query="a", limit=1)["total_at_least"] == 2


def test_a_limit_above_the_maximum_is_clamped_with_a_note() -> None:
    page = ask(capture_of(*["word"] * 150), query="word", limit=500)
    assert (page["returned"], codes(page)) == (100, ["clamped"])


def test_a_page_stops_at_its_bytes_and_goes_on_behind() -> None:
    items = [
        Item(
            0, "tool_call", '"\x01' * 400 + f"needle {number}", call_id='"' * 190, name="\x02" * 190
        )
        for number in range(100)
    ]
    capture = Capture.from_items(items)
    page = ask(capture, query="needle", limit=100)
    assert page["stopped"] == "bytes"
    assert 0 < page["returned"] < 100
    assert len(orjson.dumps(page)) <= 64 * 1024
    assert len(follow(lambda: capture, query="needle", limit=100)) == 100


def test_a_page_stops_at_its_work_and_goes_on_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = capture_of(*["nothing here →"] * 300, "at last ⇒")
    monkeypatch.setattr(search_module, "WORK_BYTES", 2_000)
    page = ask(capture, query="⇒")
    assert (page["returned"], page["stopped"], page["has_more"]) == (0, "work", True)
    assert page["stats"]["entries_considered"] < 100
    assert follow(lambda: capture, query="⇒") == ["session:E00000300"]


def test_matches_are_marked_around_the_first_and_the_rest_is_counted() -> None:
    text = "é" * 400 + "needle " * 30 + "z" * 400
    snippet = ask(capture_of(text), query="needle")["hits"][0]["snippet"]
    assert len(snippet["text"].encode()) <= 300
    assert len(snippet["matches"]) == 8
    assert snippet["more_matches"] == 22
    first = snippet["matches"][0]
    assert snippet["text"][first["start"] : first["end"]] == "needle"
    assert text.encode()[first["byte_start"] : first["byte_end"]] == b"needle"


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("strasse", "alte Straße", "Straße"),
        ("ＣＡＲＧＯ", "my Cargo", "Cargo"),
        ("f", "a ﬁg", "ﬁ"),
        ('say "hi"', 'they say "hi" now', 'say "hi"'),
        ("a::b", "call A::B()", "A::B"),
    ],
)
def test_a_match_is_marked_in_the_original_text(query: str, text: str, marked: str) -> None:
    snippet = ask(capture_of(text), query=query)["hits"][0]["snippet"]
    match = snippet["matches"][0]
    assert snippet["text"][match["start"] : match["end"]] == marked
    assert text.encode()[match["byte_start"] : match["byte_end"]].decode() == marked


def test_a_match_in_a_very_long_text_is_found_and_marked() -> None:
    text = "词" * 700_000 + "needle" + "字" * 700_000
    snippet = ask(capture_of(text), query="字" * 3)["hits"][0]["snippet"]
    assert snippet["matches"][0]["byte_start"] == 2_100_006
    assert snippet["more_matches"] + len(snippet["matches"]) == 233_333


def test_regex_matches_the_original_and_marks_every_match() -> None:
    capture = capture_of("Foo foo\nfoo1 bar", "bar foo")
    page = ask(capture, query="foo[0-9]?", match="regex")
    assert refs(page) == ["session:E00000000", "session:E00000001"]
    matches = page["hits"][0]["snippet"]["matches"]
    assert [(match["start"], match["end"]) for match in matches] == [(4, 7), (8, 12)]
    assert refs(ask(capture, query="^bar", match="regex")) == ["session:E00000001"]
    assert refs(ask(capture, query="(?m)^foo1", match="regex")) == ["session:E00000000"]


def test_relevance_of_a_literal_is_its_number_of_matches() -> None:
    capture = capture_of("ant", "ant ant", "bee", "ant ant")
    page = ask(capture, query="ant", order="relevance")
    assert [hit["entry_ref"][-1] for hit in page["hits"]] == ["1", "3", "0"]


def test_ranked_relaxes_in_named_steps() -> None:
    capture = capture_of("the configuration is here", "nothing else")
    for query, note in [
        ("configuration", []),
        ("nfigurat", ["relaxed"]),
        ("confguration", ["typo"]),
    ]:
        page = ask(capture, query=query, match="ranked")
        assert refs(page) == ["session:E00000000"]
        assert codes(page) == note
        marked = page["hits"][0]["snippet"]["matches"][0]
        assert marked["start"] < 20
    assert ask(capture, query="zebra", match="ranked")["hits"] == []


def test_the_relaxation_goes_on_over_pages_with_its_note() -> None:
    capture = capture_of(*["configuration"] * 5)
    page = ask(capture, query="nfig", match="ranked", limit=2, order="relevance")
    again = ask(
        capture, query="nfig", match="ranked", limit=2, order="relevance",
        cursor=page["next_cursor"],
    )  # fmt: skip
    assert codes(page) == codes(again) == ["relaxed"]
    assert len({*refs(page), *refs(again)}) == 4


def test_what_does_not_parse_is_searched_as_words_with_a_note() -> None:
    capture = capture_of("call a::b now", "kind of other")
    page = ask(capture, query="a::b", match="ranked")
    assert (refs(page), codes(page)) == (["session:E00000000"], ["parsed_as_words"])
    page = ask(capture, query="kind:other", match="ranked")
    assert (refs(page), codes(page)) == ([], ["parsed_as_words"])


def test_fields_of_a_ranked_query_filter() -> None:
    capture = Capture.from_items(
        [
            Item(0, "user", "cargo"),
            Item(0, "tool_call", "Bash\ncargo", name="Bash", call_id="1"),
            Item(0, "tool_result", "cargo", name="Bash", call_id="1", error=True),
            Item(0, "tool_call", "Read\ncargo", name="Read", call_id="2"),
        ]
    )

    def found(query: str) -> list[int]:
        return [hit["entry_range"][0] for hit in ask(capture, query=query, match="ranked")["hits"]]

    assert found("cargo tool:Bash") == [1, 2]
    assert found("cargo -tool:Bash") == [0, 3]
    assert found("cargo kind:tool part:input") == [1, 3]
    assert found("cargo error:true") == [2]
    assert found("tool:Read") == [3]
    assert found("cargo project:none") == []


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "x" * 4097},
        {"limit": 0},
        {"limit": "3"},
        {"limit": True},
        {"kind": "robot"},
        {"kind": 3},
        {"match": "fuzzy"},
        {"order": "random"},
        {"flags": "shiny"},
        {"error": "yes"},
        {"tool_part": "middle"},
        {"kind": "user", "tool_part": "input"},
        {"kind": ["user", "system"], "tool_name": "Bash"},
        {"from": "E3", "through": "E2"},
        {"from": "e3"},
        {"entry_refs": ["E1", "x"]},
        {"since": 5, "until": 4},
        {"cursor": "nonsense"},
        {"cursor": "AAAA"},
        {"query": "(", "match": "regex"},
        {"unknown": 1},
        {"capture": "c9.x"},
    ],
)
def test_what_cannot_be_served_is_an_invalid_argument(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        ask(capture_of("a", "b", "c", "d"), **arguments)


def test_the_argument_that_does_not_go_with_a_kind_is_the_one_that_was_given() -> None:
    with pytest.raises(InvalidArgument, match=r"^tool_name 'Bash' does not go with kind user"):
        ask(capture_of("a"), kind="user", tool_name="Bash")
    with pytest.raises(InvalidArgument, match=r"^tool_part 'both' does not go with kind user"):
        ask(capture_of("a"), kind="user", tool_name="Bash", tool_part="both")


def test_a_pattern_is_refused_with_the_reason_of_re2() -> None:
    with pytest.raises(InvalidArgument, match="missing \\)"):
        ask(capture_of("a"), query="(", match="regex")


def test_a_query_of_four_kibibytes_is_served() -> None:
    assert ask(capture_of("x" * 5000), query="x" * 4096)["returned"] == 1


def test_a_range_past_the_end_and_an_unknown_ref_are_told() -> None:
    with pytest.raises(PastEnd):
        ask(capture_of("a"), **{"from": "E7"})
    with pytest.raises(NotFound):
        ask(capture_of("a"), entry_refs="E0.3")


def test_a_cursor_is_bound_to_query_filters_and_session() -> None:
    capture = capture_of(*["word"] * 9)
    cursor = ask(capture, query="word", limit=2)["next_cursor"]
    assert ask(capture, query="word", limit=5, cursor=cursor)["returned"] == 5
    for changed in ({"query": "wor"}, {"kind": "user"}, {"order": "newest"}):
        with pytest.raises(InvalidArgument, match="another query"):
            ask(capture, **{"query": "word", "cursor": cursor, **changed})
    other = Capture.from_items([Item(0, "user", "word")] * 9, session_id="other")
    with pytest.raises(InvalidArgument, match="another query"):
        ask(other, query="word", cursor=cursor)
    with pytest.raises(InvalidArgument, match="malformed"):
        ask(capture, query="word", cursor=cursor[:-2] + "xx")


def test_iterating_goes_past_every_page() -> None:
    capture = capture_of(*["word"] * 450)
    assert len(list(iterate(capture, SearchRequest(query="word")))) == 450
    assert len(list(iterate(capture, SearchRequest(query="word", limit=3)))) == 3


# ---------------------------------------------------------------- secrets


def test_secrets_are_masked_in_snippets_and_listings() -> None:
    capture = capture_of(f"the key is {SECRET} ok")
    for page in (ask(capture, query="key"), ask(capture)):
        assert SECRET[:12] not in orjson.dumps(page).decode()


def test_a_title_that_was_cut_inside_a_secret_shows_nothing_of_it(
    library: Library, home: Path
) -> None:
    write_lines(claude_path(home, "one"), [claude_user("word " * 22 + SECRET, 1)])
    index(library, home)
    snapshot = library.snapshot()
    (row,) = snapshot.rows()
    assert row.title.endswith(SECRET[:10]) and SECRET not in row.title
    (shown,) = list_sessions(snapshot, SessionFilter())["sessions"]
    assert shown["title"].split() == ["word"] * 22


def test_a_hit_inside_a_secret_is_dropped_for_a_model_only() -> None:
    capture = capture_of(f"the key is {SECRET} ok", f"{SECRET[4:16]} in the open")
    request = SearchRequest(query=SECRET[4:16])
    assert refs(search(capture, request)) == ["session:E00000000", "session:E00000001"]
    page = search(capture, request, for_model=True)
    assert refs(page) == ["session:E00000001"]
    assert (page["total"], page["has_more"]) == (1, False)
    shown = search(capture, request, reveal=True)
    assert SECRET in shown["hits"][0]["snippet"]["text"]


# ---------------------------------------------------------------- growth


@pytest.mark.parametrize("order", ["source", "newest"])
@pytest.mark.parametrize(
    "arguments", [{"query": "spindle"}, {}, {"query": "sp.ndle", "match": "regex"}]
)
def test_pages_visit_the_first_pages_matches_once_while_the_session_grows(
    library: Library, home: Path, order: str, arguments: dict[str, Any]
) -> None:
    path = write_lines(claude_path(home, "one"), conversation(6))
    index(library, home)
    expected = [
        f"{hit['session']}:{hit['entry_ref']}"
        for hit in iterate(
            library.capture("one"), SearchRequest.from_arguments({"order": order, **arguments})
        )
    ]
    grown = 0

    def growing() -> Capture:
        nonlocal grown
        if grown:
            write_lines(path, conversation(1, start=100 + grown * 5), append=True)
            if grown % 2:
                index(library, home)
        grown += 1
        return library.capture("one")

    assert follow(growing, order=order, limit=4, **arguments) == expected
    assert grown > 3


@pytest.mark.parametrize("order", ["source", "newest"])
def test_pages_of_a_library_visit_the_first_pages_matches_once_while_it_grows(
    library: Library, home: Path, order: str
) -> None:
    for start, name in ((0, "one"), (200, "two")):
        write_lines(claude_path(home, name), conversation(4, start=start, word=name))
    index(library, home)
    arguments = {"query": "number", "match": "literal", "order": order}
    request = SearchRequest.from_arguments(arguments)
    expected = [
        f"{hit['session']}:{hit['entry_ref']}" for hit in iterate(library.snapshot(), request)
    ]
    grown = 0

    def growing() -> LibrarySnapshot:
        nonlocal grown
        if grown:
            write_lines(claude_path(home, f"more{grown}"), conversation(1, start=500 + grown * 5))
            write_lines(
                claude_path(home, "one"), conversation(1, start=400 + grown * 5), append=True
            )
            index(library, home)
        grown += 1
        return library.snapshot()

    assert follow(growing, limit=3, **arguments) == expected
    assert (len(expected), grown > 3) == (16, True)


def test_a_cursor_of_a_rewritten_session_is_stale(library: Library, home: Path) -> None:
    path = write_lines(claude_path(home, "one"), conversation(3))
    index(library, home)
    cursor = ask(library.capture("one"), query="spindle", limit=1)["next_cursor"]
    write_lines(path, conversation(3, start=50))
    index(library, home)
    with pytest.raises(Stale):
        ask(library.capture("one"), query="spindle", limit=1, cursor=cursor)


def test_the_live_tail_is_searched_in_every_mode(library: Library, home: Path) -> None:
    path = write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    write_lines(path, conversation(1, start=70, word="lantern"), append=True)
    capture = library.capture("one")
    assert capture.tail_first < capture.entry_count
    for match in ("literal", "regex", "ranked"):
        for order in ("source", "newest", "relevance"):
            page = ask(capture, query="lantern", match=match, order=order)
            found = sorted(hit["entry_ref"] for hit in page["hits"])
            assert found == ["E00000010", "E00000012", "E00000013", "E00000014"] or (
                match == "ranked" and found == ["E00000010", "E00000014"]
            )
    both = ask(capture, query="number OR lantern_70", match="ranked", order="newest", limit=100)
    assert {hit["entry_ref"] for hit in both["hits"]} >= {"E00000000", "E00000010"}


# ---------------------------------------------------------------- a library


def test_a_library_is_searched_ranked_and_a_session_of_it_literally(
    library: Library, home: Path
) -> None:
    for start, name in ((0, "one"), (100, "two")):
        write_lines(claude_path(home, name), conversation(1, start=start, word=name))
    index(library, home)
    snapshot = library.snapshot()
    page = ask(snapshot, query="turns freely")
    assert {hit["session"] for hit in page["hits"]} == {"one", "two"}
    assert page["refreshed_at"] is not None
    assert refs(ask(snapshot, query="urns fre", session="two")) == ["two:E00000004"]
    assert refs(ask(snapshot, query="urns fre", match="literal")) == [
        "two:E00000004", "one:E00000004",
    ]  # fmt: skip


def test_library_filters_name_sessions_agents_projects_branches_and_models(
    library: Library, home: Path
) -> None:
    write_lines(claude_path(home, "one"), conversation(1))
    other = [
        {**record, "cwd": "/home/ada/mill", "gitBranch": "dev", "uuid": f"o{n}"}
        for n, record in enumerate(conversation(1, word="wheel"))
    ]
    write_lines(claude_path(home, "two"), other)
    index(library, home)
    snapshot = library.snapshot()

    def sessions(**arguments: Any) -> set[str]:
        return {hit["session"] for hit in ask(snapshot, query="number", **arguments)["hits"]}

    assert sessions() == {"one", "two"}
    assert sessions(project="/home/ada/mill") == sessions(project="mill") == {"two"}
    assert sessions(project="/home/ada") == {"one", "two"}
    assert sessions(project="ill") == set()
    assert sessions(branch="dev") == {"two"}
    assert sessions(agent="claude-code") == {"one", "two"}
    assert sessions(agent="codex") == set()
    assert sessions(model="claude-opus-4-5") == {"one", "two"}
    assert sessions(session=["one", "two"]) == {"one", "two"}
    with pytest.raises(NotFound):
        sessions(session="three")
    with pytest.raises(InvalidArgument):
        ask(snapshot, query="number", entry_refs=["E0"])


def test_a_snapshot_lists_and_finds_the_same_after_rewrites_and_new_sessions(
    library: Library, home: Path
) -> None:
    path = write_lines(claude_path(home, "one"), conversation(1))
    write_lines(claude_path(home, "two"), conversation(1, start=100))
    index(library, home)
    write_lines(path, conversation(2, start=50))
    index(library, home)  # the first generation leaves the index with the next commit
    snapshot = library.snapshot()
    asked: list[dict[str, Any]] = [
        {"query": "spindle number"},
        {"query": "pindle number", "match": "literal", "session": ["one", "two"]},
        {"query": r"spindle_\d+", "match": "regex", "project": "lathe"},
        {"order": "newest"},
        {"copies": True},
    ]

    def seen(snapshot: LibrarySnapshot) -> list[Any]:
        rows = [(row.session, row.generation) for row in snapshot.rows()]
        listed = [row["session"] for row in list_sessions(snapshot, SessionFilter())["sessions"]]
        hits = [ask(snapshot, **each, limit=100)["hits"] for each in asked]
        assert all(hits)
        return [rows, listed, hits]

    before = seen(snapshot)
    assert before[0] == [("two", 1), ("one", 2)]
    write_lines(path, conversation(1, start=50, word="wheel"))
    write_lines(claude_path(home, "three"), conversation(2, start=50))  # holds what one held
    index(library, home)
    assert seen(snapshot) == before
    write_lines(path, conversation(1, start=70))
    index(library, home)
    assert seen(snapshot) == before
    assert seen(library.snapshot())[0] == [("two", 1), ("one", 4), ("three", 1)]


def test_copies_are_collapsed_onto_their_owner(library: Library, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(2))
    for name, start in (("two", 100), ("three", 200)):
        shared = [{**record, "cwd": f"/home/ada/{name}"} for record in conversation(2)[:5]]
        write_lines(claude_path(home, name), shared + conversation(1, start=start, word=name))
    index(library, home)
    snapshot = library.snapshot()
    page = ask(snapshot, query="spindle_0", match="literal", order="source")
    assert refs(page) == ["one:E00000002", "one:E00000003"]
    assert page["hits"][0]["also_in"] == ["three", "two"]
    assert page["hits"][0]["also_in_total"] == 2
    everywhere = ask(snapshot, query="spindle_0", match="literal", copies=True)
    assert everywhere["returned"] == 6
    # The owner lies outside the filter, so a copy inside it stands for all.
    inside = ask(snapshot, query="spindle_0", match="literal", project="/home/ada/two")
    assert {hit["session"] for hit in inside["hits"]} == {"two"}
    assert {hit["session"] for hit in ask(snapshot, query="spindle_0", session="two")["hits"]} == {
        "two"
    }


def test_newest_puts_entries_without_a_time_last(library: Library, home: Path) -> None:
    records = [claude_user("word", 3), claude_user("word", 9), claude_user("word", 5)]
    del records[1]["timestamp"]
    write_lines(claude_path(home, "one"), records)
    index(library, home)
    page = ask(library.snapshot(), query="word", order="newest")
    assert [hit["entry_ref"][-1] for hit in page["hits"]] == ["2", "0", "1"]


def test_memory_and_disk_answer_the_same(tmp_path: Path, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(5))
    write_lines(claude_path(home, "two"), conversation(3, start=60, word="wheel"))
    write_lines(
        claude_path(home, "three"), [claude_user("go", 300), claude_result("x" * 9000, "c", 301)]
    )
    disk, memory = Library.create(tmp_path / "lib"), Library.in_memory()
    for library in (disk, memory):
        index(library, home)
    for arguments in (
        {"query": "number"}, {"query": "spin*"}, {"query": "heel_6", "match": "literal"}, {},
        {"query": "x{9}", "match": "regex"}, {"query": "spindel"},
    ):  # fmt: skip
        first, second = (ask(library.snapshot(), **arguments) for library in (disk, memory))
        assert first["hits"] == second["hits"] != []
