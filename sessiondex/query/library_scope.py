"""All sessions of a library as the scope of a search, and copies within it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tantivy import Query

from sessiondex.errors import Failed, InvalidArgument, Stale
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.snapshot import LibrarySnapshot
from sessiondex.indexer.term_fields import Filter, facet
from sessiondex.indexer.term_index import TermSearcher
from sessiondex.indexer.term_searcher import ScoredKey, TimedKey
from sessiondex.limits import ALSO_IN, RANKED_HITS
from sessiondex.model import COPIED
from sessiondex.query.filters import Filters
from sessiondex.query.request import SearchRequest
from sessiondex.query.scope import (
    AlsoIn,
    CandidateQuery,
    Found,
    found_in,
    hits_behind,
    neighbours,
    require_no_refs,
)
from sessiondex.query.text_scan import TextScan

if TYPE_CHECKING:
    from sessiondex.indexer.catalog_rows import SessionRow

_NARROWING_SESSIONS: Final = 1_000
"""Sessions; up to here the index is told which they are, above it their entries are dropped."""

_KEPT_CAPTURES: Final = 64


class LibraryScope:
    """The committed entries of all sessions of a snapshot, up to a mark."""

    def __init__(
        self,
        snapshot: LibrarySnapshot,
        request: SearchRequest,
        filters: Filters,
        *,
        state: tuple[int, ...] | None = None,
    ) -> None:
        """Raises:
        InvalidArgument: refs, or the token of something else, were given.
        Stale: the state is of a library that was rebuilt since.
        """
        require_no_refs(request)
        if snapshot.searcher is None:
            raise Failed(
                "the term index was made by an older release",
                hint="run 'sessiondex index' to rebuild it",
            )
        if request.capture and not request.capture.startswith("l1."):
            raise InvalidArgument(
                "the capture token is not one of this library",
                hint="name the session that it belongs to, or leave it out",
            )
        if state is None:
            state = (snapshot.epoch, snapshot.mark)
        elif state[0] != snapshot.epoch:
            raise Stale(
                "the library was rebuilt since the first page", hint="search again from the start"
            )
        self.state = state
        self.token = f"l1.{snapshot.epoch}.{snapshot.commit}.{snapshot.mark}"
        self.has_grown = snapshot.mark != state[1]
        self._snapshot = snapshot
        self._searcher: TermSearcher = snapshot.searcher
        self._filters = filters
        self._keeps_copies = request.copies
        self._captures: OrderedDict[int, Capture] = OrderedDict()
        self._admitted: dict[int, SessionRow | None] = {}
        groups = filters.facet_groups()
        narrowing = self._session_facets()
        self._narrowed = Filter(
            facets=groups if narrowing is None else (*groups, narrowing),
            seq_below=state[1],
            since=filters.since,
            until=filters.until,
        )

    def by_key(self, query: CandidateQuery, *, after: int | None) -> Iterator[int]:
        compiled = query.compile(self._searcher)
        keys = hits_behind(self._searcher.keys, compiled, self._narrowed, after)
        return (key for key in keys if self._row(key >> 32) is not None)

    def by_time(self, query: CandidateQuery, *, after: TimedKey | None) -> Iterator[TimedKey]:
        compiled = query.compile(self._searcher)
        hits = hits_behind(self._searcher.newest, compiled, self._narrowed, after)
        return (hit for hit in hits if self._row(hit.key >> 32) is not None)

    def by_score(self, query: CandidateQuery) -> list[ScoredKey]:
        compiled = query.compile(self._searcher) or Query.all_query()
        return self._searcher.scored(compiled, self._narrowed, RANKED_HITS.maximum)

    def found(self, keys: Iterable[int], scan: TextScan | None = None) -> Iterator[Found | None]:
        for group in neighbours(keys):
            capture = self._capture(group[0] >> 32)
            if capture is None:
                yield from (None for _ in group)
            else:
                yield from found_in(capture, group, scan)

    def total(self, codes: frozenset[int]) -> int | None:
        return None

    def is_collapsed(self, found: Found) -> bool:
        if self._keeps_copies or not found.capture.flags(found.entry) & COPIED:
            return False
        # Its owner may be outside the filters: then the first holder inside stands for all.
        inside: list[tuple[bool, int]] = []
        for ord, ordinal in self._holders(found):
            if self._row(ord) is None:
                continue
            capture = self._capture(ord)
            if capture is None or ordinal >= capture.entry_count:
                continue
            entry = capture.entry(ordinal)
            flags = capture.flags(entry)
            if self._filters.admits(entry, flags, capture.row):
                inside.append((bool(flags & COPIED), ord << 32 | ordinal))
        own = found.capture.key_base | found.entry.ordinal
        return bool(inside) and min(inside)[1] != own

    def also_in(self, found: Found) -> AlsoIn | None:
        return also_in(self._snapshot, found)

    def _holders(self, found: Found) -> list[tuple[int, int]]:
        identity = found.entry.identity
        return self._snapshot.catalog.holders(identity) if identity else []

    def _row(self, ord: int) -> SessionRow | None:
        """The row of a session that is in the snapshot and admitted."""
        if ord not in self._admitted:
            row = self._snapshot.session_row(ord)
            admitted = row is not None and self._filters.admits_session(row)
            self._admitted[ord] = row if admitted else None
        return self._admitted[ord]

    def _capture(self, ord: int) -> Capture | None:
        found = self._captures.get(ord)
        if found is None:
            row = self._row(ord)
            if row is None:
                return None
            found = Capture(
                row,
                self._snapshot.view,
                mark=self.state[1],
                searcher=self._searcher,
                owner=self._snapshot.library,
            )
            self._captures[ord] = found
            if len(self._captures) > _KEPT_CAPTURES:
                self._captures.popitem(last=False)
        return found

    def _session_facets(self) -> tuple[int, ...] | None:
        """Facets of the sessions that are admitted, if filters leave few of them."""
        if not any(each.sessions or each.projects for each in self._filters.wanted):
            return None
        found: list[int] = []
        for row in self._snapshot.rows():
            if self._filters.admits_session(row):
                found.append(facet("session", str(row.ord)))
                if len(found) > _NARROWING_SESSIONS:
                    return None
        return tuple(found)


def also_in(snapshot: LibrarySnapshot, found: Found) -> AlsoIn:
    """The other sessions of a snapshot that hold an entry."""
    identity = found.entry.identity
    if not identity:
        return AlsoIn([], 0)
    names: set[str] = set()
    for ord, _ in snapshot.catalog.holders(identity):
        row = snapshot.session_row(ord)
        if row is not None and row.session != found.capture.session:
            names.add(row.session)
    return AlsoIn(sorted(names)[: ALSO_IN.maximum], len(names))
