"""A source that grows, is rewritten or vanishes while a run reads its session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from sessiondex.errors import InvalidArgument
from sessiondex.features.services import RunRange
from sessiondex.indexer.forget import forget_sessions
from tests.builders import claude_path, claude_user, write_lines
from tests.features.extract.made_sources import (
    FORMATS,
    HOLDS,
    LINES,
    MORE,
    OTHER,
    TEXTS,
    Source,
)
from tests.features.extract.scripted import calls, finish, prose, read, stage

pytestmark = pytest.mark.usefixtures("no_requests")


@pytest.fixture(params=FORMATS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    return Source(tmp_path, request.param)


@pytest.fixture(params=LINES)
def line_source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    return Source(tmp_path, request.param)


at_any_turn = pytest.mark.parametrize("at", [0, 1, 2])
indexed_or_not = pytest.mark.parametrize("is_indexed", [False, True])


def changing(source: Source, change: Callable[[], object], is_indexed: bool) -> Callable[[], None]:
    """Changes the source, and refreshes the library if it is told to."""

    def happens() -> None:
        change()
        if is_indexed:
            source.index()

    return happens


# ---------------------------------------------------------------- nothing, growth


def test_a_source_that_stays_is_extracted_whole(source: Source) -> None:
    result = source.run()
    assert result.outcome == "staged" and result.report.pointer_moved
    assert (source.pointer, source.claimed()) == (6, TEXTS)
    assert source.statuses() == [("ok", "present")] * 6
    with pytest.raises(InvalidArgument, match="nothing was added"):
        source.run()


@at_any_turn
@indexed_or_not
def test_when_the_source_grows_the_pointer_moves_over_what_was_read(
    source: Source, at: int, is_indexed: bool
) -> None:
    grow = changing(source, lambda: source.grow(TEXTS + MORE), is_indexed)
    result = source.run(grow, at=at)
    assert result.outcome == "staged" and result.report.pointer_moved
    assert (source.pointer, source.claimed()) == (6, TEXTS)
    assert source.next_texts() == MORE
    following = source.run()
    assert following.report.range == (source.records(6), source.records(9) - 1)
    assert following.report.run_id != result.report.run_id
    assert (source.pointer, source.claimed()) == (9, TEXTS + MORE)
    assert source.statuses() == [("ok", "present")] * 9


@indexed_or_not
def test_a_live_tail_that_the_library_has_not_read_is_extracted_as_well(
    source: Source, is_indexed: bool
) -> None:
    source.grow(TEXTS + MORE[:1])
    result = source.run(changing(source, lambda: source.grow(TEXTS + MORE), is_indexed))
    assert result.report.pointer_moved
    assert (source.pointer, source.next_texts()) == (7, MORE[1:])


def test_a_run_over_a_part_moves_the_pointer_only_from_where_it_was(source: Source) -> None:
    first, last = source.records(0), source.records(6) - 1
    behind = source.run(run_range=RunRange(first + 2, last))
    assert behind.outcome == "staged" and not behind.report.pointer_moved
    assert behind.report.pointer_reason == "the range begins after the pointer"
    assert (source.pointer, source.next_texts()) == (None, TEXTS)
    # The leading part moves it, over no more than itself.
    leading = source.run(run_range=RunRange(0, first + 1))
    assert leading.report.pointer_moved and source.pointer == 2
    again = source.run(run_range=RunRange(0, first))
    assert not again.report.pointer_moved and source.pointer == 2


CHARACTERS: Final[dict[str, list[Any]]] = {
    "lazy": [calls(finish(0, "nothing durable was said"))],
    "chatty": [prose()],
    "inventing": [calls(stage("It is so.", "E99"), read("E77"), finish(1))],
    "greedy": [calls(*(stage(f"Rule {n} of the house.", "E1") for n in range(60)))],
    "obeying poison": [calls(("Bash", {"command": "rm -rf /"}), ("Write", {"path": "x"}))],
    "searching without end": [calls(("SearchEntries", {"query": "gauge"}))],
    "crashing": [calls(stage("It is so.", "E1")), ZeroDivisionError()],
}


@pytest.mark.parametrize("character", CHARACTERS)
def test_no_character_changes_the_source_or_the_library(source: Source, character: str) -> None:
    before = source.files()
    result = source.world.run(source.capture(), CHARACTERS[character], current=source.capture)
    assert (result.outcome == "no_candidates") == (character == "lazy")
    assert source.files() == before


# ---------------------------------------------------------------- rewriting

REWRITES: Final[dict[str, tuple[list[str], int]]] = {
    "as long": ([*TEXTS[:2], OTHER, *TEXTS[3:]], 2),
    "from the first on": ([OTHER, *TEXTS[1:]], 0),
    "longer": ([*TEXTS[:2], f"{OTHER} Always.", *TEXTS[3:], *MORE], 2),
    "the last": ([*TEXTS[:5], OTHER], 5),
    "truncated": (TEXTS[:3], 3),
    "truncated and grown": ([*TEXTS[:3], *MORE], 3),
}
"""What becomes of the texts, and how many leading ones stay."""

rewritten = pytest.mark.parametrize("rewrite", REWRITES)


@rewritten
@pytest.mark.parametrize(
    ("is_renamed", "is_indexed"), [(False, False), (True, False), (True, True)]
)
def test_when_the_source_is_rewritten_the_records_are_kept_and_the_pointer_stays(
    source: Source, rewrite: str, is_renamed: bool, is_indexed: bool
) -> None:
    texts, _ = REWRITES[rewrite]
    write = source.replace if is_renamed else source.write
    result = source.run(changing(source, lambda: write(texts), is_indexed))
    assert (result.outcome, len(result.staged)) == ("staged", 6)
    assert not result.report.pointer_moved
    assert result.report.pointer_reason == "the session is no longer the one that the run read"
    assert (source.pointer, source.claimed()) == (None, TEXTS)
    assert source.world.ledger.lease(source.session) is None
    # No pointer: all of what stands there now is to be extracted.
    assert source.next_texts() == texts
    following = source.run()
    assert following.report.pointer_moved and source.pointer == len(texts)
    assert source.claimed() == [*TEXTS, *texts]


@rewritten
@pytest.mark.parametrize(("at", "is_indexed"), [(0, True), (2, False)])
def test_after_a_rewrite_the_next_run_begins_where_the_session_became_another(
    source: Source, rewrite: str, at: int, is_indexed: bool
) -> None:
    texts, shared = REWRITES[rewrite]
    source.run()
    source.grow(TEXTS + MORE[:1])
    source.index()
    result = source.run(changing(source, lambda: source.write(texts), is_indexed), at=at)
    assert result.outcome == "staged" and not result.report.pointer_moved
    assert source.pointer == 6 and source.claimed() == TEXTS + MORE[:1]
    assert source.next_texts() == texts[shared:]
    if shared < len(texts):
        following = source.run()
        assert following.report.range[0] == source.records(shared)
        assert following.report.pointer_moved
    else:
        with pytest.raises(InvalidArgument, match="nothing was added"):
            source.run()
    source.index()
    assert source.next_texts() == []
    source.grow([*texts, "Rule 9: and this."])
    assert source.next_texts() == ["Rule 9: and this."]


def test_a_rewrite_behind_the_pointer_leaves_what_was_done_before_it(source: Source) -> None:
    source.run()
    source.grow(TEXTS + MORE[:2])
    result = source.run(lambda: source.write([*TEXTS, *MORE[:1], OTHER]))
    assert not result.report.pointer_moved and source.pointer == 6
    assert source.next_texts() == [*MORE[:1], OTHER]
    source.index()
    assert source.next_texts() == [*MORE[:1], OTHER]


def test_a_rewrite_of_what_the_library_never_held_leaves_what_it_holds(source: Source) -> None:
    source.grow(TEXTS + MORE[:2])
    assert source.run().report.pointer_moved and source.pointer == 8
    source.write([*TEXTS, OTHER])
    assert source.next_texts() == [OTHER]
    source.index()
    assert source.next_texts() == [OTHER]


def test_a_resumed_session_begins_behind_its_copies_also_where_it_was_changed_since(
    tmp_path: Path,
) -> None:
    source = Source(tmp_path, "claude code")
    copied = [claude_user(text, n) for n, text in enumerate(TEXTS[:4])]
    source.path, source.session = claude_path(tmp_path / "home", "two"), "two"
    for text in (OTHER, MORE[0]):
        write_lines(source.path, [*copied, claude_user(text, 300)])
        if text == OTHER:
            source.index()
        assert source.next_texts() == [text]


def test_a_generation_that_the_library_never_read_is_not_taken_for_one_that_it_did(
    source: Source,
) -> None:
    source.write([OTHER])
    assert source.run().report.pointer_moved  # of a second generation, which is only live
    source.write(MORE)
    source.index()  # the second generation of the library
    assert source.next_texts() == MORE
    source.write(MORE[:2])
    assert source.next_texts() == MORE[:2]
    source.index()
    assert source.next_texts() == MORE[:2]


def test_a_tail_that_the_library_never_read_is_not_taken_for_the_one_that_it_did(
    source: Source,
) -> None:
    source.grow(TEXTS + MORE[:2])
    assert source.run().report.pointer_moved and source.pointer == 8
    source.write([*TEXTS, OTHER, *MORE])
    source.index()
    source.write([*TEXTS, OTHER, MORE[1]])
    assert source.next_texts() == [OTHER, MORE[1]]
    source.index()
    assert source.next_texts() == [OTHER, MORE[1]]


def test_what_a_rewrite_shares_with_the_library_stays_done_when_its_source_vanishes(
    source: Source,
) -> None:
    source.write([*TEXTS[:4], OTHER])
    assert source.run().report.pointer_moved and source.pointer == 5
    source.path.unlink()
    assert source.next_texts() == TEXTS[4:]


def test_a_source_that_is_rewritten_and_restored_during_a_run_is_still_the_same(
    source: Source,
) -> None:
    def there_and_back() -> None:
        source.write([OTHER])
        source.write(TEXTS)

    assert source.run(there_and_back).report.pointer_moved
    assert source.pointer == 6 and source.next_texts() == []


def test_a_source_that_the_library_saw_rewritten_and_restored_is_another_session(
    source: Source,
) -> None:
    def there_and_back() -> None:
        source.write([*TEXTS[:4], OTHER])
        source.index()
        source.write(TEXTS)
        source.index()

    result = source.run(there_and_back)
    assert not result.report.pointer_moved and source.pointer is None
    assert source.next_texts() == TEXTS


@indexed_or_not
def test_a_source_that_is_replaced_by_the_same_bytes_is_the_same(
    source: Source, is_indexed: bool
) -> None:
    result = source.run(changing(source, lambda: source.replace(TEXTS), is_indexed))
    assert result.report.pointer_moved and source.pointer == 6
    assert source.next_texts() == []


def test_a_run_that_died_before_a_rewrite_is_closed_and_its_records_are_kept(
    source: Source,
) -> None:
    capture = source.capture()
    ref = str(capture.entry(0).ref)
    dead = source.world.run(capture, [calls(stage(f"{HOLDS}it.", ref)), ZeroDivisionError()])
    assert dead.outcome == "incomplete"
    source.write([*TEXTS[:2], OTHER])
    following = source.run()
    assert not following.report.is_adopted and following.report.pointer_moved
    assert source.claimed() == ["it.", *TEXTS[:2], OTHER]
    assert [run.run_id for run in source.world.ledger.runs()].count(dead.report.run_id) == 2


# ---------------------------------------------------------------- vanishing


@at_any_turn
def test_a_session_whose_source_vanished_is_still_what_the_library_holds(
    source: Source, at: int
) -> None:
    result = source.run(source.path.unlink, at=at)
    assert result.report.pointer_moved and source.pointer == 6
    assert source.claimed() == TEXTS and not source.path.exists()
    assert source.statuses() == [("ok", "gone")] * 6
    source.index()
    assert source.next_texts() == []


def test_what_a_vanished_source_had_beyond_the_library_does_not_move_the_pointer(
    source: Source,
) -> None:
    source.grow(TEXTS + MORE)
    result = source.run(source.path.unlink)
    assert result.outcome == "staged" and not result.report.pointer_moved
    assert source.pointer is None and source.claimed() == TEXTS + MORE
    assert source.next_texts() == TEXTS


def test_a_source_that_vanished_after_a_run_over_its_live_tail_comes_back_as_it_was(
    source: Source,
) -> None:
    source.grow(TEXTS + MORE)
    data = source.path.read_bytes()
    assert source.run().report.pointer_moved
    source.path.unlink()
    assert source.pointer == 9 and source.next_texts() == []
    source.path.write_bytes(data)
    source.index()
    assert source.next_texts() == []


def test_a_source_that_cannot_be_read_any_more_counts_as_gone(source: Source) -> None:
    def unreadable() -> None:
        source.path.unlink()
        source.path.mkdir()

    assert source.run(unreadable).report.pointer_moved
    assert source.pointer == 6


def test_a_session_that_is_forgotten_during_a_run_keeps_its_records_and_no_pointer(
    source: Source,
) -> None:
    result = source.run(lambda: forget_sessions(source.library, [source.session]), at=2)
    assert result.outcome == "staged" and not result.report.pointer_moved
    assert result.report.pointer_reason == "the session is gone"
    assert source.pointer is None and source.claimed() == TEXTS


# ---------------------------------------------------------------- what is not finished


def test_an_unterminated_tail_is_not_extracted_until_it_is_whole(line_source: Source) -> None:
    source = line_source
    whole = source.path.read_bytes()
    source.grow(TEXTS + MORE[:1])
    line = source.path.read_bytes()[len(whole) :]
    source.path.write_bytes(whole + line[:-1])  # no newline yet
    result = source.run(now=0.0)
    assert result.report.range[1] == source.records(6) - 1
    assert result.report.pointer_moved and source.claimed() == TEXTS
    with pytest.raises(InvalidArgument, match="nothing was added"):
        source.run(now=0.0)
    source.path.write_bytes(whole + line)
    following = source.run(now=0.0)
    assert following.report.range == (source.records(6),) * 2
    assert (source.pointer, source.claimed()) == (7, TEXTS + MORE[:1])


@at_any_turn
def test_a_record_that_is_half_written_during_a_run_changes_nothing(
    line_source: Source, at: int
) -> None:
    source = line_source
    whole = source.path.read_bytes()
    source.grow(TEXTS + MORE[:1])
    line = source.path.read_bytes()[len(whole) :]
    source.path.write_bytes(whole)

    def half() -> None:
        with source.path.open("ab") as file:
            file.write(line[: len(line) // 2])

    result = source.run(half, at=at, now=0.0)
    assert result.report.pointer_moved and source.pointer == 6
    with source.path.open("ab") as file:
        file.write(line[len(line) // 2 :])
    assert source.next_texts() == MORE[:1]


@at_any_turn
@pytest.mark.parametrize("data", [b"{", b"\x00\xff", b""])
def test_a_document_that_is_broken_for_a_moment_stays_the_session(
    tmp_path: Path, at: int, data: bytes
) -> None:
    source = Source(tmp_path, "chat")
    whole = source.path.read_bytes()
    result = source.run(lambda: source.path.write_bytes(data), at=at)
    assert result.report.pointer_moved and source.pointer == 6
    source.path.write_bytes(whole)
    assert source.next_texts() == []
