"""The only definition of case-insensitive, and the way back from folded to source text.

Index terms, verification and scans fold with `fold`; the map to source characters is built only
for the hits of a page. It works on whole pieces (a starter and what joins it), because
composition crosses characters: a match that begins or ends inside a folded piece covers all of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple
from unicodedata import combining, normalize

Span = tuple[int, int]


_ASCII_BYTES: Final = bytes(range(128))


def fold(text: str) -> str:
    """The text as it is compared: `lower()` for ASCII, else NFKC, case folding, NFKC."""
    if text.isascii():
        return text.lower()
    data = text.encode("utf-8", "surrogatepass")
    if not unstable_characters(data):
        # Most texts: bytes are lowered several times faster than characters.
        return data.lower().decode("utf-8", "surrogatepass")
    return _fold_fully(text)


def _fold_fully(text: str) -> str:
    return normalize("NFKC", normalize("NFKC", text).casefold())


def odd_characters(text: str) -> set[str]:
    """The characters of a text that are not ASCII; cheap where they are few."""
    return _odd_characters(text.encode("utf-8", "surrogatepass"))


def _odd_characters(data: bytes) -> set[str]:
    return set(data.translate(None, _ASCII_BYTES).decode("utf-8", "surrogatepass"))


def unstable_characters(data: bytes) -> list[str]:
    """What folding may change beyond ASCII in UTF-8; without it, only ASCII letters are lowered."""
    if data.isascii():
        return []
    return [character for character in _odd_characters(data) if not _is_stable(character)]


@lru_cache(maxsize=1 << 15)
def _is_stable(character: str) -> bool:
    """Whether folding leaves the character as it is, whatever stands around it."""
    return _fold_fully(character) == character and not _joins(character)


_MARKS: Final = re.compile(r"[\u0300-\u036f]+")
_STROKES: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "ŧ": "t", "æ": "ae", "œ": "oe"}
)


def fold_accents(text: str) -> str:
    """The folded text without accents, so that `résumé` and `resume` are one word."""
    folded = fold(text)
    if folded.isascii():
        return folded
    return normalize("NFC", _MARKS.sub("", normalize("NFD", folded)).translate(_STROKES))


# Starters that compose with the character before them (second halves of primary composites and
# Hangul medial and final jamo); Unicode 14, with the later blocks taken whole.
_COMPOSING_STARTERS: Final = frozenset(
    [
        0x09BE, 0x09D7, 0x0B3E, 0x0B56, 0x0B57, 0x0BBE, 0x0BD7, 0x0CC2, 0x0CD5, 0x0CD6, 0x0D3E,
        0x0D57, 0x0DCF, 0x0DDF, 0x102E, 0x1B35, 0x11127, 0x1133E, 0x11357, 0x114B0, 0x114BA,
        0x114BD, 0x115AF, 0x11930,
        *range(0x1160, 0x1200), *range(0x113B8, 0x113CA), *range(0x1611E, 0x1612A),
        *range(0x16D63, 0x16D6B),
    ]
)  # fmt: skip


@lru_cache(maxsize=4096)
def _joins(character: str) -> bool:
    """Whether folding may merge or reorder the character with the one before it."""
    if character.isascii():
        return False
    first = normalize("NFKD", character)[0]
    folded = normalize("NFKD", normalize("NFKC", character).casefold())[0]
    return bool(
        combining(first)
        or combining(folded)
        or ord(first) in _COMPOSING_STARTERS
        or ord(folded) in _COMPOSING_STARTERS
    )


# A non-ASCII run and the ASCII character that its first mark may join; all else maps 1:1.
_RUN: Final = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
_ASCII: Final = re.compile(r"[\x00-\x7f]")
_BLOCK: Final = 1 << 13
"""Characters; the map back is made for one block at a time."""


class Spans(NamedTuple):
    """Matches in source characters, in order, and how many more follow them."""

    spans: list[Span]
    more: int


class _Run(NamedTuple):
    """A stretch that does not map 1:1; source and folded offsets."""

    folded_start: int
    folded_stop: int
    start: int
    stop: int


class FoldMap:
    """A text, its folded form, and the source characters behind any folded range.

    Folds once; what it costs to look back is paid for the blocks that are asked for.
    """

    def __init__(self, text: str, folding: Callable[[str], str] = fold) -> None:
        self.text = text
        self._folding = folding
        self._starts: list[int] = []
        """Folded offset of each block; empty for ASCII, which maps 1:1."""
        if text.isascii():
            self.folded = text.lower()
            return
        self._blocks: list[Span] = []
        self._runs: dict[int, list[_Run]] = {}
        self._pieces: dict[int, list[tuple[int, int]]] = {}
        parts: list[str] = []
        start = folded_start = 0
        while start < len(text):
            # What follows a cut before an ASCII character never joins what precedes it.
            cut = _ASCII.search(text, start + _BLOCK)
            stop = cut.start() if cut else len(text)
            parts.append(folding(text[start:stop]))
            self._blocks.append((start, stop))
            self._starts.append(folded_start)
            folded_start += len(parts[-1])
            start = stop
        self.folded = "".join(parts)

    def covering(self, start: int, stop: int) -> tuple[Span, int]:
        """The source characters behind a folded range, grown to whole pieces.

        Returns:
            The source span, and the folded offset at which its last piece ends.
        """
        if not self._starts:
            return (start, stop), stop
        source_start, _, _ = self._piece(start)
        _, source_stop, folded_stop = self._piece(stop - 1)
        return (source_start, source_stop), folded_stop

    def _piece(self, offset: int) -> tuple[int, int, int]:
        """Source start, source stop and folded stop of the piece that holds a folded offset."""
        block = bisect_right(self._starts, offset) - 1
        runs = self._runs.get(block)
        if runs is None:
            runs = self._runs[block] = self._block_runs(block)
        index = bisect_right(runs, offset, key=lambda run: run.folded_start) - 1
        if index < 0:
            source = self._blocks[block][0] + offset - self._starts[block]
            return source, source + 1, offset + 1
        run = runs[index]
        if offset >= run.folded_stop:
            source = run.stop + offset - run.folded_stop
            return source, source + 1, offset + 1
        pieces = self._pieces.get(run.start)
        if pieces is None:
            pieces = self._pieces[run.start] = self._split(run)
        at = bisect_right(pieces, (offset, len(self.text))) - 1
        following = (run.folded_stop, run.stop)
        folded_end, source_end = pieces[at + 1] if at + 1 < len(pieces) else following
        return pieces[at][1], source_end, folded_end

    def _block_runs(self, block: int) -> list[_Run]:
        runs: list[_Run] = []
        (position, end), folded_position = self._blocks[block], self._starts[block]
        for match in _RUN.finditer(self.text, position, end):
            start, stop = match.span()
            folded_position += start - position
            width = len(self._folding(match[0]))
            runs.append(_Run(folded_position, folded_position + width, start, stop))
            folded_position += width
            position = stop
        return runs

    def _split(self, run: _Run) -> list[tuple[int, int]]:
        """(folded start, source start) of each piece of a run, rising in both.

        A piece that folds to nothing belongs to the one before it.
        """
        text, start, folded = self.text, run.start, run.folded_start
        pieces: list[tuple[int, int]] = []
        while start < run.stop:
            end = start + 1
            while end < run.stop and _joins(text[end]):
                end += 1
            width = len(self._folding(text[start:end]))
            if width or not pieces:
                pieces.append((folded, start))
            folded += width
            start = end
        return pieces

    def find(self, folded_query: str, limit: int) -> Spans:
        """Finds a folded query; see `find_spans`."""
        spans: list[Span] = []
        position = 0
        while len(spans) < limit:
            at = self.folded.find(folded_query, position)
            if at < 0:
                return Spans(spans, 0)
            span, position = self.covering(at, at + len(folded_query))
            spans.append(span)
        return Spans(spans, self.folded.count(folded_query, position))


def find_spans(text: str, folded_query: str, limit: int) -> Spans:
    """Finds a folded query in a text; matches do not overlap in the source.

    `more` counts the matches in the folded text after the last span returned.
    """
    return FoldMap(text).find(folded_query, limit)
