"""The overview: a sparse table of contents of a capture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sessiondex.errors import InvalidArgument, Stale
from sessiondex.indexer.assembly import Counts
from sessiondex.limits import ANCHOR_TEXT, PAGE, REPLY_BYTES, TASK_CONTEXT
from sessiondex.model import EntryRef
from sessiondex.query.cursors import Cursor, decode, encode, fingerprint
from sessiondex.query.cutting import MaskedText, entry_head
from sessiondex.query.entry_view import label
from sessiondex.query.reply import PROVISIONAL_NOTE, Reply, clamp
from sessiondex.query.selection import as_ref, range_bounds
from sessiondex.query.times import format_time

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture

STRIDE: Final = 8
"""Every how manieth anchor is shown when nothing else is asked for."""


def overview(
    capture: Capture,
    *,
    stride: int | None = None,
    from_ref: EntryRef | str | None = None,
    through_ref: EntryRef | str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    capture_token: str | None = None,
    reveal: bool = False,
    max_bytes: int = REPLY_BYTES.maximum,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One page of anchors: the first, every 8th, the last, or every `stride`-th.

    `from_ref` and `through_ref` zoom between two anchors; where no 8th stands between them, all
    are shown. `before`, the anchors, their `intervening_entries` and `after` add up to the
    entries of the range. A page costs the page, not the session. `extra` are fields that the
    reply repeats.

    Raises:
        InvalidArgument: a stride or limit below 1, a backward range, a foreign cursor.
        PastEnd: an end of the range lies behind the last record.
        Stale: the cursor or a ref belongs to a generation that was rewritten since.
    """
    if stride is not None and stride < 1:
        raise InvalidArgument(f"stride is {stride}", hint="expected a whole number of at least 1")
    page = clamp(PAGE, limit)
    begin = None if from_ref is None else as_ref(from_ref)
    end = None if through_ref is None else as_ref(through_ref)
    capture.admit(capture_token, [ref for ref in (begin, end) if ref is not None])
    first, stop = range_bounds(capture, begin, end)
    asked = fingerprint(["overview", capture.session, stride, str(begin), str(end)])
    at = 0
    if cursor is not None:
        place = decode(cursor, asked)
        generation, seen_stop = place.state
        if generation != capture.generation:
            raise Stale(
                "the session was rewritten since the cursor was given",
                hint="begin again without a cursor",
            )
        at, stop = place.seen, min(seen_stop, stop)

    low, high = capture.anchor_index(first), capture.anchor_index(stop)
    if stride is None:
        is_zoom = begin is not None and end is not None and high - low <= STRIDE + 1
        stride = 1 if is_zoom else STRIDE
    total = -(-(high - low - 1) // stride) + 1 if high > low else 0
    # Numbers of the anchors of this page and the next one: each step, at last the last.
    numbers = [min(low + n * stride, high - 1) for n in range(at, min(at + page.value + 1, total))]
    ordinals = [capture.anchor_ordinals(number, number + 1)[0] for number in numbers]

    reply = Reply(max_bytes)
    reply.note(page.note)
    for name, value in (extra or {}).items():
        reply.put(name, value)
    reply.put("session", capture.session)
    reply.put("capture", capture.token)
    reply.put("anchors", [])
    before, after = stop - first, 0
    if total:
        before = capture.anchor_ordinals(low, low + 1)[0] - first
        after = stop - capture.anchor_ordinals(high - 1, high)[0] - 1
    reply.put("before", before)
    reply.put("after", after)
    reply.put("stride", stride)
    reply.put("total", total)
    reply.put("task_context", _task_context(capture, first, stop, reveal))
    counts = [capture.counts(ordinal) for ordinal in ordinals]
    shown = 0
    for ordinal in ordinals[: page.value]:
        between = Counts()
        if shown + 1 < len(counts):
            between = counts[shown + 1].minus(counts[shown])
        anchor = _anchor(capture, ordinal, between, reveal)
        if not reply.add("anchors", anchor):
            reply.put("stopped", "bytes")
            break
        shown += 1
        if ordinal >= capture.committed_count:
            reply.note(PROVISIONAL_NOTE)
    has_more = at + shown < total
    reply.put("returned", shown)
    reply.put("has_more", has_more)
    following = Cursor((capture.generation, stop), seen=at + shown, step=0, position=())
    reply.put("next_cursor", encode(following, asked) if has_more else None)
    return reply.build()


def _anchor(capture: Capture, ordinal: int, counts: Counts, reveal: bool) -> dict[str, Any]:
    """An anchor with what stands between it and the next one shown, of `counts` that include it."""
    entry = capture.entry(ordinal)
    intervening = counts.by_kind()
    if counts.total:
        intervening[entry.kind] -= 1
    head = entry_head(capture, entry, ANCHOR_TEXT.default, reveal=reveal)
    anchor: dict[str, Any] = {
        "entry_ref": str(entry.ref),
        "entry_range": [entry.ref.record, entry.ref.record],
        "kind": entry.kind,
        "label": label(capture, entry, reveal=reveal),
        "turn": entry.turn,
        "timestamp": format_time(entry.timestamp),
        "text": head.text,
        "total_bytes": entry.total_bytes,
        "intervening_entries": sum(intervening.values()),
        "intervening": intervening,
    }
    return anchor | ({"redacted": head.redacted} if head.redacted else {})


def _task_context(capture: Capture, first: int, stop: int, reveal: bool) -> dict[str, Any] | None:
    """The last committed task list or plan in the range."""
    entry = capture.last_plan(first, stop)
    if entry is None:
        return None
    plan = entry.plan.encode()
    return {
        "entry_ref": str(entry.ref),
        "entry_range": [entry.ref.record, entry.ref.record],
        "text": MaskedText(plan, reveal=reveal).fit(0, TASK_CONTEXT.default).text,
        "total_bytes": len(plan),
    }
