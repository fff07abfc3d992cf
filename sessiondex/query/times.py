"""Times as people write them and as replies show them. No clock: `now` and the zone are given."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

from sessiondex.errors import InvalidArgument

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = r"([0-9]{1,9})\s*([smhdw])(?:\s+ago)?"
_CLOCK: Final = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_HINT = (
    "expected an age like 2d or 3h, 'now', 'today', 'yesterday', a date like 2026-03-09, or a time"
    " like 14:30 or 2026-03-09T14:30:00Z"
)


def parse_time(text: str, *, now: datetime, zone: tzinfo, is_end: bool = False) -> int:
    """Epoch milliseconds of a time: an age before now, a day, a date or a time.

    `now` has a zone. What names none is read in `zone`. A day or date is its first millisecond,
    with `is_end` its last.

    Raises:
        InvalidArgument: for anything else; says what was expected.
    """
    words = text.strip()
    folded = words.lower()
    try:
        if folded == "now":
            return epoch_milliseconds(now)
        if age := re.fullmatch(_AGO, folded, re.ASCII):
            return epoch_milliseconds(now - timedelta(**{_UNITS[age[2]]: int(age[1])}))
        today = now.astimezone(zone).date()
        if folded == "today":
            return _day(today, zone, is_end)
        if folded == "yesterday":
            return _day(today - timedelta(days=1), zone, is_end)
        if not any(mark in words for mark in ":T "):
            return _day(date.fromisoformat(words), zone, is_end)
        if re.fullmatch(_CLOCK, words, re.ASCII):
            clock = time.fromisoformat(words if words[2] == ":" else f"0{words}")
            return epoch_milliseconds(datetime.combine(today, clock, zone))
        moment = datetime.fromisoformat(words)
    except (ValueError, OverflowError) as reason:
        raise InvalidArgument(f"{text[:60]!r} is no time", hint=_HINT) from reason
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return epoch_milliseconds(moment)


def epoch_milliseconds(moment: datetime) -> int:
    """Whole milliseconds since 1970 of a time with a zone."""
    return (moment - _EPOCH) // _MILLISECOND


def format_time(milliseconds: int | None) -> str | None:
    """ISO 8601 in UTC with milliseconds and `Z`; None for no time, or one no calendar has."""
    if milliseconds is None:
        return None
    try:
        moment = _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _day(day: date, zone: tzinfo, is_end: bool) -> int:
    if not is_end:
        return epoch_milliseconds(datetime.combine(day, time.min, zone))
    return epoch_milliseconds(datetime.combine(day + timedelta(days=1), time.min, zone)) - 1
