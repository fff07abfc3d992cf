"""What matches: a literal, a regular expression or nothing asked, decided on stored texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.folding import FoldMap, Spans, fold

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
