"""What words of identifiers the index knows."""

from __future__ import annotations

import pytest

from sessiondex.indexer.tokens import humped_words, identifier_parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("HTTPServer2x", {"HTTPServer2x": ["http", "server2x"]}),
        ("fooBar_bazQux", {"fooBar": ["foo", "bar"], "bazQux": ["baz", "qux"]}),
        ("ﬁneCargo.toml", {"fineCargo": ["fine", "cargo"]}),  # a ligature
        ("ｆｏｏＢａｒ", {"fooBar": ["foo", "bar"]}),  # full width
        ("StraßeCargo", {"StraßeCargo": ["strasse", "cargo"]}),
        ("検fooBar索", {"fooBar": ["foo", "bar"]}),  # scripts without spaces bind nothing
        ("plain words", {}),
        ("x" * 70 + "Y", {}),  # data, no name
        ("é" * 70 + "aB", {}),
    ],
)
def test_identifiers_have_the_pieces_that_their_humps_make(
    text: str, parts: dict[str, list[str]]
) -> None:
    assert {word: identifier_parts(word) for word in humped_words(text)} == parts
