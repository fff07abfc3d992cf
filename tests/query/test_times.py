"""Times as people write them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.errors import InvalidArgument
from sessiondex.query.times import format_time, parse_time

NOW = datetime(2026, 3, 10, 12, 0, 30, tzinfo=UTC)
EAST = timezone(timedelta(hours=2))


def parsed(text: str, zone: tzinfo = EAST, *, is_end: bool = False) -> str | None:
    return format_time(parse_time(text, now=NOW, zone=zone, is_end=is_end))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-03-10T12:00:30.000Z"),
        ("2d", "2026-03-08T12:00:30.000Z"),
        ("3h", "2026-03-10T09:00:30.000Z"),
        ("3h ago", "2026-03-10T09:00:30.000Z"),
        ("45m", "2026-03-10T11:15:30.000Z"),
        ("30s", "2026-03-10T12:00:00.000Z"),
        ("1w", "2026-03-03T12:00:30.000Z"),
        ("today", "2026-03-09T22:00:00.000Z"),
        ("Yesterday", "2026-03-08T22:00:00.000Z"),
        ("2026-03-09", "2026-03-08T22:00:00.000Z"),
        ("20260309", "2026-03-08T22:00:00.000Z"),
        ("9:05", "2026-03-10T07:05:00.000Z"),
        ("14:30:01.5", "2026-03-10T12:30:01.500Z"),
        ("2026-03-09T14:30", "2026-03-09T12:30:00.000Z"),
        ("2026-03-09 14:30:15", "2026-03-09T12:30:15.000Z"),
        ("2026-03-09T14:30:00Z", "2026-03-09T14:30:00.000Z"),
        ("2026-03-09T14:30:00.123456+01:00", "2026-03-09T13:30:00.123Z"),
        (" 2d ", "2026-03-08T12:00:30.000Z"),
    ],
)
def test_a_time_is_read_in_the_given_zone_unless_it_names_one(text: str, expected: str) -> None:
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-09", "2026-03-09T21:59:59.999Z"),
        ("yesterday", "2026-03-09T21:59:59.999Z"),
        ("today", "2026-03-10T21:59:59.999Z"),
        ("2026-03-09T14:30Z", "2026-03-09T14:30:00.000Z"),
        ("2d", "2026-03-08T12:00:30.000Z"),
    ],
)
def test_as_an_end_a_day_takes_in_all_of_it(text: str, expected: str) -> None:
    assert parsed(text, is_end=True) == expected


def test_a_day_on_which_the_clock_changes_has_its_own_length() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    begin = parse_time("2026-03-29", now=NOW, zone=berlin)
    end = parse_time("2026-03-29", now=NOW, zone=berlin, is_end=True)
    assert end - begin + 1 == 23 * 3600 * 1000


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "2", "2x", "-2d", "2026-13-01", "2026-02-30", "25:00", "12:60",
     "9" * 30 + "d", "999999999w", "2026-03-09T", "T12", "٢d", "0001-01-01x"],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(InvalidArgument, match="expected an age"):
        parse_time(text, now=NOW, zone=EAST)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_formatting_and_parsing_agree(milliseconds: int) -> None:
    shown = format_time(milliseconds)
    assert shown is not None
    assert len(shown) == len("2026-03-10T12:00:30.000Z")
    assert parse_time(shown, now=NOW, zone=EAST) == milliseconds


@given(st.text(max_size=20))
def test_any_text_gives_a_time_or_an_invalid_argument(text: str) -> None:
    with suppress(InvalidArgument):
        assert isinstance(parse_time(text, now=NOW, zone=EAST), int)


@pytest.mark.parametrize("milliseconds", [None, 10**18, -(10**18)])
def test_no_time_and_a_time_of_no_calendar_are_shown_as_none(milliseconds: int | None) -> None:
    assert format_time(milliseconds) is None
