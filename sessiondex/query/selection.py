"""Which entries a call asks for: kinds and tool parts, and the range between two refs.

A `Selection` numbers the entries of its kinds, so that a range can be counted and entered at any
place without walking to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from sessiondex.errors import InvalidArgument, PastEnd
from sessiondex.indexer.assembly import Counts, kind_code
from sessiondex.model import KINDS, EntryRef

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture
    from sessiondex.model import Entry

ALL_KINDS: Final = frozenset(range(len(Counts._fields)))
"""Positions in `Counts`: user, assistant, system, tool input, tool output."""

_INPUT, _OUTPUT = 3, 4
_CODES: Final = {
    "user": {0}, "assistant": {1}, "agent": {1}, "system": {2}, "tool": {_INPUT, _OUTPUT},
}  # fmt: skip
_PARTS: Final = {"input": {_INPUT}, "output": {_OUTPUT}, "both": {_INPUT, _OUTPUT}}
_CHUNK: Final = 64


def kind_codes(
    kind: str | Sequence[str] | None = None,
    tool_part: str | None = None,
    *,
    include_tools: bool = True,
    tool_names: Sequence[str] = (),
) -> frozenset[int]:
    """The kinds that are asked for, as positions in `Counts`.

    A tool part or name binds tool entries only and implies them where no kind is named.

    Raises:
        InvalidArgument: an unknown word, or a tool part for kinds that lack tools.
    """
    names = [kind] if isinstance(kind, str) else list(kind or ())
    codes: set[int] = set()
    for name in names:
        if name not in _CODES:
            raise InvalidArgument(f"unknown kind {name!r}", hint=f"expected {', '.join(KINDS)}")
        codes |= _CODES[name]
    if tool_part is not None or tool_names:
        part = "both" if tool_part is None else tool_part
        if part not in _PARTS:
            raise InvalidArgument(
                f"unknown tool part {part!r}", hint="expected input, output or both"
            )
        if names and not codes & {_INPUT, _OUTPUT}:
            asked = f"tool_name {tool_names[0]!r}" if tool_part is None else f"tool_part {part!r}"
            raise InvalidArgument(
                f"{asked} does not go with kind {', '.join(names)}",
                hint="leave one of them out, or add the kind tool",
            )
        codes = (codes - {_INPUT, _OUTPUT}) | _PARTS[part]
    elif not names:
        codes = set(ALL_KINDS)
    if not include_tools:
        codes -= {_INPUT, _OUTPUT}
        if not codes:
            raise InvalidArgument(
                "include_tools is false, but only tool entries are asked for",
                hint="leave one of them out",
            )
    return frozenset(codes)


def as_ref(ref: EntryRef | str) -> EntryRef:
    """An entry ref, parsed where it is text."""
    return ref if isinstance(ref, EntryRef) else EntryRef.parse(ref)


def range_bounds(
    capture: Capture, from_ref: EntryRef | None, through_ref: EntryRef | None
) -> tuple[int, int]:
    """The ordinals `[first, stop)` of an inclusive range of refs; an open end is the session's.

    Hidden and unused positions may bound a range.

    Raises:
        InvalidArgument: the range is backward.
        PastEnd: an end lies behind the last record.
    """
    for ref in (from_ref, through_ref):
        if ref is not None and ref.record >= capture.record_count:
            raise PastEnd(
                f"entry ref {str(ref)!r} lies past the end",
                hint=f"the last record of this session is {max(capture.record_count - 1, 0)}",
            )
    first = 0 if from_ref is None else capture.lower(from_ref)
    stop = capture.entry_count if through_ref is None else capture.upper(through_ref)
    if from_ref is not None and through_ref is not None and is_backward(from_ref, through_ref):
        raise InvalidArgument(
            f"from {from_ref} lies after through {through_ref}", hint="exchange them"
        )
    return first, max(first, stop)


def is_backward(from_ref: EntryRef, through_ref: EntryRef) -> bool:
    """Whether a range ends before it begins; as its end a bare ref takes in all its blocks."""
    if through_ref.block:
        return from_ref > through_ref
    return from_ref.record > through_ref.record


class Selection:
    """The entries of some kinds in a capture, numbered from 0 in source order."""

    def __init__(self, capture: Capture, codes: frozenset[int] = ALL_KINDS) -> None:
        self._capture = capture
        self._codes = codes

    def number(self, ordinal: int) -> int:
        """How many selected entries stand before an ordinal."""
        if len(self._codes) == len(ALL_KINDS):
            return max(0, min(ordinal, self._capture.entry_count))
        counts = self._capture.counts(ordinal)
        return sum(counts[code] for code in self._codes)

    def ordinal(self, number: int) -> int:
        """The ordinal of the selected entry with a number; the end where there is none."""
        if len(self._codes) == len(ALL_KINDS):
            return min(number, self._capture.entry_count)
        places = range(1, self._capture.entry_count + 1)
        return bisect_left(places, number + 1, key=self.number)

    def entries(self, first: int, stop: int) -> Iterator[Entry]:
        """The selected entries with numbers `first` to `stop` (exclusive), in order.

        Skips long stretches of other kinds without reading them.
        """
        at = self.ordinal(first)
        while first < stop:
            chunk = self._capture.entries(at, at + _CHUNK)
            if not chunk:
                return
            found = [entry for entry in chunk if kind_code(entry) in self._codes]
            if not found:
                at = self.ordinal(first)
                continue
            yield from found[: stop - first]
            first += len(found)
            at += len(chunk)
