"""The term index against a naive scan of the same texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tantivy import Query

from sessiondex.errors import Busy, Damaged, Failed
from sessiondex.indexer.folding import fold
from sessiondex.indexer.lexicon import Lexicon
from sessiondex.indexer.term_fields import Filter, KeyRange, term
from sessiondex.indexer.term_index import TermIndex, TermSearcher, facet
from sessiondex.indexer.term_searcher import TimedKey

EVERYTHING = Query.all_query()


def filled(texts: Sequence[str], folder: Path | None = None) -> TermIndex:
    index = TermIndex.create(folder)
    add(index, texts)
    return index


def add(index: TermIndex, texts: Sequence[str], first: int = 0, final: bool = False) -> None:
    writer = index.writer(15_000_000, num_threads=1)
    for number, text in enumerate(texts, first):
        writer.add(key=number, seq=number, time=number, facets=[], text=text)
    writer.commit()
    writer.close(final=final)


def candidates(searcher: TermSearcher, query: str, count: int) -> list[int]:
    plan = searcher.literal(query)
    if plan.mode == "empty":
        return []
    if plan.query is None:
        return list(range(count))
    return searcher.keys(plan.query, Filter(), limit=count + 1)


# ---------------------------------------------------------------- literal

WORDS = st.sampled_from(
    ["cargo", "Cargo.toml", "foo_bar", "fooBar", "a::b", "src/main.py", "--flag",
     "検索する", "実装",
     "日本語テスト",
     "ｶﾞｲﾄﾞ", "한국어", "안녕하세요", "Straße", "ﬁne", "e\u0301te\u0301", "été", "İ", "👍🏽",
     "ไทยภาษา", "हिन्दी", "x" * 1100, "é" * 600, "0f" * 32, "?!", "(", "-", "😀", "a", "b"]
)  # fmt: skip
TEXTS = st.lists(
    st.lists(st.tuples(WORDS, st.sampled_from([" ", "", "\n", "、"]))), max_size=6
).map(lambda rows: ["".join(word + gap for word, gap in row) for row in rows])


@settings(max_examples=120, deadline=None)
@given(TEXTS, st.data())
def test_literal_candidates_hold_every_match_of_a_naive_scan(
    texts: list[str], data: st.DataObject
) -> None:
    searcher = filled(texts).searcher()
    whole = "".join(texts) or "x"
    for _ in range(6):
        start = data.draw(st.integers(0, len(whole) - 1))
        query = whole[start : start + data.draw(st.integers(1, 40))].strip()
        if not query:
            continue
        expected = {n for n, text in enumerate(texts) if fold(query) in fold(text)}
        assert expected <= set(candidates(searcher, query, len(texts))), query


@pytest.mark.parametrize(
    "query", ["argo", "carg", "arg", "oo_ba", "検索", "索す", "n.p", "main", "0f0f", "국", "STRASS"]
)
def test_literal_candidates_are_few_for_a_part_of_a_word(query: str) -> None:
    texts = ["cargo foo_bar", "検索する main.py", "0f0f0f 한국어 Straße", "nothing here", "other"]
    searcher = filled(texts).searcher()
    expected = [n for n, text in enumerate(texts) if fold(query) in fold(text)]
    assert candidates(searcher, query, len(texts)) == expected


def test_a_query_without_words_must_be_scanned() -> None:
    searcher = filled(["→ fine", "::"]).searcher()
    assert searcher.literal("→").mode == "scan"
    assert searcher.literal("::").mode == "scan"


def test_an_emoji_is_a_term_of_its_own() -> None:
    texts = ["ship it🚀now", "👍🏽", "🚀🚀", "rocket"]
    searcher = filled(texts).searcher()
    assert candidates(searcher, "🚀", 4) == [0, 2]
    assert candidates(searcher, "t🚀n", 4) == [0]
    assert candidates(searcher, "👍", 4) == [1]
    assert searcher.literal("🎉").mode == "index"


def test_a_word_that_no_text_holds_is_nowhere() -> None:
    searcher = filled(["fine"]).searcher()
    assert searcher.literal("zebra").mode == "empty"
    assert searcher.literal("x" * 2000).mode == "empty"


def test_a_token_over_a_kibibyte_keeps_its_entry_a_candidate() -> None:
    searcher = filled(["short", "z" * 70_000 + " tail"]).searcher()
    assert candidates(searcher, "z" * 1025, 2) == [1]
    assert candidates(searcher, "zebra", 2) == [1]
    assert candidates(searcher, "tail", 2) == [1]


def test_a_text_over_a_mebibyte_is_found_at_every_place_and_once() -> None:
    text = "".join(f"word{number} " for number in range(220_000))
    index = TermIndex.create(None)
    writer = index.writer()
    assert writer.add(key=7, seq=1, time=None, facets=[], text=text) > 1
    writer.commit()
    searcher = index.searcher()
    for number in range(0, 220_000, 9_973):
        query = f"ord{number} word{number + 1}"
        assert candidates(searcher, query, 2) == [7]
    assert searcher.keys(EVERYTHING, Filter(), limit=10) == [7]
    assert [key for _, key in searcher.scored(EVERYTHING, Filter(), 10)] == [7]
    assert searcher.newest(EVERYTHING, Filter(), limit=10) == [TimedKey(0, 7)]


# ---------------------------------------------------------------- lexicon


def test_terms_stay_findable_through_many_commits_and_few_blobs(tmp_path: Path) -> None:
    index = TermIndex.create(tmp_path)
    texts = [f"alpha{number}omega shared" for number in range(60)]
    for number, text in enumerate(texts):
        add(index, [text], number)
    reopened = TermIndex.open(tmp_path).searcher()
    assert len(list(tmp_path.glob("lexicon-*.terms"))) <= 17
    for number in range(60):
        assert candidates(reopened, f"pha{number}ome", 60) == [number]


def test_a_bulk_batch_is_searchable_before_and_after_its_terms_are_listed(tmp_path: Path) -> None:
    texts = [f"alpha{number}omega " + "filler " * 200 for number in range(1_000)]
    index = TermIndex.create(tmp_path)
    writer = index.writer()
    for number, text in enumerate(texts):
        writer.add(key=number, seq=number, time=None, facets=[], text=text)
    writer.commit()
    assert 77 in candidates(TermIndex.open(tmp_path).searcher(), "pha77om", 1_000)
    writer.close(final=True)
    assert candidates(TermIndex.open(tmp_path).searcher(), "pha77om", 1_000) == [77]
    add(index, ["beta5gamma"], 1_000)
    assert candidates(TermIndex.open(tmp_path).searcher(), "eta5gam", 1_001) == [1_000]


def test_numbers_used_again_after_a_crash_are_not_taken_for_covered(tmp_path: Path) -> None:
    index = filled(["first"], tmp_path)
    lost = index.writer()
    lost.add(key=1, seq=1, time=None, facets=[], text="lost1word")
    lost.commit()
    lost.close()
    writer = index.writer()
    writer.delete_seq_from(1)
    writer.add(key=1, seq=1, time=None, facets=[], text="lost1word again2word")
    writer.commit()
    writer.close()
    searcher = TermIndex.open(tmp_path).searcher()
    assert candidates(searcher, "ost1wor", 2) == [1]
    assert candidates(searcher, "gain2wor", 2) == [1]


# ---------------------------------------------------------------- writer


def test_a_held_searcher_answers_the_same_while_the_index_changes(tmp_path: Path) -> None:
    index = filled(["alpha one", "alpha two"], tmp_path)
    held = index.searcher()
    add(index, ["alpha three"], 2)
    writer = index.writer()
    writer.delete_seq_from(0)
    writer.commit()
    writer.close(final=True)
    assert candidates(held, "lpha", 5) == [0, 1]
    assert candidates(index.searcher(), "lpha", 5) == []


def test_a_second_writer_is_busy(tmp_path: Path) -> None:
    index = filled(["x"], tmp_path)
    writer = index.writer()
    with pytest.raises(Busy):
        TermIndex.open(tmp_path).writer()
    writer.close()
    TermIndex.open(tmp_path).writer().close()


def test_a_writer_that_failed_leaves_room_for_the_next_while_its_error_is_kept(
    tmp_path: Path,
) -> None:
    index = filled(["x"], tmp_path)
    writer = index.writer()
    with pytest.raises(Failed) as kept:
        writer.add(key=-1, seq=1, time=None, facets=[], text="no key is negative")
    with pytest.raises(Failed, match="closed"):
        writer.add(key=1, seq=1, time=None, facets=[], text="y")
    writer.close()
    add(index, ["alpha"], 1)
    assert candidates(index.searcher(), "lpha", 2) == [1]
    assert kept.value.__traceback__ is not None


def test_a_writer_that_cannot_be_opened_leaves_room_for_the_next_while_its_error_is_kept(
    tmp_path: Path,
) -> None:
    filled(["alpha beta"], tmp_path)
    index = TermIndex.open(tmp_path)
    blob = next(tmp_path.glob("lexicon-*.terms"))
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-3])
    with pytest.raises(Damaged) as kept:
        index.writer()
    blob.write_bytes(whole)
    index.writer().close()
    assert kept.value.__traceback__ is not None


def test_a_commit_that_does_not_hold_what_was_expected_fails_and_ends_the_writer() -> None:
    writer = TermIndex.create(None).writer()
    writer.add(key=1, seq=1, time=None, facets=[], text="x")
    with pytest.raises(Failed):
        writer.commit(expected_documents=2)
    with pytest.raises(Failed):
        writer.add(key=2, seq=2, time=None, facets=[], text="y")


def test_deleting_sessions_leaves_the_others() -> None:
    index = TermIndex.create(None)
    writer = index.writer()
    for session in range(4):
        for ordinal in range(3):
            key = session << 32 | ordinal
            writer.add(key=key, seq=key & 15, time=None, facets=[], text="x")
    writer.commit()
    writer.delete_sessions([1, 3])
    assert writer.commit() == 6
    keys = index.searcher().keys(EVERYTHING, Filter(), limit=99)
    assert [key >> 32 for key in keys] == [0, 0, 0, 2, 2, 2]


def test_a_folder_that_cannot_be_written_to_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(["alpha"], tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    index = TermIndex.open(tmp_path)
    assert index.is_read_only
    assert candidates(index.searcher(), "lph", 1) == [0]
    with pytest.raises(Failed):
        index.writer()


def test_a_folder_without_an_index_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(Damaged):
        TermIndex.open(tmp_path)


def test_a_cut_lexicon_blob_is_damaged(tmp_path: Path) -> None:
    filled(["alpha beta"], tmp_path)
    blob = next(tmp_path.glob("lexicon-*.terms"))
    blob.write_bytes(blob.read_bytes()[:-3])
    with pytest.raises(Damaged, match="lexicon"):
        TermIndex.open(tmp_path).searcher()


# ---------------------------------------------------------------- keys

ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.one_of(st.none(), st.integers(0, 3)), st.booleans()),
    max_size=30,
    unique_by=lambda row: row[0],
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 7), st.booleans(), st.integers(0, 40), st.integers(0, 40))
def test_pages_by_key_and_by_time_visit_each_hit_once_in_order(
    rows: list[tuple[int, int | None, bool]], limit: int, descending: bool, low: int, high: int
) -> None:
    index = TermIndex.create(None)
    writer = index.writer(15_000_000, num_threads=1)
    red = facet("flag", "red")
    seqs = {row[0]: seq for seq, row in enumerate([*rows[::2], *rows[1::2]])}
    for half in (rows[::2], rows[1::2]):
        for key, time, is_red in half:
            facets = [red] if is_red else []
            writer.add(key=key, seq=seqs[key], time=time, facets=facets, text="x")
        writer.commit()
    searcher = index.searcher()
    filters = Filter(facets=((red, 1),), keys=(KeyRange(low, high),), seq_below=20)
    expected = [
        (key, 0 if time is None else time + 1)
        for key, time, is_red in rows
        if is_red and low <= key < high and seqs[key] < 20
    ]

    keys: list[int] = []
    while page := searcher.keys(
        term("body", "x"),
        filters,
        limit=limit,
        descending=descending,
        after=keys[-1] if keys and not descending else None,
        before=keys[-1] if keys and descending else None,
    ):
        assert len(page) <= limit
        keys += page
    assert keys == sorted((key for key, _ in expected), reverse=descending)

    times: list[TimedKey] = []
    while page := searcher.newest(
        term("body", "x"), filters, after=times[-1] if times else None, limit=limit
    ):
        assert len(page) <= limit
        times += page
    assert times == sorted(
        (TimedKey(time, key) for key, time in expected), key=lambda hit: (-hit.time, hit.key)
    )


@settings(max_examples=30, deadline=None)
@given(ROWS, st.integers(0, 3), st.integers(0, 3))
def test_times_are_filtered_inclusively(
    rows: list[tuple[int, int | None, bool]], since: int, until: int
) -> None:
    index = TermIndex.create(None)
    writer = index.writer(15_000_000, num_threads=1)
    for key, time, _ in rows:
        writer.add(key=key, seq=key, time=time, facets=[], text="x")
    writer.commit()
    keys = index.searcher().keys(EVERYTHING, Filter(since=since, until=until), limit=99)
    assert keys == sorted(
        key for key, time, _ in rows if time is not None and since <= time <= until
    )


def test_a_filter_does_not_change_scores() -> None:
    index = TermIndex.create(None)
    writer = index.writer()
    for number, text in enumerate(["apple", "apple apple pie", "pie"]):
        facets = [facet("kind", "user")]
        writer.add(key=number, seq=number, time=None, facets=facets, text=text)
    writer.commit()
    searcher = index.searcher()
    filters = Filter(facets=((facet("kind", "user"),),), keys=(KeyRange(0, 9),), since=None)
    assert searcher.scored(term("body", "apple"), filters, 10) == searcher.scored(
        term("body", "apple"), Filter(), 10
    )


def test_a_lexicon_that_is_taken_away_while_it_is_opened_covers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = TermIndex.create(tmp_path)
    add(index, ["cargo toml"], final=True)
    assert Lexicon.load(tmp_path).names

    def vanish(path: Path, size: int) -> None:
        for each in tmp_path.glob("lexicon*"):
            each.unlink()
        raise FileNotFoundError(2, "gone", str(path))

    monkeypatch.setattr("sessiondex.indexer.lexicon._map", vanish)
    assert Lexicon.load(tmp_path).names == ()
