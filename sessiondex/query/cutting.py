"""Cutting of entry texts: masked first, then cut between code points and never inside a secret.

Offsets and sizes are bytes of the original; what is shown may be shorter or longer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sessiondex.masking import (
    HORIZON_BYTES,
    MARGIN_BYTES,
    NAME_BYTES,
    PEM_BEGIN,
    Span,
    find_secrets,
    placeholder,
)
from sessiondex.query.reply import code_point_start, longest_prefix

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture
    from sessiondex.model import Entry

BLOCK_BYTES = 64 * 1024
"""How much of a long text is held at a time when it is gone through whole."""


class _Piece(NamedTuple):
    """A stretch of the original and what is shown for it; a whole one is shown whole or not."""

    start: int
    end: int
    shown: bytes
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch `[start, end)` of a text as it is shown."""

    text: str
    start: int
    end: int
    redacted: int
    """How many values are masked in it."""
    _pieces: tuple[_Piece, ...]

    def locate(self, start: int, end: int) -> tuple[int, int]:
        """Where bytes `[start, end)` of the original stand, in characters of `text`.

        A place inside a masked value is the whole of it; one outside the cut is its edge.
        """
        return self._character(start, at_end=False), self._character(end, at_end=True)

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Which bytes of the original characters `[start, end)` of `text` show.

        A character of a placeholder is the whole masked value.
        """
        low = len(self.text[:start].encode())
        high = low + len(self.text[start:end].encode())
        return self._byte(low, at_end=False), self._byte(high, at_end=True)

    def _byte(self, offset: int, *, at_end: bool) -> int:
        for piece in self._pieces:
            if offset < len(piece.shown) or (at_end and offset == len(piece.shown)):
                if not piece.is_whole:
                    return piece.start + offset
                return piece.end if at_end and offset else piece.start
            offset -= len(piece.shown)
        return self.end

    def _character(self, offset: int, *, at_end: bool) -> int:
        shown = b""
        for piece in self._pieces:
            if offset <= piece.start:
                break
            if offset < piece.end:
                if not piece.is_whole:
                    shown += piece.shown[: offset - piece.start]
                elif at_end:
                    shown += piece.shown
                break
            shown += piece.shown
        return len(shown.decode(errors="ignore"))


class MaskedText:
    """A text, or a window of one, with its secrets masked.

    `base` is the offset of `data` in the whole text; all offsets are those of the whole text.
    Only `[start, end)` is ever shown: a window has a margin around it, in which secrets are
    recognised. With `reveal` nothing is masked.
    """

    def __init__(
        self,
        data: bytes,
        *,
        base: int = 0,
        start: int | None = None,
        end: int | None = None,
        spans: list[Span] | None = None,
        reveal: bool = False,
    ) -> None:
        self._data = data
        self._base = base
        if reveal:
            spans = []
        elif spans is None:
            spans = [Span(s.start + base, s.end + base, s.kind) for s in find_secrets(data)]
        self.spans = spans
        self.start = base
        self.end = base + _whole_length(data)
        if start is not None:
            self.start = self.floor(start)
        if end is not None:
            self.end = self.ceiling(end)

    def hides(self, start: int, end: int) -> bool:
        """Whether bytes `[start, end)` lie wholly inside one masked span."""
        span = self._span_at(start)
        return span is not None and end <= span.end

    def floor(self, offset: int) -> int:
        """The last place at or before `offset` where the text may be cut."""
        span = self._span_at(offset)
        if span is not None:
            return max(span.start, self.start)
        offset = min(offset, self.end)
        return max(self._base + code_point_start(self._data, offset - self._base), self.start)

    def ceiling(self, offset: int) -> int:
        """The first place at or after `offset` where the text may be cut."""
        span = self._span_at(offset)
        if span is not None and offset > span.start:
            return min(span.end, self.end)
        at = offset - self._base
        while at < len(self._data) and self._data[at] & 0xC0 == 0x80:
            at += 1
        return min(self._base + at, self.end)

    def fit(
        self,
        start: int,
        budget: int,
        *,
        stop: int | None = None,
        cost: Callable[[bytes], int] = len,
    ) -> Cut:
        """The longest cut from `start` whose shown text costs at most `budget`.

        `start` moves back to where a cut is allowed; `stop` is where to end at the latest,
        moved forward likewise. `cost` is additive over bytes: UTF-8 bytes unless another is given.
        """
        start = self.floor(start)
        stop = self.end if stop is None else self.ceiling(stop)
        pieces: list[_Piece] = []
        for piece in self._pieces(start, stop):
            price = cost(piece.shown)
            if price <= budget:
                pieces.append(piece)
                budget -= price
                continue
            if not piece.is_whole:
                length = longest_prefix(piece.shown, budget, cost)
                if length:
                    end = piece.start + length
                    pieces.append(_Piece(piece.start, end, piece.shown[:length], False))
            break
        return self._cut(pieces, start)

    def around(self, start: int, end: int, budget: int) -> Cut:
        """A cut of at most `budget` shown bytes with `[start, end)` in it, a third of the rest
        before it; only the beginning of `[start, end)` where that is too large."""
        start, end = self.floor(start), self.ceiling(end)
        spare = budget - sum(len(piece.shown) for piece in self._pieces(start, end))
        if spare <= 0:
            return self.fit(start, budget)
        behind = self._shown_bytes(end, spare)
        before = spare - min(behind, spare - spare // 3)
        return self.fit(self._back(start, before), budget)

    def _back(self, start: int, allowed: int) -> int:
        """The earliest place from which at most `allowed` bytes are shown before `start`."""
        low = max(self.start, start - allowed)
        for piece in reversed(list(self._pieces(self.floor(low), start))):
            if len(piece.shown) <= allowed:
                allowed -= len(piece.shown)
                start = piece.start
                continue
            return start if piece.is_whole else self.ceiling(start - allowed)
        return start

    def _shown_bytes(self, start: int, enough: int) -> int:
        stop = self.ceiling(min(start + enough, self.end))
        return min(sum(len(piece.shown) for piece in self._pieces(start, stop)), enough)

    def _cut(self, pieces: list[_Piece], start: int) -> Cut:
        shown = b"".join(piece.shown for piece in pieces).decode()
        end = pieces[-1].end if pieces else start
        return Cut(shown, start, end, sum(piece.is_whole for piece in pieces), tuple(pieces))

    def _pieces(self, start: int, stop: int) -> Iterator[_Piece]:
        at = start
        index = max(bisect_right(self.spans, (start, 1 << 62, "")) - 1, 0)
        for span in self.spans[index:]:
            if span.end <= start:
                continue
            if span.start >= stop:
                break
            if span.start > at:
                yield self._plain(at, span.start)
            at = min(span.end, self.end)
            yield _Piece(max(span.start, self.start), at, placeholder(span).encode(), True)
        if at < stop:
            yield self._plain(at, stop)

    def _plain(self, start: int, stop: int) -> _Piece:
        return _Piece(start, stop, self._data[start - self._base : stop - self._base], False)

    def _span_at(self, offset: int) -> Span | None:
        index = bisect_right(self.spans, (offset, 1 << 62, "")) - 1
        if index >= 0 and offset < self.spans[index].end:
            return self.spans[index]
        return None


def _whole_length(data: bytes) -> int:
    """Length of the data without a code point that is cut off at its end."""
    lead = code_point_start(data, len(data) - 1) if data else 0
    if data and len(data) - lead < _code_point_bytes(data[lead]):
        return lead
    return len(data)


def _code_point_bytes(lead: int) -> int:
    return 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def unmasked_stretch(data: bytes, start: int, stop: int) -> MaskedText | None:
    """The stretch `[start, stop)` of a whole text if no value is masked in it or beside it.

    Looks no further than a value that touches the stretch could reach: no value but a PEM key
    has white space inside. None says nothing: then more has to be looked at.
    """
    first = max(start - MARGIN_BYTES, 0)
    if data.find(PEM_BEGIN, first, stop + len(PEM_BEGIN)) >= 0:
        return None
    space = max(data.rfind(b" ", first, start), data.rfind(b"\n", first, start))
    base = first if space < 0 else max(space - NAME_BYTES, 0)
    end = min(stop + HORIZON_BYTES, len(data))
    for mark in (b" ", b"\n"):
        at = data.find(mark, stop, end)
        end = end if at < 0 else at + 1
    masked = MaskedText(data[base:end], base=base, start=start, end=stop)
    return None if masked.spans else masked


def entry_text(
    capture: Capture, entry: Entry, start: int = 0, stop: int | None = None, *, reveal: bool = False
) -> MaskedText:
    """The masked text of an entry, of which at least `[start, stop)` can be shown.

    Costs the stretch. What is masked at a place does not depend on the stretch.
    """
    total = entry.total_bytes
    start = min(start, total)
    stop = total if stop is None else min(max(stop, start), total)
    # A value that holds `start` began before it, one that holds `stop` goes on behind it.
    base = max(start - MARGIN_BYTES, 0)
    for margin in (HORIZON_BYTES, MARGIN_BYTES):
        window_end = min(stop + margin, total)
        data = capture.text(entry, base, window_end)
        end = None if window_end == total else stop
        masked = MaskedText(data, base=base, start=base, end=end, reveal=reveal)
        # Only of a value that holds `stop` the end may lie behind the horizon.
        if window_end == total or not masked.spans or masked.spans[-1].end <= stop:
            break
    return masked


def entry_head(capture: Capture, entry: Entry, budget: int, *, reveal: bool = False) -> Cut:
    """The beginning of an entry's text, at most `budget` shown bytes; cheap when that is small."""
    head = capture.head(entry)
    needed = min(entry.total_bytes, budget + HORIZON_BYTES)
    if len(head) < needed:
        head = capture.text(entry, 0, needed)
    end = None if len(head) >= entry.total_bytes else len(head) - HORIZON_BYTES
    if not reveal and len(head) > budget:
        plain = unmasked_stretch(head, 0, budget)
        if plain is not None:
            return plain.fit(0, budget)
    return MaskedText(head, end=end, reveal=reveal).fit(0, budget)
