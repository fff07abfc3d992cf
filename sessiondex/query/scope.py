"""Where a search looks, and its candidates in order: what all scopes share, and one capture."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from tantivy import Query

from sessiondex.errors import Damaged, Failed, InvalidArgument, Stale
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.term_fields import Filter, KeyRange, time_code
from sessiondex.indexer.term_index import TermIndex, TermSearcher
from sessiondex.indexer.term_searcher import ScoredKey, TimedKey
from sessiondex.limits import RANKED_HITS
from sessiondex.model import Entry, EntryRef
from sessiondex.query.filters import Filters
from sessiondex.query.request import SearchRequest
from sessiondex.query.selection import range_bounds
from sessiondex.query.text_scan import TextScan

ORDINAL: Final = (1 << 32) - 1
"""The part of a key that is the ordinal; above it stands the session ordinal."""

_FIRST_CHUNK: Final = 32
_LAST_CHUNK: Final = 4096
_NEIGHBOURS: Final = 16
"""Entries between two that are asked for are read along rather than apart."""
MAX_LOOSE: Final = 20_000
"""Entries beyond the index that a ranked query indexes in memory."""


_Place = TypeVar("_Place")


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """What the index is asked for candidates."""

    compile: Callable[[TermSearcher], Query | None]
    """None for everything."""
    needs_index: bool = False
    """Only an index can tell (ranked): entries that are not indexed yet are, in memory."""


class Found(NamedTuple):
    """What stands behind a key."""

    capture: Capture
    entry: Entry


class AlsoIn(NamedTuple):
    """Sessions that hold a copy of a hit: some of their ids, and how many there are."""

    sessions: list[str]
    total: int


class Scope(Protocol):
    """Candidates in three orders, and what stands behind their keys."""

    @property
    def state(self) -> tuple[int, ...]:
        """For the cursor: equal states see the same entries."""
        ...

    @property
    def token(self) -> str:
        """The identity that a reply carries."""
        ...

    @property
    def has_grown(self) -> bool:
        """Whether there are entries now that the state does not see."""
        ...

    def by_key(self, query: CandidateQuery, *, after: int | None) -> Iterator[int]:
        """Keys in source order behind a key."""
        ...

    def by_time(self, query: CandidateQuery, *, after: TimedKey | None) -> Iterator[TimedKey]:
        """Keys by time, the latest first, behind a hit."""
        ...

    def by_score(self, query: CandidateQuery) -> list[ScoredKey]:
        """The best keys by score; some may have nothing behind them."""
        ...

    def found(self, keys: Iterable[int], scan: TextScan | None = None) -> Iterator[Found | None]:
        """What stands behind keys, in their order.

        None for what is not (any more) in scope, and for what `scan` tells not to match.
        """
        ...

    def total(self, codes: frozenset[int]) -> int | None:
        """How many entries of some kinds there are, where that is free."""
        ...

    def is_collapsed(self, found: Found) -> bool:
        """Whether a hit is a copy that another hit stands for."""
        ...

    def also_in(self, found: Found) -> AlsoIn | None:
        """Who else holds the entry; None where no library is asked."""
        ...


class CaptureScope:
    """One capture, up to a number of entries; what is not indexed is looked at one by one."""

    def __init__(
        self,
        capture: Capture,
        request: SearchRequest,
        filters: Filters,
        *,
        state: tuple[int, ...] | None = None,
    ) -> None:
        """Raises:
        Stale: the state, or a ref of the token, is of a generation that was rewritten.
        NotFound: a ref names no entry.
        """
        if state is None:
            state = (capture.generation, capture.entry_count)
        elif state[0] != capture.generation:
            raise Stale(
                "the session was rewritten since the first page", hint="search again from the start"
            )
        self.state = state
        self.token = capture.token
        self.has_grown = capture.entry_count != state[1]
        self._capture = capture
        self._filters = filters
        begin, end = request.range_refs
        refs: list[EntryRef] = [ref for ref in (begin, end, *request.refs) if ref is not None]
        capture.admit(request.capture, refs)
        first, stop = range_bounds(capture, begin, end)
        stop = max(first, min(stop, state[1]))
        self._ordinals: list[int] | range = range(first, stop)
        if request.refs:
            named = {capture.ordinal(ref) for ref in request.refs}
            self._ordinals = sorted(at for at in named if first <= at < stop)
        if not filters.admits_session(capture.row):
            self._ordinals = range(0)
        indexed = capture.tail_first if capture.searcher is not None else 0
        self._indexed = _part(self._ordinals, 0, indexed)
        self._loose = _part(self._ordinals, indexed, state[1])
        self._loose_index: TermSearcher | None = None

    def by_key(self, query: CandidateQuery, *, after: int | None) -> Iterator[int]:
        for searcher, narrowed, compiled in self._indexes(query):
            if compiled is None and not narrowed.facets:
                # All of them, so the index has nothing to tell.
                yield from self._keys(self._indexed, after)
            else:
                yield from hits_behind(searcher.keys, compiled, narrowed, after)
        if not query.needs_index:
            yield from self._keys(self._loose, after)

    def by_time(self, query: CandidateQuery, *, after: TimedKey | None) -> Iterator[TimedKey]:
        streams: list[Iterable[TimedKey]] = [
            hits_behind(searcher.newest, compiled, narrowed, after)
            for searcher, narrowed, compiled in self._indexes(query)
        ]
        if not query.needs_index:
            loose = sorted((self._timed(at) for at in self._loose), key=latest_first)
            streams.append(
                hit for hit in loose if after is None or latest_first(hit) > latest_first(after)
            )
        return heapq.merge(*streams, key=latest_first)

    def by_score(self, query: CandidateQuery) -> list[ScoredKey]:
        found: list[ScoredKey] = []
        for searcher, narrowed, compiled in self._indexes(query):
            found += searcher.scored(compiled or Query.all_query(), narrowed, RANKED_HITS.maximum)
        return sorted(found, key=lambda hit: (-hit.score, hit.key))[: RANKED_HITS.maximum]

    def found(self, keys: Iterable[int], scan: TextScan | None = None) -> Iterator[Found | None]:
        for group in neighbours(keys):
            yield from found_in(self._capture, group, scan)

    def total(self, codes: frozenset[int]) -> int | None:
        if not isinstance(self._ordinals, range):
            return None
        low = self._capture.counts(self._ordinals.start)
        high = self._capture.counts(self._ordinals.stop)
        return sum(high[code] - low[code] for code in codes)

    def is_collapsed(self, found: Found) -> bool:
        return False

    def also_in(self, found: Found) -> AlsoIn | None:
        return None

    def _indexes(
        self, query: CandidateQuery
    ) -> Iterator[tuple[TermSearcher, Filter, Query | None]]:
        searcher, filters = self._capture.searcher, self._filters
        if searcher is not None and self._indexed:
            narrowed = Filter(
                facets=filters.facet_groups(),
                keys=self._ranges(self._indexed),
                since=filters.since,
                until=filters.until,
            )
            yield searcher, narrowed, query.compile(searcher)
        if query.needs_index and self._loose:
            if self._loose_index is None:
                self._loose_index = self._index_loose()
            narrowed = Filter(keys=self._ranges(self._loose))
            yield self._loose_index, narrowed, query.compile(self._loose_index)

    def _index_loose(self) -> TermSearcher:
        if len(self._loose) > MAX_LOOSE:
            raise Failed(
                f"{len(self._loose)} entries are not in the term index",
                hint="run 'sessiondex index', or search for a literal",
            )
        index = TermIndex.create(None)
        writer = index.writer(15_000_000, num_threads=1)
        for at in self._loose:
            entry = self._capture.entry(at)
            writer.add(
                key=self._capture.key_base + at,
                seq=at,
                time=entry.timestamp,
                facets=[],
                text=self._capture.text(entry).decode(),
            )
        writer.commit()
        writer.close()
        return index.searcher()

    def _keys(self, ordinals: Iterable[int], after: int | None) -> Iterator[int]:
        base = self._capture.key_base
        if isinstance(ordinals, range) and after is not None:
            ordinals = range(max(ordinals.start, after - base + 1), ordinals.stop)
        return (base + at for at in ordinals if after is None or base + at > after)

    def _ranges(self, ordinals: list[int] | range) -> tuple[KeyRange, ...]:
        base = self._capture.key_base
        if isinstance(ordinals, range):
            return (KeyRange(base + ordinals.start, base + ordinals.stop),)
        return tuple(KeyRange(base + at, base + at + 1) for at in ordinals)

    def _timed(self, ordinal: int) -> TimedKey:
        timestamp = self._capture.entry(ordinal).timestamp
        return TimedKey(time_code(timestamp), self._capture.key_base + ordinal)


def require_no_refs(request: SearchRequest) -> None:
    """Refuses what only one session can answer.

    Raises:
        InvalidArgument: refs were given.
    """
    if request.refs or request.range_refs != (None, None):
        raise InvalidArgument(
            "entry refs were given for several sessions",
            hint="name one session: a ref is local to its session",
        )


def _part(ordinals: list[int] | range, first: int, stop: int) -> list[int] | range:
    if isinstance(ordinals, range):
        low, high = max(ordinals.start, first), min(ordinals.stop, stop)
        return range(low, max(low, high))
    return [at for at in ordinals if first <= at < stop]


def latest_first(hit: TimedKey) -> tuple[int, int]:
    """The order of `newest`: by time, the latest first, ties by key."""
    return -hit.time, hit.key


class _Find(Protocol[_Place]):
    """A look-up of a searcher: its first hits, in order, behind one."""

    def __call__(
        self, query: Query, filters: Filter, *, after: _Place | None, limit: int
    ) -> list[_Place]: ...


def hits_behind(
    find: _Find[_Place], query: Query | None, filters: Filter, after: _Place | None
) -> Iterator[_Place]:
    """What a look-up finds, asked for in growing portions."""
    chunk = _FIRST_CHUNK
    while True:
        hits = find(query or Query.all_query(), filters, after=after, limit=chunk)
        yield from hits
        if len(hits) < chunk:
            return
        after, chunk = hits[-1], min(chunk * 4, _LAST_CHUNK)


def neighbours(keys: Iterable[int]) -> Iterator[list[int]]:
    """Groups of successive keys of one session that stand close together."""
    group: list[int] = []
    for key in keys:
        if group and not (abs(key - group[-1]) <= _NEIGHBOURS and key >> 32 == group[-1] >> 32):
            yield group
            group = []
        group.append(key)
    if group:
        yield group


def found_in(
    capture: Capture, group: list[int], scan: TextScan | None = None
) -> Iterator[Found | None]:
    """The entries of a group of neighbours; None where a scan tells that one cannot match.

    Raises:
        Damaged: the index names an entry that the capture does not have.
    """
    first, stop = min(group) & ORDINAL, (max(group) & ORDINAL) + 1
    if stop > capture.entry_count:
        raise Damaged(
            f"the term index names entry {stop - 1} of {capture.session!r}, which has"
            f" {capture.entry_count}",
            hint="run 'sessiondex check --repair'",
        )
    if scan is None:
        entries = capture.entries(first, stop)
        yield from (Found(capture, entries[(key & ORDINAL) - first]) for key in group)
        return
    ids, sizes = capture.view.text_places(capture.session_ord, first, min(stop, capture.tail_first))
    may_match = list(scan.may_match(capture.view, ids, sizes))
    for key in group:
        at = key & ORDINAL
        if at >= capture.tail_first or may_match[at - first]:
            yield Found(capture, capture.entry(at))
        else:
            yield None
