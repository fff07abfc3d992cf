"""Reading: entries with their text, as much as a budget of serialized bytes holds.

Two ways: `read` builds one bounded reply, for models and pages; `iterate_entries` streams the
same selection without bounds, for people and programs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sessiondex.errors import InvalidArgument
from sessiondex.limits import BYTES_PER_TOKEN, READ_BYTES, READ_ENTRIES, READ_TOKENS
from sessiondex.model import EntryRef
from sessiondex.query.cutting import BLOCK_BYTES, entry_text
from sessiondex.query.entry_view import entry_view, summary
from sessiondex.query.reply import PROVISIONAL_NOTE, Note, Reply, clamp, json_size, text_cost
from sessiondex.query.selection import Selection, as_ref, kind_codes, range_bounds

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture
    from sessiondex.model import Entry

MIN_PIECE_BYTES: Final = 256
"""An entry that is not the first is left to the next reply rather than begun with less."""

LEAST_PIECE_BYTES: Final = 64
"""Room in which every code point and every placeholder of a masked value fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What to read: exactly one of `entry_ref`, `entry_refs`, or `from_ref` with `through_ref`.

    `kind`, `tool_part` and `include_tools` bind ranges and neighbours; an entry that is named is
    always read. `from_byte` goes on inside the first entry that is named or ranged over.
    """

    entry_ref: EntryRef | str | None = None
    entry_refs: Sequence[EntryRef | str] | None = None
    from_ref: EntryRef | str | None = None
    through_ref: EntryRef | str | None = None
    kind: str | Sequence[str] | None = None
    include_tools: bool = True
    tool_part: str | None = None
    mode: Literal["full", "compact"] = "full"
    max_items: int | None = None
    max_bytes: int | None = None
    max_tokens: int | None = None
    from_byte: int = 0
    context: int = 0
    capture: str | None = None
    """Token of the reply from which the refs were taken."""
    within: tuple[int, int] | None = None
    """Ordinals `[first, stop)` outside of which no neighbour is shown."""


class StreamedEntry(NamedTuple):
    """An entry of a stream; `text` yields its whole text in pieces and may be left unread."""

    entry: Entry
    view: dict[str, Any]
    text: Iterator[str]


def read(
    capture: Capture,
    request: ReadRequest,
    *,
    reveal: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The entries that are asked for, within the budgets of the request.

    `extra` are fields that the reply repeats.

    What did not fit is described: an entry that was cut has `next_byte`, entries that were left
    out are counted in `omitted_entries`, and `next_ref` is the first of them after those shown.

    Raises:
        InvalidArgument: the request has none or several of its forms, or a budget is too small
            for its first entry.
        NotFound: a ref names no entry (`hidden_entry`, `past_end` where that is why).
        Stale: a ref belongs to a generation that was rewritten since.
    """
    budget = _budget(request)
    wanted = _wanted(capture, request)
    reply = Reply(budget.bytes, reserve_bytes=json_size(PROVISIONAL_NOTE.to_json()) + 1)
    for note in budget.notes:
        reply.note(note)
    for name, value in (extra or {}).items():
        reply.put(name, value)
    reply.put("session", capture.session)
    reply.put("capture", capture.token)
    reply.put("entries", [])
    # Counted with their largest values now, set when they are known.
    reply.put("truncated", False)
    reply.put("omitted_entries", wanted.total)
    reply.put("next_ref", f"E{'0' * 12}.{'0' * 12}")
    reply.put("stopped", "tokens")

    shown: list[int] = []
    stopped: str | None = None
    for want in wanted.entries:
        if len(shown) == budget.items:
            stopped = "items"
            break
        item = _item(capture, want, request.mode, reply.room_bytes, not shown, reveal)
        if item is None or not reply.add("entries", item):
            if not shown:
                raise _too_small(capture, want, budget, reply.room_bytes, reveal)
            stopped = budget.unit
            break
        shown.append(want.entry.ordinal)
        if want.entry.ordinal >= capture.committed_count:
            reply.note(PROVISIONAL_NOTE)
        if item["next_byte"] is not None:
            stopped = budget.unit
            break
    omitted = wanted.total - len(shown)
    items = reply.items("entries")
    is_truncated = omitted > 0 or any(item["next_byte"] is not None for item in items)
    if wanted.is_sorted_last:
        items.sort(key=lambda item: EntryRef.parse(item["entry_ref"]))
    following = wanted.following(shown) if omitted else None
    reply.put("truncated", is_truncated)
    reply.put("omitted_entries", omitted)
    reply.put("next_ref", None if following is None else str(following))
    reply.put("stopped", stopped if is_truncated else None)
    return reply.build()


def iterate_entries(
    capture: Capture, request: ReadRequest, *, reveal: bool = False
) -> Iterator[StreamedEntry]:
    """Every entry that is asked for, whole and in constant memory; no budget counts."""
    wanted = _wanted(capture, request)
    entries: Iterable[_Wanted] = wanted.entries
    if wanted.is_sorted_last:
        entries = sorted(entries, key=lambda want: want.entry.ordinal)
    for want in entries:
        view = entry_view(capture, want.entry, reveal=reveal)
        view["total_bytes"] = want.entry.total_bytes
        text: Iterator[str] = iter(())
        if _is_left_out(want.entry, request.mode):
            view |= _left_out(capture, want.entry, reveal)
        else:
            text = text_pieces(capture, want.entry, want.from_byte, reveal=reveal)
        yield StreamedEntry(want.entry, view, text)


def text_pieces(
    capture: Capture, entry: Entry, from_byte: int = 0, *, reveal: bool = False
) -> Iterator[str]:
    """The whole text of an entry as it is shown, piece by piece."""
    at = from_byte
    while at < entry.total_bytes:
        window = entry_text(capture, entry, at, at + BLOCK_BYTES, reveal=reveal)
        cut = window.fit(at, sys.maxsize)
        yield cut.text
        at = cut.end


# ---------------------------------------------------------------- budget


class _Budget(NamedTuple):
    items: int
    bytes: int
    unit: str
    """What `stopped` says when the bytes run out: bytes, or tokens where they were fewer."""
    notes: list[Note | None]


def _budget(request: ReadRequest) -> _Budget:
    items = clamp(READ_ENTRIES, request.max_items, name="max_items")
    size = clamp(READ_BYTES, request.max_bytes, name="max_bytes")
    if request.max_tokens is None:
        return _Budget(items.value, size.value, "bytes", [items.note, size.note])
    tokens = clamp(READ_TOKENS, request.max_tokens, name="max_tokens")
    token_bytes = tokens.value * BYTES_PER_TOKEN
    notes = [items.note, size.note, tokens.note]
    if request.max_bytes is not None and size.value <= token_bytes:
        return _Budget(items.value, size.value, "bytes", notes)
    return _Budget(items.value, token_bytes, "tokens", notes)


def _too_small(
    capture: Capture, want: _Wanted, budget: _Budget, room: int, reveal: bool
) -> InvalidArgument:
    needed = budget.bytes - room + json_size(_bare_item(capture, want, reveal)) + LEAST_PIECE_BYTES
    if budget.unit == "tokens":
        needed = -(-needed // BYTES_PER_TOKEN)
    return InvalidArgument(
        f"max_{budget.unit} is too small for entry {want.entry.ref}",
        hint=f"give at least {needed}",
    )


# ---------------------------------------------------------------- what is asked for


class _Wanted(NamedTuple):
    entry: Entry
    from_byte: int = 0
    is_context: bool = False


class _Selected(NamedTuple):
    """What a request asks for, in the order in which it is served."""

    total: int
    entries: Iterable[_Wanted]
    following: Callable[[Sequence[int]], EntryRef | None]
    """The first entry that was left out after those with the given ordinals."""
    is_sorted_last: bool = False
    """Named entries come before their neighbours, so that no neighbour takes their room."""


def _wanted(capture: Capture, request: ReadRequest) -> _Selected:
    """Checks the request and finds what it asks for.

    Raises:
        InvalidArgument, NotFound, Stale: see `read`.
    """
    if request.mode not in ("full", "compact"):
        raise InvalidArgument(f"unknown mode {request.mode!r}", hint="expected full or compact")
    if request.context < 0 or request.from_byte < 0:
        raise InvalidArgument("context and from_byte cannot be negative")
    codes = kind_codes(request.kind, request.tool_part, include_tools=request.include_tools)
    selection = Selection(capture, codes)
    is_range = request.from_ref is not None or request.through_ref is not None
    forms = (request.entry_ref is not None) + (request.entry_refs is not None) + is_range
    if forms != 1 or (request.from_ref is None) != (request.through_ref is None):
        raise InvalidArgument(
            "nothing or too much to read was named",
            hint="give exactly one of entry_ref, entry_refs, or from with through",
        )
    if is_range:
        return _ranged(capture, request, selection)
    if request.entry_refs is not None and isinstance(request.entry_refs, str):
        raise InvalidArgument("entry_refs is a single text", hint="expected a list of refs")
    named = [request.entry_ref] if request.entry_ref is not None else request.entry_refs
    refs = list(dict.fromkeys(as_ref(ref) for ref in named or ()))
    if not refs:
        raise InvalidArgument("entry_refs is empty", hint="name at least one entry")
    capture.admit(request.capture, refs)
    return _named(capture, request, selection, [capture.ordinal(ref) for ref in refs])


def _ranged(capture: Capture, request: ReadRequest, selection: Selection) -> _Selected:
    begin, end = as_ref(request.from_ref or ""), as_ref(request.through_ref or "")
    capture.admit(request.capture, (begin, end))
    first_ordinal, stop_ordinal = range_bounds(capture, begin, end)
    first, stop = selection.number(first_ordinal), selection.number(stop_ordinal)
    least, most = _neighbourhood(capture, request, selection)
    low, high = max(first - request.context, least), min(stop + request.context, most)

    def entries() -> Iterator[_Wanted]:
        for number, entry in enumerate(selection.entries(low, high), low):
            from_byte = request.from_byte if number == first else 0
            _check_from_byte(entry, from_byte)
            yield _Wanted(entry, from_byte, not first <= number < stop)

    def following(shown: Sequence[int]) -> EntryRef | None:
        return capture.entry(selection.ordinal(low + len(shown))).ref

    return _Selected(high - low, entries(), following)


def _named(
    capture: Capture, request: ReadRequest, selection: Selection, ordinals: list[int]
) -> _Selected:
    wanted = {ordinal: _Wanted(capture.entry(ordinal)) for ordinal in ordinals}
    first = wanted[ordinals[0]].entry
    _check_from_byte(first, request.from_byte)
    wanted[first.ordinal] = _Wanted(first, request.from_byte)
    context = min(request.context, READ_ENTRIES.maximum)
    neighbours: dict[int, tuple[int, Entry]] = {}
    least, most = _neighbourhood(capture, request, selection)
    for ordinal in ordinals if context else ():
        before, after = selection.number(ordinal), selection.number(ordinal + 1)
        for entry in (
            *selection.entries(max(before - context, least), before),
            *selection.entries(after, min(after + context, most)),
        ):
            distance = abs(entry.ordinal - ordinal)
            known = neighbours.get(entry.ordinal)
            if entry.ordinal not in wanted and (known is None or distance < known[0]):
                neighbours[entry.ordinal] = (distance, entry)
    served = list(wanted.values())
    served += [
        _Wanted(entry, is_context=True)
        for _, entry in sorted(neighbours.values(), key=lambda pair: (pair[0], pair[1].ordinal))
    ]

    def following(shown: Sequence[int]) -> EntryRef | None:
        left = [want.entry for want in served[len(shown) :]]
        if not context:
            return left[0].ref
        later = [entry.ref for entry in left if entry.ordinal > max(shown)]
        return min(later, default=None)

    return _Selected(len(served), served, following, is_sorted_last=bool(context))


def _neighbourhood(capture: Capture, request: ReadRequest, selection: Selection) -> tuple[int, int]:
    """The numbers `[least, most)` of selected entries that may be neighbours."""
    first, stop = request.within or (0, capture.entry_count)
    return selection.number(first), selection.number(stop)


def _check_from_byte(entry: Entry, from_byte: int) -> None:
    if from_byte > entry.total_bytes:
        raise InvalidArgument(
            f"from_byte {from_byte} lies past the end of entry {entry.ref}",
            hint=f"it has {entry.total_bytes} bytes; use the next_byte of an earlier reply",
        )


# ---------------------------------------------------------------- one entry


def _bare_item(capture: Capture, want: _Wanted, reveal: bool) -> dict[str, Any]:
    """The item without its text, its numbers as large as they can become."""
    total = want.entry.total_bytes
    item = entry_view(capture, want.entry, reveal=reveal)
    if want.is_context:
        item["context"] = True
    if want.from_byte:
        item["from_byte"] = want.from_byte
    item |= {"text": "", "total_bytes": total, "returned_bytes": total}
    item["next_byte"] = max(total, 1000)  # as long as null
    item["redacted"] = total
    return item


def _is_left_out(entry: Entry, mode: str) -> bool:
    return mode == "compact" and entry.kind == "tool" and entry.total_bytes > 0


def _left_out(capture: Capture, entry: Entry, reveal: bool) -> dict[str, Any]:
    """What a compact reading says of arguments and results that it leaves out."""
    part = "arguments" if entry.tool_part == "input" else "result"
    said: dict[str, Any] = {"left_out": {"part": part, "bytes": entry.total_bytes}}
    if entry.summary:
        said["summary"] = summary(capture, entry, reveal=reveal)
    return said


def _item(
    capture: Capture, want: _Wanted, mode: str, room: int, is_first: bool, reveal: bool
) -> dict[str, Any] | None:
    """The entry with as much text as fits into `room` bytes; None when that is too little."""
    entry = want.entry
    total = entry.total_bytes
    item = _bare_item(capture, want, reveal)
    if _is_left_out(entry, mode):
        del item["redacted"]
        item |= {"returned_bytes": 0, "next_byte": None}
        return item | _left_out(capture, entry, reveal)
    budget = room - json_size(item)
    pieces: list[str] = []
    start = at = want.from_byte
    left = budget
    redacted = 0
    while at < total and left > 0:
        window = entry_text(capture, entry, at, at + left, reveal=reveal)
        cut = window.fit(at, left, cost=text_cost)
        if not pieces:
            start = cut.start
        pieces.append(cut.text)
        redacted += cut.redacted
        left -= text_cost(cut.text.encode())
        at = cut.end
        if at < window.end:
            break
    is_cut = at < total
    if is_cut and (at == start or (not is_first and budget < MIN_PIECE_BYTES)):
        return None
    if want.from_byte:
        item["from_byte"] = start
    item |= {
        "text": "".join(pieces),
        "returned_bytes": at - start,
        "next_byte": at if is_cut else None,
        "redacted": redacted,
    }
    if not redacted:
        del item["redacted"]
    return item
