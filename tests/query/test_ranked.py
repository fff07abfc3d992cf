"""The syntax of ranked queries and what they find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.indexer.folding import fold
from sessiondex.indexer.term_fields import Filter
from sessiondex.indexer.term_index import TermIndex
from sessiondex.query.ranked import (
    AllOf,
    AnyOf,
    Exclusion,
    Field,
    ParsedQuery,
    Phrase,
    Prefix,
    Word,
    parse,
)
from sessiondex.query.ranked_plan import STEPS, Marker, Step, plan


def found(query: str, texts: list[str]) -> list[int]:
    """Numbers of the texts that a query finds, best first; relaxes as a search does."""
    index = TermIndex.create(None)
    writer = index.writer(15_000_000, num_threads=1)
    for number, text in enumerate(texts):
        writer.add(key=number, seq=number, time=None, facets=[], text=text)
    writer.commit()
    searcher = index.searcher()
    for step in STEPS:
        made = plan(parse(query).root, searcher, step)
        hits = [
            key
            for _, key in searcher.scored(made.query, Filter(), 100)
            if made.verify is None or made.verify(fold(texts[key]))
        ]
        if hits:
            return hits
    return []


def test_all_of_the_syntax_parses() -> None:
    assert parse('cargo "build failed" conf* -warning tool:Bash rust OR go') == ParsedQuery(
        AllOf(
            (
                Word("cargo"),
                Phrase("build failed"),
                Prefix("conf"),
                Exclusion(Word("warning")),
                AnyOf((Word("rust"), Word("go"))),
            )
        ),
        (Field("tool", "Bash"),),
    )


def test_groups_and_excluded_fields_parse() -> None:
    assert parse('(a b) OR c -kind:tool project:"my dir"') == ParsedQuery(
        AllOf((AnyOf((AllOf((Word("a"), Word("b"))), Word("c"))),)),
        (Field("kind", "tool", is_excluded=True), Field("project", "my dir")),
    )


@pytest.mark.parametrize("query", ["main()", "f(x, y)", "--flag", "don't", "a-b", "C++", "- b"])
def test_punctuation_inside_words_is_no_syntax(query: str) -> None:
    assert parse(query) == ParsedQuery(AllOf(tuple(Word(word) for word in query.split())))


@pytest.mark.parametrize(
    "query",
    ["a::b", "(", ")", "AND", "OR", "x OR", "AND x", '"open', "a (b", "-only", "http://x.y", "()"],
)
def test_what_does_not_parse_becomes_words_and_says_so(query: str) -> None:
    parsed = parse(query)
    assert parsed.root == AllOf(tuple(Word(word) for word in query.split()))
    assert parsed.note.startswith("searched as plain words: ")


@given(st.text('ab":()-* ORAND', max_size=20))
def test_parsing_never_fails(query: str) -> None:
    assert parse(query).root is not None


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("cargo", "run Cargo now"),
        ("foo", "the fooBar call"),
        ("bar", "the fooBar call"),
        ("fooBar", "the fooBar call"),
        ("fooBar", "the foo_bar call"),
        ("foo_bar", "the foo_bar call"),
        ("server", "HTTPServer"),
        ("src/main.py", "open src/main.py"),
        ("main.py", "open src/main.py"),
        ("foo-bar", "x foo-bar y"),
        ("resume", "mon résumé"),
        ("résumé", "my resume"),
        ("re\u0301sume\u0301", "mon résumé"),
        ("検索", "全文検索する"),
        ("索す", "全文検索する"),
        ("안녕", "안녕하세요"),
        ("conf*", "the configuration"),
        ("src/ma*", "open src/main.py"),
        ("a::b", "call a::b here"),
        ("(", "f ( x"),
        ("👍", "well 👍 done"),
        ("AND", "this and that"),
        ('"open quote', "an open door with a quote"),
        ("nfigur", "the configuration"),
        ("fig ration", "the configuration"),
        ("z" * 30, "z" * 5000),
        ("configuartion", "the configuration"),
        ("confguration", "the configuration"),
        ("maim_looop", "the main_loop"),
    ],
)
def test_a_needle_is_found_alone(query: str, text: str) -> None:
    assert found(query, ["other words entirely", text, "nothing"]) == [1]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("red green", {2}),
        ("red OR green", {0, 1, 2}),
        ("red -green", {0}),
        ('"green red"', {2}),
        ('"red green"', set()),
        ("(red OR blue) -green", {0, 3}),
    ],
)
def test_operators_combine_words(query: str, expected: set[int]) -> None:
    assert set(found(query, ["red", "green", "green red", "blue"])) == expected


def test_a_typo_does_not_tear_a_word_apart() -> None:
    assert found("main_loop", ["main of loop", "loop main"]) == []
    assert found("maim_loop OR zebar", ["main of loop", "a zebra"]) == [1]


def test_a_word_ranks_above_the_same_word_inside_an_identifier() -> None:
    assert found("parser", ["fooParser x y z", "parser x y z"]) == [1, 0]


@pytest.mark.parametrize(
    ("query", "step", "text", "marked"),
    [
        ("cargo", "exact", "a Cargo cargos CARGO", ["Cargo", "CARGO"]),
        ("resume", "exact", "mon Résumé", ["Résumé"]),
        ("bar", "exact", "the fooBar", ["Bar"]),
        ("foo_bar", "exact", "a foo_bar", ["foo_bar"]),
        ("conf*", "exact", "my config", ["config"]),
        ("検索", "exact", "全文検索", ["検索"]),
        ("nfig", "infix", "my config", ["nfig"]),
        ("cofnig", "typo", "my config", ["config"]),
        ("👍", "exact", "so👍🏽 👎", ["👍"]),
    ],
)
def test_the_marked_text_is_what_matched(
    query: str, step: Step, text: str, marked: list[str]
) -> None:
    marker = Marker(parse(query).root, TermIndex.create(None).searcher(), step)
    assert [text[start:end] for start, end in marker.find(text, 8).spans] == marked
