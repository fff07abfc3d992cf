"""Folding, and the way back to source characters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiondex.indexer.folding import FoldMap, find_spans, fold, fold_accents

NASTY = (
    "aestfiAESTFI .-_ﬁﬀßẞİıſK㍿①½"
    "\u0301\u0308\u0345\u0327\u05b0ΐͅᾳΣς각"
    "\u1100\u1161\u11a8\u3131\u314fｶﾞﾊﾟがカ\u3099日本語👍🏽\u0e33\ufb1d\u1e9b\u0323\ufdfa\u200d\n"
)
nasty = st.text(st.one_of(st.sampled_from(NASTY), st.characters(exclude_categories=["Cs"])))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ＣＡＲＧＯ", "Cargo.toml"),
        ("strasse", "Straße"),
        ("STRASSE", "die Straße"),
        ("株式会社", "㍿テスト"),
        ("ガ", "ｶﾞｲﾄﾞ"),
        ("i̇", "İ"),
        ("각", "\u1100\u1161\u11a8"),
    ],
)
def test_folding_makes_query_and_text_equal(query: str, text: str) -> None:
    assert fold(query) in fold(text)


@given(nasty)
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@settings(max_examples=500)
@given(nasty)
def test_folding_by_pieces_equals_folding_the_whole(text: str) -> None:
    assert FoldMap(text).folded == fold(text)


@settings(max_examples=500)
@given(nasty, nasty, nasty)
def test_every_span_folds_to_something_that_holds_the_query(
    before: str, middle: str, after: str
) -> None:
    text = before + middle + after
    folded = fold(text)
    query = folded[len(folded) // 3 : len(folded) // 3 + 3] or "x"
    spans, more = find_spans(text, query, 100)
    assert bool(spans) == (query in folded)
    assert more == 0
    previous = 0
    for start, stop in spans:
        assert previous <= start < stop <= len(text)
        assert query in fold(text[start:stop])
        previous = stop


@given(st.text("ab"), st.text("ab", min_size=1, max_size=2), st.integers(0, 3))
def test_spans_of_ascii_are_those_of_str_find(text: str, query: str, limit: int) -> None:
    expected: list[tuple[int, int]] = []
    at = text.find(query)
    while at >= 0:
        expected.append((at, at + len(query)))
        at = text.find(query, at + len(query))
    spans, more = find_spans(text, query, limit)
    assert spans == expected[:limit]
    assert more == len(expected) - len(spans)


def test_a_match_inside_a_folded_piece_covers_all_of_it() -> None:
    assert find_spans("of ﬁne", "f", 9).spans == [(1, 2), (3, 4)]
    assert find_spans("aﬀb", "f", 9).spans == [(1, 2)]
    assert find_spans("x ㍿ y", "式", 9).spans == [(2, 3)]
    assert find_spans("e\u0301t\u00e9", "é", 9).spans == [(0, 2), (3, 4)]
    assert find_spans("ｶﾞｲ", "ガ", 9).spans == [(0, 2)]


def test_accents_fold_away_for_words_only() -> None:
    assert fold_accents("Résumé Łódź ÆØ") == "resume lodz aeo"
    assert fold_accents("각がカ゛") == fold("각がカ゛")


@given(nasty, st.integers(1, 5))
def test_a_long_text_maps_like_a_short_one(text: str, copies: int) -> None:
    padding = "b" + "é" * 9_000 + "a"
    whole = (padding + text) * copies
    spans, more = find_spans(whole, fold("b" + "é" * 9_000), 9)
    length = len(padding + text)
    assert [start for start, _ in spans] == [length * number for number in range(copies)]
    assert FoldMap(whole).folded == fold(whole)
    assert more == 0
