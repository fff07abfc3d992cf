"""A session as one flat text, cut to a size: what goes into a prompt where there are no tools."""

from __future__ import annotations

from typing import Final, NamedTuple

from sessiondex.indexer.capture import Capture
from sessiondex.limits import KIB

TRANSCRIPT_BYTES: Final = 32 * KIB
"""Of the beginning and the end together; 8,000 tokens."""

_SPEAKERS: Final = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


class Transcript(NamedTuple):
    """The text, and the refs of what of the session stands in it."""

    text: str
    shown: frozenset[str]


def cut_transcript(capture: Capture, max_bytes: int = TRANSCRIPT_BYTES) -> Transcript:
    """The beginning and the end of a session, each half of the size, by whole entries."""
    head, at = _side(capture, range(capture.entry_count), max_bytes // 2)
    tail, _ = _side(capture, range(capture.entry_count - 1, at - 1, -1), max_bytes // 2)
    shown = head | dict(reversed(tail.items()))
    parts = [*head.values(), *(["[…]"] if len(shown) < capture.entry_count else [])]
    parts += reversed(tail.values())
    return Transcript("\n".join(parts), frozenset(shown))


def _side(capture: Capture, ordinals: range, room: int) -> tuple[dict[str, str], int]:
    """Entries in the order asked for while they fit, and where the next one stands."""
    taken: dict[str, str] = {}
    for ordinal in ordinals:
        entry = capture.entry(ordinal)
        text = capture.text(entry).decode("utf-8", "replace")
        line = f"[{entry.ref}] {_SPEAKERS[entry.kind]}: {text}"
        room -= len(line.encode()) + 1
        if room < 0:
            return taken, ordinal
        taken[str(entry.ref)] = line
    return taken, ordinals.stop
