"""Identity tokens across rewrites that no library counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiondex import Library, SessionCapture, forget_sessions
from sessiondex.errors import Stale
from sessiondex.model import EntryRef
from tests.builders import (
    claude_assistant,
    claude_path,
    claude_thinking,
    claude_user,
    conversation,
    index,
    write_lines,
)

REF = EntryRef(1)


def history(count: int, *, word: str = "spindle") -> list[dict[str, object]]:
    """Records with and without entries."""
    kinds = (claude_user, claude_assistant, claude_thinking)
    return [kinds[n % 3](f"{word} {n}", n) for n in range(count)]


def test_a_token_holds_while_a_session_grows_wherever_it_was_captured(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    library = Library.create(tmp_path / "library")
    path = claude_path(home, "one")
    tokens: list[str] = []
    for count in range(2, 14):
        write_lines(path, history(count))
        if count % 4 == 0:
            index(library, home)
        if count >= 4:
            tokens.append(library.capture("one").token)
        tokens.append(SessionCapture.from_path(path).token)
    for capture in (library.capture("one"), SessionCapture.from_path(path)):
        for token in tokens:
            capture.admit(token, [REF])


def test_a_token_is_stale_after_a_rewrite_that_nobody_counted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = write_lines(claude_path(home, "one"), conversation(3))
    library = Library.create(tmp_path / "library")
    index(library, home)
    token = library.capture("one").token
    for rewritten in (conversation(3, word="gear"), conversation(5, word="gear"), history(1)):
        forget_sessions(library, ["one"])
        write_lines(path, rewritten)
        index(library, home, again=True)
        capture = library.capture("one")
        assert capture.generation == 1
        for each in (capture, SessionCapture.from_path(path)):
            with pytest.raises(Stale):
                each.admit(token, [EntryRef(0)])
            each.admit(token)  # without refs there is nothing that could be another entry


def test_a_token_of_a_hosts_own_list_is_stale_when_the_list_was_rewritten() -> None:
    items = [{"kind": "user", "text": f"item {n}"} for n in range(6)]
    token = SessionCapture.from_items(items[:4]).token
    SessionCapture.from_items(items).admit(token, [REF])
    items[2] = {"kind": "user", "text": "another"}
    for count in (3, 4, 6):
        with pytest.raises(Stale):
            SessionCapture.from_items(items[:count]).admit(token, [REF])
