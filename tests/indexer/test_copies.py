"""Forks and resumed sessions: who owns what several sessions hold, in whatever order they came."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import RefreshOptions, index_library
from sessiondex.model import COPIED
from tests.builders import Clock, claude_assistant, claude_path, conversation, index, write_lines


def copied(capture: Capture) -> list[int]:
    return [e.ordinal for e in capture.entries(0, capture.entry_count) if capture.flags(e) & COPIED]


def fork(home: Path, name: str, shared: int, start: int) -> Path:
    """A session that replays the first records of `one` and goes on at a minute of its own."""
    return write_lines(
        claude_path(home, name),
        conversation(4)[: shared * 5] + conversation(2, start=start, word=name),
    )


@pytest.mark.parametrize("order", list(permutations(["one", "two", "three"])))
def test_the_owner_does_not_depend_on_the_order_of_indexing(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    paths = {
        "one": write_lines(claude_path(home, "one"), conversation(4)),
        "two": fork(home, "two", 2, 100),
        "three": fork(home, "three", 1, 200),
    }
    library = Library.in_memory()
    for name in order:
        index_library(library, [paths[name]], options=RefreshOptions(clock=Clock()))
    assert copied(library.capture("one")) == []
    assert copied(library.capture("two")) == list(range(8))
    assert copied(library.capture("three")) == list(range(4))


def test_a_session_that_is_wholly_contained_in_another_keeps_what_it_began(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    write_lines(claude_path(home, "one"), conversation(2))
    library = Library.in_memory()
    index(library, home)
    write_lines(claude_path(home, "more"), conversation(2) + conversation(1, start=50))
    index(library, home)
    assert copied(library.capture("one")) == []
    assert copied(library.capture("more")) == list(range(8))


def test_equal_text_is_no_copy(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_lines(claude_path(home, "one"), [claude_assistant("yes, of course", 1, uuid="a")])
    write_lines(claude_path(home, "two"), [claude_assistant("yes, of course", 1, uuid="b")])
    library = Library.in_memory()
    index(library, home)
    assert copied(library.capture("one")) == copied(library.capture("two")) == []


def test_a_capture_knows_only_the_copies_of_its_moment(tmp_path: Path) -> None:
    home = tmp_path / "home"
    library = Library.create(tmp_path / "lib")
    fork(home, "two", 2, 100)
    index(library, home)
    early = library.capture("two")
    write_lines(claude_path(home, "one"), conversation(4))
    index(library, home)
    assert copied(early) == []
    late = library.capture("two")
    assert copied(late) == list(range(8))
    assert early.anchor_count - late.anchor_count == 4
    ordinals = late.anchor_ordinals(0, late.anchor_count)
    assert ordinals == [
        e.ordinal for e in late.entries(0, 99) if e.is_anchor and not late.flags(e) & COPIED
    ]
    assert [late.anchor_index(n) for n in ordinals] == list(range(len(ordinals)))


def test_forgetting_the_owner_gives_its_items_to_the_next_holder(tmp_path: Path) -> None:
    from sessiondex.indexer.forget import forget_sessions

    home = tmp_path / "home"
    library = Library.create(tmp_path / "lib")
    write_lines(claude_path(home, "one"), conversation(4))
    fork(home, "two", 2, 100)
    fork(home, "three", 2, 200)
    index(library, home)
    forget_sessions(library, ["one"])
    assert copied(library.capture("two")) == []
    assert copied(library.capture("three")) == list(range(8))
    assert library.capture("two").text(library.capture("two").entry(0)).startswith(b"please")
