"""The overview: every anchor once over its pages, and numbers that add up."""

from __future__ import annotations

from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.errors import InvalidArgument, PastEnd, Stale
from sessiondex.indexer.capture import Capture
from sessiondex.limits import REPLY_BYTES
from sessiondex.model import COPIED, SIDECHAIN, SYNTHETIC, Item, Record
from sessiondex.query.overview import overview
from tests.query.made_sessions import RECORDS, SECRET, capture_of, visible


def pages(capture: Capture, **arguments: object) -> list[dict]:
    """All pages of an overview, each checked for its bounds."""
    found = [overview(capture, **arguments)]  # type: ignore[arg-type]
    while found[-1]["has_more"]:
        cursor = found[-1]["next_cursor"]
        assert cursor
        found.append(overview(capture, cursor=cursor, **arguments))  # type: ignore[arg-type]
    for page in found:
        assert len(orjson.dumps(page)) <= REPLY_BYTES.maximum
        assert page["returned"] == len(page["anchors"]) <= 100
    assert found[-1]["next_cursor"] is None
    return found


def anchors(capture: Capture, **arguments: object) -> list[dict]:
    return [anchor for page in pages(capture, **arguments) for anchor in page["anchors"]]


@settings(max_examples=25)
@given(RECORDS, st.integers(1, 9), st.integers(1, 5))
def test_pages_show_each_selected_anchor_once_and_count_everything_between(
    records: list[Record], stride: int, limit: int
) -> None:
    entries = visible(records)
    capture = Capture.from_items(records)
    real = [e for e in entries if e.kind in ("user", "assistant") and e.text.strip()]
    expected = real[::stride]
    if real and (len(real) - 1) % stride:
        expected.append(real[-1])
    shown = pages(capture, stride=stride, limit=limit)
    listed = [anchor for page in shown for anchor in page["anchors"]]
    assert [anchor["entry_ref"] for anchor in listed] == [e.ref for e in expected]
    assert all(page["total"] == len(expected) for page in shown)
    for page in shown:
        counted = page["before"] + len(listed) + page["after"]
        assert counted + sum(a["intervening_entries"] for a in listed) == len(entries)
    for anchor in listed:
        assert sum(anchor["intervening"].values()) == anchor["intervening_entries"]
        assert len(anchor["text"].encode()) <= 500
        assert SECRET not in anchor["text"]
    positions = {e.ref: n for n, e in enumerate(entries)}
    for anchor, following in pairwise(listed):
        between = entries[positions[anchor["entry_ref"]] + 1 : positions[following["entry_ref"]]]
        assert anchor["intervening"]["user"] == sum(e.kind == "user" for e in between)
        assert anchor["intervening"]["tool"] == sum(e.kind == "tool" for e in between)


def test_the_default_is_the_first_every_eighth_and_the_last() -> None:
    capture = capture_of(*(f"message {n}" for n in range(20)))
    assert [a["entry_range"][0] for a in anchors(capture)] == [0, 8, 16, 19]


def test_a_zoom_between_two_shown_anchors_shows_all_between_them() -> None:
    capture = capture_of(*(f"message {n}" for n in range(40)))
    zoomed = anchors(capture, from_ref="E8", through_ref="E16")
    assert [a["entry_range"][0] for a in zoomed] == list(range(8, 17))
    wide = anchors(capture, from_ref="E8", through_ref="E32")
    assert [a["entry_range"][0] for a in wide] == [8, 16, 24, 32]


def test_an_anchor_has_the_fields_of_the_contract() -> None:
    first = Item(0, "user", "do it", timestamp=1_773_144_030_123)
    items = [first, Item(0, "tool_call", "Bash\nls", name="Bash"), Item(0, "assistant", "done")]
    reply = overview(Capture.from_items(items, session_id="s-1"), stride=1)
    assert reply["anchors"][0] == {
        "entry_ref": "E00000000",
        "entry_range": [0, 0],
        "kind": "user",
        "label": "user message",
        "turn": 1,
        "timestamp": "2026-03-10T12:00:30.123Z",
        "text": "do it",
        "total_bytes": 5,
        "intervening_entries": 1,
        "intervening": {
            "user": 0, "assistant": 0, "system": 0, "tool": 1,
        },
    }  # fmt: skip
    assert reply["anchors"][1]["label"] == "final of turn 1"
    assert reply["session"] == "s-1"


def test_synthetic_copied_sidechain_and_empty_messages_are_no_anchors() -> None:
    capture = Capture.from_items(
        [
            Item(0, "user", "real"),
            Item(0, "user", "injected", flags=SYNTHETIC),
            Item(0, "user", "of a sub-agent", flags=SYNTHETIC | SIDECHAIN),
            Item(0, "assistant", "replayed", flags=COPIED, replayed=True),
            Item(0, "assistant", "  "),
            Item(0, "system", "notified", sub_kind="notification"),
        ]
    )
    assert [a["text"] for a in anchors(capture, stride=1)] == ["real"]


def test_a_session_without_anchors_is_counted_before() -> None:
    reply = overview(capture_of("x", "y", kinds="so"))
    assert (reply["anchors"], reply["after"], reply["has_more"]) == ([], 0, False)
    assert reply["before"] == 1  # The system message before any user message is the prompt.


def test_the_last_plan_of_the_range_is_the_task_context() -> None:
    capture = Capture.from_items(
        [
            Item(0, "user", "go"),
            Item(0, "tool_call", "TodoWrite\n…", name="TodoWrite", plan="[~] first\n[ ] second"),
            Item(0, "assistant", "hm"),
            Item(0, "tool_call", "TodoWrite\n…", name="TodoWrite", plan=f"[x] {SECRET}\n" * 300),
        ]
    )
    context = overview(capture)["task_context"]
    assert context["entry_ref"] == "E00000003"
    assert context["text"].startswith("[x] [REDACTED:github_token]\n[x]")
    assert len(context["text"].encode()) <= 2048
    assert context["total_bytes"] == len(f"[x] {SECRET}\n" * 300)
    zoomed = overview(capture, from_ref="E0", through_ref="E2")["task_context"]
    assert (zoomed["entry_ref"], zoomed["text"]) == ("E00000001", "[~] first\n[ ] second")
    assert overview(capture, through_ref="E0")["task_context"] is None


def test_a_page_that_reaches_the_byte_bound_says_so_and_goes_on() -> None:
    capture = capture_of(*["\x01" * 2000] * 60)
    shown = pages(capture, stride=1, limit=100)
    assert shown[0]["stopped"] == "bytes"
    assert sum(page["returned"] for page in shown) == 60


def test_a_cursor_is_refused_with_other_arguments_or_another_session() -> None:
    capture = capture_of(*"abcdef")
    cursor = overview(capture, stride=1, limit=2)["next_cursor"]
    assert overview(capture, stride=1, limit=3, cursor=cursor)["anchors"][0]["text"] == "c"
    other = Capture.from_items([Item(0, "user", "a")] * 6, session_id="other")
    for call in (
        lambda: overview(capture, stride=2, cursor=cursor),
        lambda: overview(capture, stride=1, through_ref="E4", cursor=cursor),
        lambda: overview(other, stride=1, cursor=cursor),
        lambda: overview(capture, stride=1, cursor=cursor[:-1]),
        lambda: overview(capture, stride=1, cursor="é"),
        lambda: overview(capture, stride=1, cursor=""),
    ):
        with pytest.raises(InvalidArgument, match="cursor"):
            call()


def test_following_a_cursor_while_the_session_grows_visits_what_the_first_page_saw() -> None:
    small, grown = capture_of(*"abcdefghi"), capture_of(*"abcdefghijklmnop")
    first = overview(small, stride=2, limit=3)
    rest = overview(grown, stride=2, cursor=first["next_cursor"])
    seen = [a["text"] for a in first["anchors"] + rest["anchors"]]
    assert seen == ["a", "c", "e", "g", "i"]
    assert not rest["has_more"]


def test_a_cursor_of_a_generation_that_was_rewritten_is_stale() -> None:
    capture = capture_of(*"abcdef")
    cursor = overview(capture, stride=1, limit=2)["next_cursor"]
    capture.generation += 1
    with pytest.raises(Stale):
        overview(capture, stride=1, cursor=cursor)


def test_bad_arguments_are_named() -> None:
    capture = capture_of(*"abc")
    with pytest.raises(InvalidArgument, match="stride is 0"):
        overview(capture, stride=0)
    with pytest.raises(InvalidArgument, match="limit is 0"):
        overview(capture, limit=0)
    with pytest.raises(InvalidArgument, match="from E00000002 lies after through E00000001"):
        overview(capture, from_ref="E2", through_ref="E1")
    with pytest.raises(PastEnd):
        overview(capture, through_ref="E3")
    with pytest.raises(InvalidArgument, match="token"):
        overview(capture, capture_token="no token")
    assert overview(capture, limit=101)["notes"][0]["code"] == "clamped"


def test_reveal_shows_the_original() -> None:
    capture = capture_of(f"use {SECRET}")
    assert overview(capture)["anchors"][0]["text"] == "use [REDACTED:github_token]"
    assert overview(capture)["anchors"][0]["redacted"] == 1
    assert overview(capture, reveal=True)["anchors"][0]["text"] == f"use {SECRET}"
