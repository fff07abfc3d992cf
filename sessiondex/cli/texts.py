"""Texts as a terminal may be given them: no control characters, white space folded in lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, tzinfo
from typing import Any, Final

# Control characters of sessions would drive the reader's terminal: shown as pictures instead.
# So are bidirectional overrides, which reorder what stands around them.
_PICTURES: Final = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
}
_LINE_PICTURES: Final = {**_PICTURES, 0x09: 0x2409, 0x0A: 0x240A}
_SPACE: Final = re.compile(r"\s+")

Pieces = list[tuple[str, bool]]
"""A text in pieces, each with whether it is part of a match."""


def printable(text: str) -> str:
    """The text with control characters made visible; tabs and newlines stay."""
    return text.replace("\r\n", "\n").translate(_PICTURES)


def one_line(text: str) -> str:
    """The text on one line: white space folded, control characters made visible."""
    return _SPACE.sub(" ", text).strip().translate(_PICTURES)


def visible(name: str) -> str:
    """A name or path on one line, every control character made visible and nothing folded."""
    return name.translate(_LINE_PICTURES)


def snippet_pieces(text: str, matches: Sequence[dict[str, Any]]) -> Pieces:
    """A snippet on one line, cut where matches begin and end."""
    pieces: Pieces = []
    at = 0
    for match in matches:
        start, end = max(match["start"], at), match["end"]
        pieces += [(text[at:start], False), (text[start:end], True)]
        at = max(end, at)
    pieces.append((text[at:], False))
    folded = [(_SPACE.sub(" ", piece).translate(_PICTURES), is_match) for piece, is_match in pieces]
    if folded[0][0].startswith(" "):
        folded[0] = (folded[0][0].lstrip(), folded[0][1])
    folded[-1] = (folded[-1][0].rstrip(), folded[-1][1])
    return [piece for piece in folded if piece[0]]


def columns(cells: Iterable[str]) -> str:
    """One line of a listing without a table: cells two spaces apart, empty ones left out."""
    return "  ".join(cell for cell in cells if cell)


def local_time(text: str | None, zone: tzinfo) -> str:
    """A time of a reply as people read it, in their zone, to the minute; '' for none."""
    if not text:
        return ""
    moment = datetime.fromisoformat(text)
    try:
        return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError):
        return text


def age(seconds: float) -> str:
    """How long ago something was, in its largest unit."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count = int(seconds // length)
        if count >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def count_of(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: `1 hit`, `1,204 hits`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def byte_size(size: float) -> str:
    """A size as people read it: `512 B`, `4.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
