"""What matches: a literal, a regular expression or nothing asked, decided on stored texts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.folding import FoldMap, Spans, fold, unstable_characters
from sessiondex.indexer.store_texts import TextChunks

_MARKS: Final = "\ue000\ue001\ue002\ue003"


class Matcher(Protocol):
    """Decides whether texts match, and where."""

    def matches(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text matches."""
        ...

    def count(self, text: str) -> int:
        """How often a text that matches does so."""
        ...

    def find(self, text: str, limit: int) -> Spans:
        """The first matches in characters, and how many more there are."""
        ...


class Everything:
    """Matches every text and marks nothing."""

    def matches(self, texts: Sequence[str]) -> list[bool]:
        return [True] * len(texts)

    def count(self, text: str) -> int:
        return 0

    def find(self, text: str, limit: int) -> Spans:
        return Spans([], 0)


class Literal:
    """Matches texts that hold a query anywhere, case aside."""

    def __init__(self, query: str) -> None:
        self._folded = fold(query)

    def matches(self, texts: Sequence[str]) -> list[bool]:
        folded = self._folded
        return [folded in fold(text) for text in texts]

    def rows(self, chunks: TextChunks) -> Iterator[int]:
        """The rows of a batch that match, each chunk by itself."""
        data, offsets = bytes(chunks.data), chunks.offsets
        # Where folding lowers ASCII only, all rows are searched as one.
        odd = unstable_characters(data)
        apart = {row for character in odd for row in _rows_with(character.encode(), data, offsets)}
        for row in apart:
            if self._folded in fold(str(chunks.chunk(row), "utf-8")):
                yield row
        needle = self._folded.encode()
        lowered = data.lower() if needle.upper() != needle else data
        for row in _rows_with(needle, lowered, offsets):
            if row not in apart:
                yield row

    def count(self, text: str) -> int:
        return fold(text).count(self._folded)

    def find(self, text: str, limit: int) -> Spans:
        return FoldMap(text).find(self._folded, limit)


class Regex:
    """Matches texts in which an RE2 pattern does, in linear time.

    Raises:
        InvalidArgument: RE2 refuses the pattern; gives its reason.
    """

    def __init__(self, pattern: str) -> None:
        # Costs 30 ms to import, which other searches need not pay.
        import pyarrow.compute

        self._compute: Any = pyarrow.compute
        self._pattern = pattern
        self._check()

    def matches(self, texts: Sequence[str]) -> list[bool]:
        found = self._compute.match_substring_regex(
            pa.array(texts, pa.large_string()), self._pattern
        )
        return found.to_pylist()

    def rows(self, chunks: TextChunks) -> Iterator[int]:
        """The rows of a batch that match, each chunk by itself."""
        found = self._compute.match_substring_regex(chunks.texts, self._pattern)
        return (row for row, is_match in enumerate(found.to_pylist()) if is_match)

    def count(self, text: str) -> int:
        spans = self.find(text, 1)
        return len(spans.spans) + spans.more

    def find(self, text: str, limit: int) -> Spans:
        # Only a replacement sees every match in its context; a mark that the text lacks shows
        # where they were.
        mark = _MARKS[0]
        while mark in text:
            mark += _MARKS[len(mark) % len(_MARKS)]
        marked = self._compute.replace_substring_regex(
            pa.array([text], pa.large_string()), f"({self._pattern})", rf"{mark}\1{mark}"
        )[0].as_py()
        pieces = marked.split(mark)
        spans: list[tuple[int, int]] = []
        position = more = 0
        for number, piece in enumerate(pieces):
            end = position + len(piece)
            if number % 2 and piece:
                if len(spans) < limit:
                    spans.append((position, end))
                else:
                    more += 1
            position = end
        return Spans(spans, more)

    def _check(self) -> None:
        try:
            self._compute.match_substring_regex(pa.array([""]), self._pattern)
            # A pattern may parse alone but not inside a group, and then it has no places.
            self._compute.replace_substring_regex(pa.array([""]), f"({self._pattern})", r"\1")
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise InvalidArgument(
                f"invalid pattern {self._pattern[:80]!r}: {reason}", hint="the syntax is RE2's"
            ) from error


def _rows_with(needle: bytes, data: bytes, offsets: Sequence[int]) -> Iterator[int]:
    """The rows that hold some bytes, rows being what stands between two offsets of the data."""
    at = data.find(needle, offsets[0])
    while at >= 0:
        row = bisect_right(offsets, at) - 1
        if at + len(needle) <= offsets[row + 1]:
            yield row
            at = data.find(needle, offsets[row + 1])
        else:
            at = data.find(needle, at + 1)
