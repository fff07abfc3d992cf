"""Search and listing over a capture or a library: pages for models, streams for people.

The term index names candidates, and every hit is decided on what is stored. Without a query the
same filters give a listing.

It is a little over 500 lines long: pages and streams walk the same candidates in the same orders,
and stand side by side so that they stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from tantivy import Query

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.folding import Spans, fold
from sessiondex.indexer.snapshot import LibrarySnapshot
from sessiondex.indexer.term_index import TermSearcher
from sessiondex.indexer.term_searcher import TimedKey
from sessiondex.limits import MIB, PAGE, RANKED_HITS, REPLY_BYTES
from sessiondex.model import PROVISIONAL
from sessiondex.query import cursors
from sessiondex.query.cursors import Cursor
from sessiondex.query.entry_view import entry_view, shown_field
from sessiondex.query.filters import EntryFilter, Filters
from sessiondex.query.library_scope import LibraryScope, also_in
from sessiondex.query.matching import Everything, Literal, Matcher, Regex
from sessiondex.query.ranked import AllOf, Word, parse
from sessiondex.query.ranked_plan import STEPS, Marker, plan
from sessiondex.query.reply import PROVISIONAL_NOTE, Note, Reply, clamp, clip_text
from sessiondex.query.request import SearchRequest
from sessiondex.query.scope import AlsoIn, CandidateQuery, CaptureScope, Found, Scope
from sessiondex.query.snippets import MATCHES_LOOKED_AT, MatchedText, listing_line, snippet
from sessiondex.query.text_scan import TextScan
from sessiondex.query.times import format_time

WORK_BYTES: Final = 64 * MIB
"""Text that one page reads at most before it says how far it came."""

_ENTRY_BYTES: Final = 256
"""What looking at an entry costs beside its text, as work."""

_CHUNK_BYTES: Final = 4 * MIB
_SECOND_CHUNK: Final = 8
"""Often the first one lacks no more than a few."""
_LAST_CHUNK: Final = 256
_LAST_SCANNED_CHUNK: Final = 1024
_NOTE_BYTES: Final = 400

Place = Capture | LibrarySnapshot


def search(
    place: Place,
    request: SearchRequest,
    *,
    reveal: bool = False,
    for_model: bool = False,
    max_bytes: int = REPLY_BYTES.maximum,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """One page of hits.

    `for_model` drops hits that lie wholly inside masked values. `extra` are fields that the reply
    repeats. `left_out` counts what the request leaves out, as far as this page looked.

    Raises:
        InvalidArgument: an argument cannot be served.
        NotFound: a ref or session names nothing.
        Stale: a ref, token or cursor is of a generation that was rewritten since.
    """
    return _Search(place, request, reveal, for_model).page(max_bytes, extra or {})


def iterate(
    place: Place, request: SearchRequest, *, reveal: bool = False, for_model: bool = False
) -> Iterator[dict[str, Any]]:
    """All hits, past pages and the bound on work, in constant memory; `limit` bounds their number.

    Raises:
        As `search`, at the first hit.
    """
    return _Search(place, request, reveal, for_model).stream()


class _Hit(NamedTuple):
    """A verified hit and the place behind it."""

    found: Found
    text: str
    position: tuple[int, ...]


class _Pause(NamedTuple):
    """Told between chunks, so that a page can stop where much was read and little found."""

    position: tuple[int, ...]


@dataclass(slots=True)
class _Work:
    """What a search has cost so far."""

    entries: int = 0
    read_bytes: int = 0
    """Of texts looked at one by one, and of entries."""


@dataclass(slots=True)
class _Asked:
    """How a query is answered: candidates, verification, marks. `step` is of a ranked one."""

    candidates: CandidateQuery
    matcher: Matcher
    reads_text: bool
    step: int = 0
    scan: TextScan | None = None
    """Where the index cannot tell what may match."""
    marker: Callable[[str, int], Spans] | None = field(default=None)


class _Search:
    def __init__(self, place: Place, request: SearchRequest, reveal: bool, for_model: bool) -> None:
        self._request = request
        self._reveal = reveal
        self._for_model = for_model
        self._notes: list[Note] = []
        self._snapshot = place if isinstance(place, LibrarySnapshot) else None
        capture = place if isinstance(place, Capture) else None
        if isinstance(place, LibrarySnapshot):
            sessions = [place.resolve(name) for name in request.all_of("session")]
            if len(sessions) == 1:
                capture = place.capture(sessions[0])
            request = _with_sessions(request, sessions)
        self._capture = capture
        query = request.query
        self._match = request.match or ("literal" if capture is not None else "ranked")
        if query is None:
            self._match = "listing"
        default = "relevance" if self._match == "ranked" else "newest"
        self._order = request.order or ("source" if capture is not None else default)
        if self._match == "listing" and self._order == "relevance":
            self._order = "source"
        self._root = AllOf(())
        filters = Filters.of_request(request)
        self._left_out = dict.fromkeys((name for name, _ in filters.left_out), 0)
        if self._match == "ranked" and query is not None:
            filters = self._parse(query, filters)
        self._filters = filters
        where = capture.session if capture is not None else ""
        self._asked_for = cursors.fingerprint([where, *self._request.fingerprint_fields()])
        self._cursor = cursors.decode(request.cursor, self._asked_for) if request.cursor else None
        state = self._cursor.state if self._cursor else None
        self._scope: Scope
        if capture is not None:
            self._scope = CaptureScope(capture, request, filters, state=state)
        else:
            assert self._snapshot is not None
            self._scope = LibraryScope(self._snapshot, request, filters, state=state)
        self._views = {place.view}
        if capture is not None:
            self._views.add(capture.view)
        self._work = _Work()
        self._asked = self._ask(self._cursor.step if self._cursor else 0)

    # ------------------------------------------------------------ pages

    def page(self, max_bytes: int, extra: Mapping[str, Any]) -> dict[str, Any]:
        limit = clamp(PAGE, self._request.limit)
        before = self._counters()
        reply = Reply(max_bytes)
        reply.note(limit.note)
        for name, value in extra.items():
            reply.put(name, value)
        seen = self._cursor.seen if self._cursor else 0
        events = self._events()
        reply.put("hits", [])
        returned = 0
        stopped = ""
        position: tuple[int, ...] | None = None
        has_more = False
        for event in events:
            if isinstance(event, _Pause):
                if self._is_spent:
                    has_more, stopped, position = True, "work", event.position
                    break
                continue
            shown = None if returned == limit.value else self._shown(event)
            if returned == limit.value:
                if not self._would_show(event):
                    continue
                has_more = True
                break
            if shown is None:
                continue
            if not reply.add("hits", shown):
                has_more, stopped = True, "bytes"
                break
            returned += 1
            position = event.position
        for note in self._notes:
            reply.note(note)
        if self._capture is not None:
            reply.put("session", self._capture.session)
        reply.put("returned", returned)
        reply.put("has_more", has_more)
        reply.put("next_cursor", self._next(position, seen + returned) if has_more else None)
        total = seen + returned if not has_more else self._free_total()
        if total is not None:
            reply.put("total", total)
        else:
            reply.put("total_at_least", seen + returned + (not stopped or stopped == "bytes"))
        if stopped:
            reply.put("stopped", stopped)
        if self._left_out:
            reply.put("left_out", self._left_out)
        reply.put("capture", self._scope.token)
        if self._snapshot is not None:
            reply.put("refreshed_at", format_time(self._snapshot.refreshed_at or None))
        after = self._counters()
        reply.put(
            "stats",
            {
                "entries_considered": self._work.entries,
                "batches_read": after[0] - before[0],
                "bytes_read": after[1] - before[1],
            },
        )
        return reply.build()

    def stream(self) -> Iterator[dict[str, Any]]:
        hits = (event for event in self._events() if isinstance(event, _Hit))
        shown = (view for view in map(self._shown, hits) if view is not None)
        return islice(shown, self._request.limit)

    def _next(self, position: tuple[int, ...] | None, seen: int) -> str:
        if position is None:
            position = self._cursor.position if self._cursor else ()
        cursor = Cursor(self._scope.state, seen, self._asked.step, position)
        return cursors.encode(cursor, self._asked_for)

    def _free_total(self) -> int | None:
        """The number of all hits of a listing of kinds."""
        only_kinds = Filters((EntryFilter(codes=self._filters.wanted[0].codes),))
        if self._match != "listing" or self._filters != only_kinds:
            return None
        return self._scope.total(self._filters.wanted[0].codes)

    def _counters(self) -> tuple[int, int]:
        return (
            sum(view.batches_read for view in self._views),
            sum(view.bytes_read for view in self._views),
        )

    @property
    def _read_bytes(self) -> int:
        scan = self._asked.scan
        return self._work.read_bytes + (0 if scan is None else scan.looked_at_bytes)

    @property
    def _is_spent(self) -> bool:
        return self._read_bytes > WORK_BYTES

    # ------------------------------------------------------------ what is asked

    def _parse(self, query: str, filters: Filters) -> Filters:
        parsed = parse(query)
        try:
            filters = filters.with_fields(parsed.fields)
        except InvalidArgument as error:
            self._note("parsed_as_words", f"searched as plain words: {error.message}")
            self._root = AllOf(tuple(Word(word) for word in query.split()))
            return filters
        if parsed.note:
            self._note("parsed_as_words", parsed.note)
        self._root = parsed.root
        return filters

    def _note(self, code: str, message: str) -> None:
        self._notes.append(Note(code, clip_text(message, _NOTE_BYTES)))

    def _note_step(self) -> None:
        match STEPS[self._asked.step]:
            case "infix":
                self._note("relaxed", "no word matched as it is: infix, parts of words, did")
            case "typo":
                self._note("typo", "nothing matched as it is: words one typo away did")
            case _:
                pass

    def _ask(self, step: int) -> _Asked:
        query = self._request.query
        if query is None:
            return _Asked(CandidateQuery(lambda searcher: None), Everything(), False)
        if self._match == "literal":
            literal = Literal(query)

            def compile_literal(searcher: TermSearcher) -> Query | None:
                found = searcher.literal(query)
                if found.mode == "scan" and asked.scan is None:
                    asked.scan = TextScan(literal.rows)
                return Query.empty_query() if found.mode == "empty" else found.query

            asked = _Asked(CandidateQuery(compile_literal), literal, True)
            return asked
        if self._match == "regex":
            regex = Regex(query)
            every = CandidateQuery(lambda searcher: None)
            return _Asked(every, regex, True, scan=TextScan(regex.rows))
        return self._ask_ranked(step)

    def _ask_ranked(self, step: int) -> _Asked:
        verified: list[Callable[[str], bool]] = []
        searchers: list[TermSearcher] = []

        def compile_ranked(searcher: TermSearcher) -> Query | None:
            made = plan(self._root, searcher, STEPS[step])
            if made.verify is not None and not verified:
                verified.append(made.verify)
            searchers.append(searcher)
            return made.query

        def mark(text: str, limit: int) -> Spans:
            nonlocal marker
            if marker is None:
                marker = Marker(self._root, searchers[0], STEPS[step])
            return marker.find(text, limit)

        marker: Marker | None = None
        return _Asked(
            CandidateQuery(compile_ranked, needs_index=True),
            _Verified(verified),
            True,
            step,
            marker=mark,
        )

    # ------------------------------------------------------------ hits

    def _events(self) -> Iterator[_Hit | _Pause]:
        """Hits in order with pauses between; relaxes a ranked query that finds nothing."""
        if self._match != "ranked" or self._cursor is not None:
            self._note_step()
            if self._order == "relevance" and self._cursor and self._scope.has_grown:
                self._note("ranking_changed", "the ranking has changed since the first page")
            yield from self._in_order(self._cursor)
            return
        for step in range(len(STEPS)):
            self._asked = self._ask_ranked(step)
            self._left_out = dict.fromkeys(self._left_out, 0)
            has_hits = False
            for event in self._in_order(None):
                if isinstance(event, _Hit) and not has_hits:
                    has_hits = True
                    self._note_step()
                yield event
            if has_hits:
                return

    def _in_order(self, cursor: Cursor | None) -> Iterator[_Hit | _Pause]:
        position = cursor.position if cursor else ()
        if self._order == "relevance":
            yield from self._by_relevance(position[0] if position else -1)
        elif self._order == "newest":
            after = TimedKey(*position) if position else None
            hits = self._scope.by_time(self._asked.candidates, after=after)
            yield from self._verified((hit.key, tuple(hit)) for hit in hits)
        else:
            after_key = position[0] if position else None
            keys = self._scope.by_key(self._asked.candidates, after=after_key)
            yield from self._verified((key, (key,)) for key in keys)

    def _by_relevance(self, after: int) -> Iterator[_Hit | _Pause]:
        if self._match == "ranked":
            ranked = [hit.key for hit in self._scope.by_score(self._asked.candidates)]
        else:
            ranked = self._by_count()
        yield from self._verified((key, (rank,)) for rank, key in enumerate(ranked) if rank > after)

    def _by_count(self) -> list[int]:
        """Keys of the first hits in source order, those with the most matches first."""
        keys = self._scope.by_key(self._asked.candidates, after=None)
        counted: list[tuple[int, int]] = []
        for event in self._verified((key, (key,)) for key in keys):
            if isinstance(event, _Hit):
                counted.append((-self._asked.matcher.count(event.text), event.position[0]))
            if len(counted) == RANKED_HITS.maximum or self._is_spent:
                break
        return [key for _, key in sorted(counted)]

    def _verified(
        self, candidates: Iterator[tuple[int, tuple[int, ...]]]
    ) -> Iterator[_Hit | _Pause]:
        """The candidates that pass filters and match, with a pause behind every chunk."""
        size = min(self._request.limit or PAGE.default, PAGE.maximum) + 1
        next_size = _SECOND_CHUNK
        while chunk := list(islice(candidates, size)):
            scan = self._asked.scan
            size = min(next_size, _LAST_CHUNK if scan is None else _LAST_SCANNED_CHUNK)
            next_size *= 2
            waiting: list[_Hit] = []
            read_before = self._read_bytes
            found = self._scope.found((key for key, _ in chunk), scan)
            for (_, position), each in zip(chunk, found, strict=True):
                self._work.entries += 1
                if each is None:
                    continue
                self._work.read_bytes += _ENTRY_BYTES
                if not self._passes(each):
                    continue
                text = ""
                if self._asked.reads_text:
                    data = each.capture.text(each.entry)
                    self._work.read_bytes += len(data)
                    text = data.decode()
                waiting.append(_Hit(each, text, position))
                if self._read_bytes - read_before > _CHUNK_BYTES:
                    yield from self._matching(waiting)
                    yield _Pause(position)
                    waiting, read_before = [], self._read_bytes
            yield from self._matching(waiting)
            yield _Pause(chunk[-1][1])

    def _matching(self, hits: list[_Hit]) -> Iterator[_Hit]:
        matches = self._asked.matcher.matches([hit.text for hit in hits])
        for hit, is_match in zip(hits, matches, strict=True):
            if not is_match:
                continue
            if left_out := self._left_out_as(hit.found):
                self._left_out[left_out] += 1
            elif not self._scope.is_collapsed(hit.found):
                yield hit

    def _left_out_as(self, found: Found) -> str:
        if not self._left_out:
            return ""
        capture, entry = found
        return self._filters.left_out_as(entry, capture.flags(entry), capture.row)

    def _passes(self, found: Found) -> bool:
        if not self._filters.needs_entries:
            return True
        capture, entry = found
        return self._filters.passes(entry, capture.flags(entry), capture.row)

    # ------------------------------------------------------------ what is shown

    def _matched(self, hit: _Hit) -> MatchedText:
        find = self._asked.marker or self._asked.matcher.find
        return MatchedText(hit.found, hit.text, find(hit.text, MATCHES_LOOKED_AT), self._reveal)

    def _would_show(self, hit: _Hit) -> bool:
        if not self._for_model or self._match == "listing" or self._reveal:
            return True
        return snippet(self._matched(hit), drop_hidden=True) is not None

    def _shown(self, hit: _Hit) -> dict[str, Any] | None:
        """A hit as a reply shows it; None for one that a model may not see."""
        capture, entry = hit.found
        view: dict[str, Any] = {"session": capture.session}
        view |= entry_view(capture, entry, reveal=self._reveal)
        if self._match == "listing":
            view["text"] = listing_line(hit.found, reveal=self._reveal)
        else:
            cut = snippet(self._matched(hit), drop_hidden=self._for_model and not self._reveal)
            if cut is None:
                return None
            view["snippet"] = cut
        holders = self._also_in(hit.found)
        if holders is not None:
            view["also_in"] = [shown_field(session) for session in holders.sessions]
            view["also_in_total"] = holders.total
        if capture.flags(entry) & PROVISIONAL and PROVISIONAL_NOTE not in self._notes:
            self._notes.append(PROVISIONAL_NOTE)
        return view

    def _also_in(self, found: Found) -> AlsoIn | None:
        if self._snapshot is None:
            return None
        return also_in(self._snapshot, found)


class _Verified:
    """Matches what an index found, where it cannot tell all by itself."""

    def __init__(self, verify: list[Callable[[str], bool]]) -> None:
        self._verify = verify

    def matches(self, texts: Sequence[str]) -> list[bool]:
        if not self._verify:
            return [True] * len(texts)
        return [self._verify[0](fold(text)) for text in texts]

    def count(self, text: str) -> int:
        return 0

    def find(self, text: str, limit: int) -> Spans:
        return Spans([], 0)


def _with_sessions(request: SearchRequest, sessions: list[str]) -> SearchRequest:
    return replace(request, session=tuple(sessions)) if sessions else request
