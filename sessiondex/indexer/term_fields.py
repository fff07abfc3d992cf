"""The fields of the term index, the codes of filter values, and filters as queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import tantivy
from tantivy import FieldType, Occur, Query

_INVERTED_RANGE: Final = 5_000
"""Keys; up to here a range reads the dictionary faster than the column (measured)."""
_TERM_SET: Final = 100
"""Values; up to here an OR of terms is faster than a term set (measured)."""


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for name in ("key", "seq", "time"):
        builder.add_unsigned_field(name, indexed=True, fast=True)
    builder.add_unsigned_field("facet", indexed=True)
    builder.add_text_field("body", tokenizer_name="words", index_option="position")
    builder.add_text_field("parts", tokenizer_name="words", index_option="freq")
    return builder.build()


SCHEMA: Final = _schema()
"""Nothing is stored: the index answers with keys."""


def facet(name: str, value: str) -> int:
    """The code of a filter value, like `facet("kind", "user")`."""
    digest = blake2b(f"{name}:{value}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


SCAN: Final = facet("scan", "1")
"""Marks entries whose text the index does not hold whole."""


def time_code(timestamp: int | None) -> int:
    """A timestamp in epoch milliseconds as the index keeps it; 0 is none."""
    return 0 if timestamp is None else max(timestamp, 0) + 1


class KeyRange(NamedTuple):
    """Keys from `first` up to, not including, `stop`."""

    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Filter:
    """What narrows a query without scoring; every part must hold."""

    facets: tuple[tuple[int, ...], ...] = ()
    """Groups of which each needs any one."""
    without: tuple[int, ...] = ()
    keys: tuple[KeyRange, ...] | None = None
    """Any of these ranges; None is everywhere."""
    seq_below: int | None = None
    since: int | None = None
    """Epoch milliseconds, inclusive; entries without a time do not pass."""
    until: int | None = None

    def clauses(self) -> list[tuple[Occur, Query]]:
        """The clauses of a boolean query, all with score 0 (`seq_below` is the searcher's)."""
        found = [(Occur.Must, _silent(any_facet(group))) for group in self.facets]
        found += [(Occur.MustNot, term("facet", code)) for code in self.without]
        if self.keys is not None:
            ranges = [range_query("key", *keys) for keys in self.keys]
            found.append((Occur.Must, _silent(any_of(ranges))))
        if self.since is not None or self.until is not None:
            first = time_code(self.since or 0)
            stop = None if self.until is None else time_code(self.until) + 1
            found.append((Occur.Must, _silent(range_query("time", first, stop))))
        return found


def _silent(query: Query) -> Query:
    # A filter clause would add to the BM25 score.
    return Query.const_score_query(query, 0.0)


def term(field: str, value: str | int) -> Query:
    """Documents with a term, scored."""
    return Query.term_query(SCHEMA, field, value)


def any_of(queries: Iterable[Query]) -> Query:
    """Documents that match at least one of the queries; none for no queries."""
    queries = list(queries)
    if not queries:
        return Query.empty_query()
    if len(queries) == 1:
        return queries[0]
    return Query.boolean_query([(Occur.Should, query) for query in queries])


def all_of(queries: Iterable[Query]) -> Query:
    """Documents that match all of the queries; all for no queries."""
    queries = list(queries)
    if not queries:
        return Query.all_query()
    if len(queries) == 1:
        return queries[0]
    return Query.boolean_query([(Occur.Must, query) for query in queries])


def any_term(field: str, values: list[str]) -> Query:
    """Documents with any of the terms, without a score when they are many."""
    if len(values) > _TERM_SET:
        return Query.term_set_query(SCHEMA, field, values)
    return any_of(term(field, value) for value in values)


def any_facet(codes: Iterable[int]) -> Query:
    """Documents with any of the facets."""
    return any_of(term("facet", code) for code in codes)


def phrase(words: list[str]) -> Query:
    """Documents that hold the terms one after the other."""
    if len(words) == 1:
        return term("body", words[0])
    return Query.phrase_query(SCHEMA, "body", list(words))


def range_query(field: str, first: int, stop: int | None) -> Query:
    """Documents whose number is at least `first` and below `stop`."""
    if stop is not None and stop <= first:
        return Query.empty_query()
    return Query.range_query(
        SCHEMA,
        field,
        FieldType.Unsigned,
        first,
        None if stop is None else stop - 1,
        use_inverted_index=stop is not None and stop - first <= _INVERTED_RANGE,
    )
