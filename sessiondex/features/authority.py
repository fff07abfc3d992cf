"""Whose word a candidate is: the host's judgement from the cited entries, never the model's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from sessiondex.indexer.capture import Capture
from sessiondex.model import COMPACTION_SUMMARY, COPIED, SIDECHAIN, SYNTHETIC

if TYPE_CHECKING:
    from sessiondex.model import Entry

Authority = Literal["user", "derived"]

_NOT_A_PERSON: Final = SYNTHETIC | SIDECHAIN | COMPACTION_SUMMARY


def authority(capture: Capture, entries: Iterable[Entry]) -> Authority:
    """`user` if a real user entry is among them, else `derived`. A copy counts if its owner does.

    Real is what a person wrote: not the harness, not an agent that prompts its sub-agent, not a
    summary.
    """
    return "user" if any(_is_of_user(capture, entry) for entry in entries) else "derived"


def _is_of_user(capture: Capture, entry: Entry) -> bool:
    if entry.kind != "user":
        return False
    if not capture.flags(entry) & COPIED:
        return _is_real(capture, entry)
    holders = [(capture, entry), *_other_holders(capture, entry)]
    owners = [each for each in holders if not each[0].flags(each[1]) & COPIED]
    # Where all say that they replayed it, its owner is one of them: all must be real then.
    return all(_is_real(*each) for each in owners or holders)


def _is_real(capture: Capture, entry: Entry) -> bool:
    is_person = entry.kind == "user" and not capture.flags(entry) & _NOT_A_PERSON
    return is_person and not capture.sub_agent


def _other_holders(capture: Capture, entry: Entry) -> list[tuple[Capture, Entry]]:
    """The entry as the other current sessions of the library hold it."""
    found: list[tuple[Capture, Entry]] = []
    if not entry.identity:
        return found
    held = capture.held
    catalog = held.view.catalog
    for ord, ordinal in catalog.holders(entry.identity):
        row = catalog.session(ord)
        if row is None or not row.current or row.session == capture.session:
            continue
        other = Capture(row, held.view, mark=held.mark, searcher=None)
        if ordinal < other.entry_count:
            found.append((other, other.entry(ordinal)))
    return found
