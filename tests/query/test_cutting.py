"""Texts are cut between code points and never inside a masked value."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.masking import find_secrets, mask
from sessiondex.query.cutting import (
    BLOCK_BYTES,
    MaskedText,
    entry_head,
    entry_text,
    unmasked_stretch,
)
from sessiondex.query.reply import text_cost
from tests.query.made_sessions import PRIVATE_KEY, SECRET, TEXTS, capture_of
from tests.test_masking import PIECES

ALL = sys.maxsize


@given(TEXTS, st.data())
def test_cuts_in_a_row_show_the_whole_masked_text(text: str, data: st.DataObject) -> None:
    masked = MaskedText(text.encode())
    shown, at = "", 0
    while at < masked.end:
        cost = data.draw(st.sampled_from([len, text_cost]))
        budget = data.draw(st.integers(1, 200))
        cut = masked.fit(at, budget, cost=cost)
        assert cost(cut.text.encode()) <= budget
        assert cut.start == at
        if cut.end == at:
            cut = masked.fit(at, 64, cost=cost)
            assert cut.end > at
        shown += cut.text
        at = cut.end
    assert shown == mask(text).text


@given(TEXTS, st.integers(0, 500), st.integers(0, 60), st.integers(0, 300))
def test_a_cut_around_a_place_holds_it_and_its_bound(
    text: str, start: int, length: int, budget: int
) -> None:
    masked = MaskedText(text.encode())
    start = min(start, masked.end)
    end = min(start + length, masked.end)
    cut = masked.around(start, end, budget)
    assert len(cut.text.encode()) <= budget
    assert cut.text in mask(text).text
    inside = masked.fit(start, ALL, stop=end)
    if len(inside.text.encode()) <= budget:
        assert inside.text in cut.text
        low, high = cut.locate(start, end)
        assert cut.text[low:high] in inside.text


@given(TEXTS, st.data())
def test_characters_of_a_cut_and_original_bytes_agree(text: str, data: st.DataObject) -> None:
    revealed = MaskedText(text.encode(), reveal=True).fit(0, ALL)
    assert revealed.text == text
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    low, high = revealed.origin(start, end)
    assert text.encode()[low:high].decode() == text[start:end]
    assert revealed.locate(low, high) == (start, end)


def test_a_place_inside_a_masked_value_is_the_whole_of_it() -> None:
    text = f"key {SECRET} end"
    masked = MaskedText(text.encode())
    assert masked.hides(6, 9)
    assert not masked.hides(2, 9)
    cut = masked.around(6, 9, 100)
    assert cut.text == "key [REDACTED:github_token] end"
    low, high = cut.locate(6, 9)
    assert cut.text[low:high] == "[REDACTED:github_token]"
    assert cut.origin(low + 3, low + 5) == (4, 4 + len(SECRET))


@settings(max_examples=25)
@given(
    st.integers(BLOCK_BYTES - 1500, BLOCK_BYTES + 100),
    st.sampled_from([SECRET, PRIVATE_KEY]),
    st.sampled_from(["x ", "語 "]),
)
def test_a_value_across_a_block_is_masked_wherever_a_reader_begins(
    before: int, secret: str, filler: str
) -> None:
    size = len(filler.encode())
    text = filler * (before // size) + secret + " " + filler * (BLOCK_BYTES // size)
    capture = capture_of(text)
    entry = capture.entry(0)
    start = len((filler * (before // size)).encode())
    shown = mask(text).text
    for begin in (0, start - 700, start, start + 10, start + len(secret) // 2, start + len(secret)):
        window = entry_text(capture, entry, begin, begin + 2000)
        cut = window.fit(begin, 2000)
        assert cut.text in shown
        assert cut.start <= begin
        assert (cut.start == begin) == (not start < begin < start + len(secret))


@given(st.integers(0, 1200), st.sampled_from([SECRET, PRIVATE_KEY]), st.integers(1, 600))
@settings(max_examples=25)
def test_the_head_of_a_long_entry_shows_no_part_of_a_secret(
    before: int, secret: str, budget: int
) -> None:
    text = "w " * (before // 2) + secret + " tail" * 1000
    capture = capture_of(text)
    head = entry_head(capture, capture.entry(0), budget)
    assert len(head.text.encode()) <= budget
    assert mask(text).text.startswith(head.text)


@given(st.lists(st.one_of(PIECES, st.just("word " * 60)), max_size=9), st.data())
def test_an_unmasked_stretch_is_one_of_the_whole_text_that_no_value_touches(
    pieces: list[str], data: st.DataObject
) -> None:
    text = "".join(pieces).encode("utf-8", "replace")
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    plain = unmasked_stretch(text, start, stop)
    whole = MaskedText(text)
    if plain is not None:
        assert not any(span.start < stop and start < span.end for span in find_secrets(text))
        assert (plain.start, plain.end) == (whole.floor(start), whole.ceiling(stop))
        assert plain.fit(plain.start, sys.maxsize).text == text[plain.start : plain.end].decode()
