"""Replies hold their bounds in serialized bytes."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.errors import InternalError, InvalidArgument
from sessiondex.limits import PAGE
from sessiondex.query.reply import (
    Note,
    Reply,
    clamp,
    clip_text,
    json_size,
    longest_prefix,
    text_cost,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(st.text())
def test_the_cost_of_a_text_is_its_size_in_json(text: str) -> None:
    assert text_cost(text.encode()) == len(orjson.dumps(text)) - 2


@given(st.text(), st.integers(0, 60))
def test_clipping_keeps_what_fits_and_splits_no_code_point(text: str, size: int) -> None:
    clipped = clip_text(text, size)
    assert clip_text(text.encode(), size) == clipped.encode()
    assert text.startswith(clipped)
    assert len(clipped.encode()) <= size
    if clipped != text:
        assert len(text[: len(clipped) + 1].encode()) > size


@given(st.text(), st.integers(-5, 60))
def test_the_longest_prefix_fits_and_no_longer_one_does(text: str, budget: int) -> None:
    data = text.encode()
    prefix = data[: longest_prefix(data, budget, text_cost)].decode()
    assert text_cost(prefix.encode()) <= max(budget, 0)
    if len(prefix) < len(text):
        assert text_cost(text[: len(prefix) + 1].encode()) > budget


@given(
    st.integers(60, 600),
    st.integers(0, 60),
    st.lists(JSON, max_size=30),
    st.lists(st.tuples(st.text(min_size=1, max_size=4), st.integers()), max_size=4),
)
def test_a_reply_counts_what_it_weighs(
    max_bytes: int, reserve: int, items: list[object], fields: list[tuple[str, int]]
) -> None:
    reply = Reply(max_bytes, reserve_bytes=reserve)
    reply.put("items", [])
    added = [item for item in items if reply.add("items", item)]
    weight = len(orjson.dumps({"items": added, "notes": []}))
    assert weight <= reply.size_bytes <= weight + 3
    assert weight <= max_bytes - reserve or not added
    built = reply.build()
    assert built["items"] == added
    assert json.loads(orjson.dumps(built)) == built


def test_an_item_that_does_not_fit_leaves_the_reply_as_it_was() -> None:
    reply = Reply(200, reserve_bytes=50)
    assert reply.add("items", "x" * 80)
    before = reply.size_bytes
    assert not reply.add("items", "x" * 80)
    assert reply.size_bytes == before
    assert len(reply.build()["items"]) == 1


def test_a_field_may_be_replaced_and_use_the_reserve() -> None:
    reply = Reply(120, reserve_bytes=40)
    reply.put("next_cursor", "x" * 60)
    reply.put("next_cursor", None)
    assert reply.add("items", "y" * 30)
    reply.put("late", "z" * 20)
    assert json_size(reply.build()) <= 120


def test_a_reply_above_its_bound_is_a_fault_of_ours() -> None:
    reply = Reply(50)
    reply.put("text", "x" * 60)
    with pytest.raises(InternalError):
        reply.build()


def test_a_note_stands_once() -> None:
    reply = Reply(1000)
    for _ in range(2):
        reply.note(Note("clamped", "limit 500 is above the maximum"))
    reply.note(None)
    assert reply.build() == {
        "notes": [{"code": "clamped", "message": "limit 500 is above the maximum"}]
    }


def test_a_request_above_the_maximum_is_answered_with_it_and_a_note() -> None:
    assert clamp(PAGE, None) == (20, None)
    assert clamp(PAGE, 100) == (100, None)
    value, note = clamp(PAGE, 101)
    assert value == 100
    assert note is not None
    assert note.code == "clamped"


@pytest.mark.parametrize("asked", [0, -1])
def test_a_request_below_one_is_an_invalid_argument(asked: int) -> None:
    with pytest.raises(InvalidArgument, match=f"limit is {asked}"):
        clamp(PAGE, asked)
