"""Overview, search and reading of one capture, as tools serve them.

A run may be confined to a range of records: then nothing outside it is shown, and a ref outside
it is refused by name. Nothing here can reveal what is masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sessiondex.errors import NotFound
from sessiondex.features.capture_inputs import OverviewInput, ReadInput, SearchInput
from sessiondex.features.services import RunRange
from sessiondex.limits import DEFAULT_REPLY, REPLY_BYTES
from sessiondex.model import EntryRef
from sessiondex.query.overview import STRIDE, overview
from sessiondex.query.reading import ReadRequest, read
from sessiondex.query.request import SearchRequest
from sessiondex.query.search import Place, search
from sessiondex.query.selection import as_ref
from sessiondex.query.times import epoch_milliseconds, parse_time

if TYPE_CHECKING:
    from sessiondex.indexer.capture import SessionCapture

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT_DIGITS: Final = 14
"""Digits of a moment in a cursor; milliseconds up to the year 5138."""

Extra = Mapping[str, Any] | None
"""Fields that a reply repeats: a subject, a time of refresh."""


def show_overview(
    capture: SessionCapture,
    asked: OverviewInput,
    *,
    run_range: RunRange | None = None,
    extra: Extra = None,
) -> dict[str, Any]:
    """One page of anchors.

    Raises:
        SessiondexError: as `query.overview`, and NotFound for a ref outside the run.
    """
    _check_refs(run_range, asked.from_ref, asked.through_ref)
    stride = asked.stride
    if run_range is not None and (asked.from_ref is None or asked.through_ref is None):
        # The ends of a run are no zoom.
        stride = stride or STRIDE
    begin, end = _range(run_range, asked.from_ref, asked.through_ref)
    return overview(
        capture,
        stride=stride,
        from_ref=begin,
        through_ref=end,
        limit=asked.limit,
        cursor=asked.cursor,
        capture_token=asked.capture,
        max_bytes=reply_bytes(asked.limit),
        extra=extra,
    )


def search_entries(
    place: Place,
    asked: SearchInput,
    *,
    now: datetime,
    run_range: RunRange | None = None,
    extra: Extra = None,
    **more: Any,
) -> dict[str, Any]:
    """One page of hits, of a capture or a library; `more` are further arguments of the search.

    Times that are ages count from the moment of the first page, which the cursor carries.

    Raises:
        SessiondexError: as `query.search`, and NotFound for a ref outside the run.
    """
    refs = [asked.entry_refs] if isinstance(asked.entry_refs, str) else asked.entry_refs or ()
    _check_refs(run_range, asked.from_ref, asked.through_ref, *refs)
    begin, end = _range(run_range, asked.from_ref, asked.through_ref)
    paged = PagedTimes.of(asked.since, asked.until, asked.cursor, now)
    request = SearchRequest(
        query=asked.query,
        match=asked.match,
        kind=asked.kind,
        tool_part=asked.tool_part,
        tool_name=asked.tool_name,
        call_id=asked.call_id,
        error=asked.error,
        flags=asked.flags,
        entry_refs=asked.entry_refs,
        from_ref=begin,
        through_ref=end,
        since=paged.since,
        until=paged.until,
        order=asked.order,
        limit=asked.limit,
        cursor=paged.cursor,
        capture=asked.capture,
        **more,
    )
    max_bytes = reply_bytes(asked.limit) - paged.cursor_bytes
    return paged.finish(search(place, request, for_model=True, max_bytes=max_bytes, extra=extra))


def read_entries(
    capture: SessionCapture,
    asked: ReadInput,
    *,
    run_range: RunRange | None = None,
    extra: Extra = None,
) -> dict[str, Any]:
    """Entries with their text, within the budgets that are asked for.

    Raises:
        SessiondexError: as `query.read`, and NotFound for a ref outside the run.
    """
    _check_refs(
        run_range, asked.entry_ref, *(asked.entry_refs or ()), asked.from_ref, asked.through_ref
    )
    within = None
    if run_range is not None:
        first, last = EntryRef(run_range.first), EntryRef(run_range.last)
        within = (capture.lower(first), capture.upper(last))
    request = ReadRequest(
        entry_ref=asked.entry_ref,
        entry_refs=asked.entry_refs,
        from_ref=asked.from_ref,
        through_ref=asked.through_ref,
        kind=asked.kind,
        include_tools=asked.include_tools,
        tool_part=asked.tool_part,
        mode=asked.mode,
        max_items=asked.max_items,
        max_bytes=asked.max_bytes,
        max_tokens=asked.max_tokens,
        from_byte=asked.from_byte,
        context=asked.context,
        capture=asked.capture,
        within=within,
    )
    return read(capture, request, extra=extra)


def reply_bytes(limit: int | None) -> int:
    """The bound of a page: less where the caller asked for no number."""
    return DEFAULT_REPLY.maximum if limit is None else REPLY_BYTES.maximum


# ---------------------------------------------------------------- the range of a run


def _check_refs(run_range: RunRange | None, *refs: str | None) -> None:
    if run_range is None:
        return
    for text in refs:
        if text is None:
            continue
        ref = as_ref(text)
        if not run_range.first <= ref.record <= run_range.last:
            first, last = EntryRef(run_range.first), EntryRef(run_range.last)
            raise NotFound(
                f"entry ref {str(ref)!r} lies outside the range of this run",
                hint=f"the run covers {first} through {last}",
            )


def _range(
    run_range: RunRange | None, begin: str | None, end: str | None
) -> tuple[EntryRef | str | None, EntryRef | str | None]:
    if run_range is None:
        return begin, end
    return begin or EntryRef(run_range.first), end or EntryRef(run_range.last)


# ---------------------------------------------------------------- times


class PagedTimes(NamedTuple):
    """The times of a call in epoch milliseconds, and its cursor.

    Ages count from the moment of the first page, which the cursor of the reply carries: what is
    asked for stays the same from page to page.
    """

    since: int | None
    until: int | None
    cursor: str | None
    """The cursor without its moment."""
    moment: int

    @classmethod
    def of(
        cls, since: str | None, until: str | None, cursor: str | None, now: datetime
    ) -> PagedTimes:
        """The times as they are read in UTC.

        Raises:
            InvalidArgument: one is no time; says what was expected.
        """
        moment = epoch_milliseconds(now)
        inner, _, stamp = (cursor or "").rpartition("~")
        is_stamp = stamp.isascii() and stamp.isdecimal() and len(stamp) <= _MOMENT_DIGITS
        if inner and is_stamp and (since is not None or until is not None):
            cursor, moment = inner, int(stamp)
        now = _EPOCH + timedelta(milliseconds=moment)
        return cls(
            None if since is None else parse_time(since, now=now, zone=UTC),
            None if until is None else parse_time(until, now=now, zone=UTC, is_end=True),
            cursor,
            moment,
        )

    @property
    def cursor_bytes(self) -> int:
        """What `finish` may add to a reply."""
        return len("~") + _MOMENT_DIGITS

    def finish(self, reply: dict[str, Any]) -> dict[str, Any]:
        """The reply, whose cursor carries the moment where times were given."""
        has_times = self.since is not None or self.until is not None
        if has_times and reply["next_cursor"] is not None:
            reply["next_cursor"] = f"{reply['next_cursor']}~{self.moment}"
        return reply
