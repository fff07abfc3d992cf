"""Queries over one state of the term index: literal plans, keys in order, scores.

Knows terms and keys, not entries: what is returned for a literal query still has to be verified.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, cast

import tantivy
from tantivy import Occur, Order, Query

from sessiondex.indexer import term_fields as fields
from sessiondex.indexer.engine import engine_errors
from sessiondex.indexer.folding import fold
from sessiondex.indexer.lexicon import Lexicon
from sessiondex.indexer.term_fields import SCAN, Filter, KeyRange
from sessiondex.indexer.tokens import MAX_TOKEN_BYTES, QueryToken, query_tokens

MAX_EXPANSION: Final = 1_000
"""Terms; a cut word that fits more is common, and reading in order is faster (measured)."""
_MAX_PHRASES: Final = 64
"""Combinations of edge terms that are looked up as phrases; with more, as words anywhere."""

_KEYS: Final = 1 << 63
"""Above every key: session ordinals have 31 bits."""


class LiteralPlan(NamedTuple):
    """Where a literal query can stand.

    `empty`: nowhere; `index`: only where `query` matches; `scan`: anywhere.
    """

    mode: Literal["empty", "index", "scan"]
    query: Query | None = None


class TimedKey(NamedTuple):
    """A hit in order of time; `time` is the index's code, 0 where the entry has none."""

    time: int
    key: int


class ScoredKey(NamedTuple):
    """A hit in order of relevance."""

    score: float
    key: int


class TermSearcher:
    """One commit of the term index; answers the same for as long as it is held."""

    def __init__(
        self, searcher: tantivy.Searcher, words: tantivy.TextAnalyzer, lexicon: Lexicon
    ) -> None:
        self._searcher = searcher
        self._words = words
        self.lexicon = lexicon
        self._marks: dict[int, bool] = {}

    @property
    def document_count(self) -> int:
        """Documents, of which a very long entry has several."""
        return self._searcher.num_docs

    # ------------------------------------------------------------ terms

    def tokens(self, folded: str) -> list[QueryToken]:
        """The terms of a folded query."""
        return query_tokens(folded, self._words)

    def has_term(self, term: str) -> bool:
        """Whether any document, deleted ones included, has the term."""
        return self._searcher.doc_freq("body", term) > 0

    def document_frequency(self, term: str) -> int:
        """How many documents have the term."""
        return self._frequency("body", term)

    def all_terms(self) -> list[str]:
        """Every term; costs the whole dictionary."""
        return self.prefixed("", None) or []

    def prefixed(self, beginning: str, limit: int | None) -> list[str] | None:
        """Terms that begin with the text; None when there are more than the limit."""
        with engine_errors("list the terms of the index"):
            found = self._searcher.terms_with_prefix(
                "body", beginning, limit=None if limit is None else limit + 1
            )
        if limit is not None and len(found) > limit:
            return None
        return [term for term, _ in found]

    def containing(self, part: str, limit: int) -> list[str] | None:
        """Covered terms that hold the text anywhere; None when there are more than the limit."""
        return self.lexicon.containing(part, limit)

    # ------------------------------------------------------------ literal

    def literal(self, query: str) -> LiteralPlan:
        """Where a trimmed literal can stand: may be too much, never too little."""
        tokens = self.tokens(fold(query))
        if any(len(token.text.encode()) > MAX_TOKEN_BYTES for token in tokens):
            # Its term was left out of the index wherever it stands.
            return self._candidates(Query.empty_query(), is_empty=True)
        exact = [token.text for token in tokens if not (token.left_open or token.right_open)]
        rows = [exact]
        constraints: list[Query] = []
        has_cut_word = False
        for token in tokens:
            if not (token.left_open or token.right_open):
                continue
            has_cut_word = has_cut_word or token.left_open
            terms = self._expanded(token)
            if terms is None:
                continue
            if len(rows) * len(terms) > _MAX_PHRASES:
                constraints.append(fields.any_term("body", terms))
            elif token.left_open:
                rows = [[term, *row] for term in terms for row in rows]
            else:
                rows = [[*row, term] for term in terms for row in rows]
        if rows == [[]] and not constraints:
            return LiteralPlan("scan")
        if not rows:
            constraints = [Query.empty_query()]
        elif rows != [[]]:
            constraints.append(fields.any_of(fields.phrase(row) for row in rows))
        plan = fields.all_of(constraints)
        below_seq = self.lexicon.coverage.below_seq
        if has_cut_word and self._reaches(below_seq):
            uncovered = [fields.range_query("seq", below_seq, None)]
            if exact:
                uncovered.append(fields.phrase(exact))
            return self._candidates(fields.any_of([plan, fields.all_of(uncovered)]))
        return self._candidates(plan, is_empty=not rows)

    def _expanded(self, token: QueryToken) -> list[str] | None:
        """The terms that a cut word may be part of; None when they are too many."""
        if not token.left_open:
            return self.prefixed(token.text, MAX_EXPANSION)
        if token.right_open:
            return self.lexicon.containing(token.text, MAX_EXPANSION)
        return self.lexicon.suffixed(token.text, MAX_EXPANSION)

    def _candidates(self, query: Query, *, is_empty: bool = False) -> LiteralPlan:
        if self._frequency("facet", SCAN):
            return LiteralPlan("index", fields.any_of([query, fields.term("facet", SCAN)]))
        return LiteralPlan("empty") if is_empty else LiteralPlan("index", query)

    # ------------------------------------------------------------ keys

    def keys(
        self,
        query: Query,
        filters: Filter,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int,
        descending: bool = False,
    ) -> list[int]:
        """The first distinct keys that match, ascending or descending, between two keys."""
        found: list[int] = []
        first, stop = 0 if after is None else after + 1, _KEYS if before is None else before
        while len(found) < limit and first < stop:
            wanted = limit - len(found)
            hits = self._search(
                self._filtered(query, _narrowed(filters, first, stop)),
                wanted,
                field="key",
                descending=descending,
            )
            # A very long entry is several documents.
            found += dict.fromkeys(key for key, _ in hits)
            if len(hits) < wanted:
                break
            if descending:
                stop = found[-1]
            else:
                first = found[-1] + 1
        return found

    def newest(
        self, query: Query, filters: Filter, *, after: TimedKey | None = None, limit: int
    ) -> list[TimedKey]:
        """The first hits by time, latest first, ties by key; exact from page to page."""
        found: list[TimedKey] = []
        bound = None
        if after is not None:
            found = self._at_time(query, filters, after.time, after.key, limit)
            bound = after.time
        while len(found) < limit and bound != 0:
            wanted = limit - len(found)
            clauses = [] if bound is None else [fields.range_query("time", 0, bound)]
            hits = self._search(
                self._filtered(fields.all_of([query, *clauses]), filters),
                wanted,
                field="time",
                descending=True,
            )
            if not hits:
                break
            last = hits[-1][0]
            is_all = len(hits) < wanted
            # Documents of one time come in no order that lasts: those of the last are asked anew.
            whole = [hit for hit in hits if is_all or hit[0] > last]
            keys = self._values("key", whole)
            rows = zip(whole, keys, strict=True)
            found += sorted(
                {TimedKey(time, key) for (time, _), key in rows},
                key=lambda hit: (-hit.time, hit.key),
            )
            if is_all:
                break
            found += self._at_time(query, filters, last, None, limit - len(found))
            bound = last
        return found

    def _at_time(
        self, query: Query, filters: Filter, time: int, after: int | None, limit: int
    ) -> list[TimedKey]:
        if limit <= 0:
            return []
        at_time = fields.all_of([query, fields.term("time", time)])
        keys = self.keys(at_time, filters, after=after, limit=limit)
        return [TimedKey(time, key) for key in keys]

    def scored(self, query: Query, filters: Filter, limit: int) -> list[ScoredKey]:
        """The best hits by score, ties by key."""
        filtered = self._filtered(query, filters)
        wanted = limit + 1
        hits = self._search(filtered, wanted)
        while len(hits) == wanted and hits[limit - 1][0] == hits[-1][0] and wanted < 16 * limit:
            # Ties are cut by key, not by where the engine keeps them.
            wanted *= 2
            hits = self._search(filtered, wanted)
        best: dict[int, float] = {}
        for (score, _), key in zip(hits, self._values("key", hits), strict=True):
            best.setdefault(key, score)
        order = sorted(best.items(), key=lambda hit: (-hit[1], hit[0]))
        return [ScoredKey(score, key) for key, score in order[:limit]]

    def count(self, query: Query, filters: Filter) -> int:
        """How many documents match."""
        with engine_errors("search the term index"):
            result = self._searcher.search(self._filtered(query, filters), limit=1)
        return cast(Any, result).count  # missing from the stubs

    def count_seqs(self, first: int, last: int) -> int:
        """How many documents have a `seq` from `first` through `last`."""
        return self.count(fields.range_query("seq", first, last + 1), Filter())

    def last_seq(self) -> int:
        """The highest `seq`; -1 in an empty index."""
        hits = self._search(Query.all_query(), 1, field="seq", descending=True)
        return hits[0][0] if hits else -1

    # ------------------------------------------------------------ engine

    def _reaches(self, seq: int) -> bool:
        """Whether there are documents at or past the mark."""
        if seq not in self._marks:
            self._marks[seq] = bool(self._search(fields.range_query("seq", seq, None), 1))
        return self._marks[seq]

    def _filtered(self, query: Query, filters: Filter) -> Query:
        clauses = filters.clauses()
        if filters.seq_below is not None and self._reaches(filters.seq_below):
            # Rare (a writer is at work), and dear: so it is no part of every query.
            below = fields.range_query("seq", 0, filters.seq_below)
            clauses.append((Occur.Must, Query.const_score_query(below, 0.0)))
        if not clauses:
            return query
        return Query.boolean_query([(Occur.Must, query), *clauses])

    def _search(
        self, query: Query, limit: int, *, field: str | None = None, descending: bool = False
    ) -> list[tuple[Any, tantivy.DocAddress]]:
        with engine_errors("search the term index"):
            return self._searcher.search(
                query,
                limit,
                count=False,
                order_by_field=field,
                order=Order.Desc if descending else Order.Asc,
            ).hits

    def _frequency(self, field: str, value: str | int) -> int:
        with engine_errors("search the term index"):
            return self._searcher.doc_freq(field, value)

    def _values(self, field: str, hits: list[tuple[Any, tantivy.DocAddress]]) -> list[int]:
        with engine_errors("search the term index"):
            values = self._searcher.fast_field_values(field, [address for _, address in hits])
        return cast(list[int], values)


def _narrowed(filters: Filter, first: int, stop: int) -> Filter:
    """The filter within a range of keys, so that short ranges are known to be short."""
    if first == 0 and stop == _KEYS:
        return filters
    inside = (
        KeyRange(max(keys.first, first), min(keys.stop, stop))
        for keys in filters.keys or (KeyRange(first, stop),)
    )
    return replace(filters, keys=tuple(keys for keys in inside if keys.first < keys.stop))
