"""Names on the command line: SESSION, REF, and both in one word.

What is printed as SESSION:REF is as short as is unique, and is taken back wherever SESSION REF is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from sessiondex.cli.texts import visible
from sessiondex.errors import UsageError
from sessiondex.model import EntryRef

if TYPE_CHECKING:
    from sessiondex.indexer.snapshot import LibrarySnapshot

LEAST_LENGTH: Final = 4
"""A shorter beginning of an id is unique in a small library only, and for a short time."""

_LOOKS_LIKE_REF = re.compile(r"[Ee][-+ ]?[0-9][0-9.]*\Z", re.ASCII)


class Place(NamedTuple):
    """A session as it was named, and refs in it."""

    session: str
    refs: list[str]


def split_word(word: str) -> tuple[str, str]:
    """SESSION and REF of one word; REF is '' where the word is a session alone."""
    session, colon, ref = word.rpartition(":")
    if colon and session and _LOOKS_LIKE_REF.match(ref):
        return session, ref
    return word, ""


def place_of(words: Sequence[str]) -> Place:
    """The session and the refs that words name: SESSION REF… or SESSION:REF…

    Raises:
        UsageError: no ref, or refs of several sessions.
    """
    session, first = split_word(words[0])
    refs = [first] if first else []
    for word in words[1:]:
        other, ref = split_word(word)
        if ref and other != session:
            raise UsageError(
                f"{words[0]} and {word} are of different sessions",
                hint="name one session at a time",
            )
        refs.append(ref or word)
    if not refs:
        raise UsageError(
            f"no entry of {session} was named",
            hint="give a REF that a search, a listing or an overview printed, like E12",
        )
    return Place(session, refs)


def ref_in(word: str | None) -> str | None:
    """The ref of an option's value, which may be given as SESSION:REF."""
    if word is None:
        return None
    session, ref = split_word(word)
    return ref or session


def short_ref(ref: str) -> str:
    """A ref without the zeros that only align it."""
    record, block = EntryRef.parse(ref)
    return f"E{record}.{block}" if block else f"E{record}"


class ShortNames:
    """The shortest beginnings of session ids that name one session in a library."""

    def __init__(self, snapshot: LibrarySnapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[str, str] = {}

    def of(self, session: str) -> str:
        """The shortest name of a session that the library resolves to it; an id with control
        characters is only shown."""
        if session not in self._known:
            self._known[session] = visible(self._shortest(session))
        return self._known[session]

    def place(self, session: str, ref: str) -> str:
        """SESSION:REF in one word."""
        return f"{self.of(session)}:{short_ref(ref)}"

    def _shortest(self, session: str) -> str:
        """As much of the id as no other begins with, but for sub-agents below it."""
        # The + keeps SQLite from looking through all that are current instead of the neighbours.
        where = "+current=1 AND substr(session,1,?2)<>?3"
        neighbours = self._snapshot.catalog.rows(
            f"SELECT (SELECT session FROM sessions WHERE session<?1 AND {where}"
            f" ORDER BY session DESC LIMIT 1), (SELECT session FROM sessions WHERE session>?1"
            f" AND {where} ORDER BY session LIMIT 1)",
            (session, len(session) + 1, f"{session}/"),
        )[0]
        length = max((_shared(session, other) + 1 for other in neighbours if other), default=1)
        return session[: max(length, LEAST_LENGTH)]


def _shared(one: str, other: str) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
