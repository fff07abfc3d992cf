"""Text replies about a session log: blocks `[REF kind Part Tool [i, i]] label`, then their text.

A reply is bounded twice: its text in bytes, and its JSON. No line of a session can pass for the
head of a block or for a line of the reply itself: it is moved in by one blank.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sessiondex.query.cutting import BLOCK_BYTES, entry_text
from sessiondex.query.entry_view import entry_view, summary
from sessiondex.query.reply import Note, text_cost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sessiondex.indexer.capture import SessionCapture
    from sessiondex.model import Entry

_OWN_LINE = re.compile(r"^(?=\[(?:E[0-9]|more:|end:|note:|cut:|left out:))", re.MULTILINE)

_RESERVE_BYTES: Final = 1_024
"""Kept for the lines after the blocks."""

LEAST_TEXT_BYTES: Final = 256
"""An entry is rather left to the next reply than begun with less."""


class LogText:
    """Builds one text of at most `max_bytes`, whose JSON takes at most `json_bytes`."""

    def __init__(self, max_bytes: int, *, json_bytes: int) -> None:
        self._room = max_bytes - _RESERVE_BYTES
        self._json_room = json_bytes - _RESERVE_BYTES
        self._lines: list[str] = []
        self._closing: list[str] = []
        self.blocks = 0

    def fits(self, *blocks: str) -> bool:
        """Whether these blocks fit beside what is there."""
        text = "\n\n".join((*blocks, "")).encode()
        return len(text) <= self._room and text_cost(text) <= self._json_room

    def add(self, block: str) -> bool:
        """Adds a block if it fits; says whether it did."""
        if not self.fits(block):
            return False
        text = f"{block}\n\n".encode()
        self._room -= len(text)
        self._json_room -= text_cost(text)
        self._lines.append(block)
        self.blocks += 1
        return True

    def add_cut(self, capture: SessionCapture, entry: Entry) -> bool:
        """Adds an entry with as much of its text as fits, and says how much that was."""
        head = block_head(entry_view(capture, entry))
        cut_line = f"[cut: {entry.total_bytes} of {entry.total_bytes} bytes are shown]"
        spare = f"{head}\n\n{cut_line}\n\n".encode()
        room = min(self._room - len(spare), self._json_room - text_cost(spare))
        budget = room
        while budget >= LEAST_TEXT_BYTES:
            cut = entry_text(capture, entry, 0, min(budget, BLOCK_BYTES)).fit(
                0, budget, cost=text_cost
            )
            body = shown_text(cut.text)
            over = text_cost(body.encode()) - room
            if over <= 0:
                said = f"[cut: {cut.end} of {entry.total_bytes} bytes are shown]"
                return self.add(f"{head}\n{body}\n{said}")
            budget -= over
        return False

    def note(self, note: Note | None) -> None:
        """Adds the line of a note after the blocks; None is no note."""
        if note is not None:
            self.close(f"note: {note.message}")

    def close(self, line: str) -> None:
        """Adds a line of the reply itself after the blocks."""
        self._closing.append(f"[{line}]")

    def build(self) -> str:
        """The finished text."""
        closing = ["\n".join(self._closing)] if self._closing else []
        return "\n\n".join((*self._lines, *closing))


def block_head(view: Mapping[str, Any]) -> str:
    """The first line of a block, of the fields of an entry in a reply."""
    words = [view["entry_ref"], view["kind"]]
    if view["kind"] == "tool":
        words += [view["tool_part"].capitalize(), view["tool_name"] or "unknown"]
    first, last = view["entry_range"]
    line = f"[{' '.join(words)} [{first}, {last}]] {view['label']}"
    return " ".join(line.split())


def shown_text(text: str) -> str:
    """Text of a session as it stands in a block."""
    return _OWN_LINE.sub(" ", text)


def own_summary(capture: SessionCapture, entry: Entry) -> str:
    """The source's own summary of an entry, masked; '' where it has none."""
    return " ".join(summary(capture, entry).split()) if entry.summary else ""


def part_name(entry: Entry) -> str:
    """What the text of a tool entry is: arguments or a result."""
    return "arguments" if entry.tool_part == "input" else "result"


def compact_block(capture: SessionCapture, entry: Entry) -> str:
    """A tool entry by name and summary, without its arguments or result."""
    lines = [block_head(entry_view(capture, entry)), shown_text(own_summary(capture, entry))]
    if entry.total_bytes:
        lines.append(f"({part_name(entry)} left out: {entry.total_bytes} bytes)")
    return "\n".join(line for line in lines if line)
