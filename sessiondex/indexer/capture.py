"""`SessionCapture`: an immutable view of one session as it stood at one moment.

A capture is a session ordinal, a number of entries and a mark. All that it reads was committed
before and never changes, so nothing that happens later changes what it answers. A session that
is being written may add a *live tail*: entries parsed from the source's new bytes, held in
memory, with the refs that the library will give them.

It is a little over 500 lines long because every answer joins what is stored and the tail by the
same few numbers; parts of it in other modules would have to share them all.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sessiondex.errors import Damaged, HiddenEntry, InvalidArgument, NotFound, PastEnd, Stale
from sessiondex.indexer.assembly import AssembledEntry, Counts, kind_code
from sessiondex.indexer.catalog_rows import EntryRun, SessionRow
from sessiondex.indexer.prefix import DIGEST_CHARACTERS, begins_with
from sessiondex.indexer.view import View
from sessiondex.model import (
    COPIED,
    PROVISIONAL,
    Entry,
    EntryRef,
    Fact,
    Item,
    Record,
    derived_summary,
)

if TYPE_CHECKING:
    from sessiondex.indexer.term_index import TermSearcher

HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where the source of a session lies, as it was when it was indexed."""

    root: str
    path: str
    """Relative to the root."""
    digest: str
    """Chain digest of the records that the capture holds."""
    absolute: Path
    format: str
    selector: str
    exists: bool


@dataclass(frozen=True, slots=True)
class LiveTail:
    """What a session has beyond the library: entries, records, facts; in memory."""

    entries: tuple[AssembledEntry, ...] = ()
    records: tuple[Record, ...] = ()
    facts: tuple[Fact, ...] = ()
    digest: str = ""
    """Chain digest with the tail's committed records; '' if there are none."""


class Token:
    """The identity of a capture, as every reply carries it: opaque, at most 120 bytes."""

    @staticmethod
    def make(session: str, generation: int, entries: int, digest: str) -> str:
        return f"c1.{_short(session)}.{generation}.{entries}.{digest[:DIGEST_CHARACTERS]}"

    @staticmethod
    def parse(token: object) -> tuple[str, int, int, str]:
        """Session digest, generation, entries, digest.

        Raises:
            InvalidArgument: for anything that no reply carried.
        """
        parts = token.split(".") if isinstance(token, str) and len(token) <= 120 else []
        if len(parts) != 5 or parts[0] != "c1" or not (parts[2] + parts[3]).isdecimal():
            raise InvalidArgument(
                "malformed capture token", hint="pass the 'capture' of an earlier reply unchanged"
            )
        return parts[1], int(parts[2]), int(parts[3]), parts[4]


def _short(session: str) -> str:
    digest = hashlib.sha256(session.encode()).digest()[:12]
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


class Capture:
    """An immutable view of a session. Thread-safe; every number it gives is of this moment."""

    def __init__(
        self,
        row: SessionRow,
        view: View,
        *,
        mark: int,
        searcher: TermSearcher | None,
        tail: LiveTail | None = None,
        owner: object = None,
        held: Capture | None = None,
    ) -> None:
        self.row = row
        self.session = row.session
        self.agent = row.agent
        self.project = row.project
        self.branch = row.branch
        self.model = row.model
        self.title = row.title
        self.parent = row.parent
        self.segment_id = row.segment_id
        self.sub_agent = row.sub_agent
        self.run = row.run
        self.generation = row.generation
        self.source = row.source_path
        self.session_ord = row.ord
        self.key_base = row.ord << 32
        self.mark = mark
        self.searcher = searcher
        self.view = view
        self.tail = tail or LiveTail()
        self.tail_first = row.entries
        self.entry_count = row.entries + len(self.tail.entries)
        self.record_count = row.records + len(self.tail.records)
        self.committed_count = self.tail_first + sum(
            1 for item in self.tail.entries if not item.entry.flags & PROVISIONAL
        )
        """Entries that are not provisional."""
        self.digest = self.tail.digest or row.digest
        self._held = held
        self._owner = owner
        """Keeps the library of an in-memory capture alive."""
        self.token = Token.make(self.session, self.generation, self.committed_count, self.digest)
        self._facts = [
            (fact.flag, fact.unit, fact.first, fact.last, fact.value)
            for fact in view.catalog.facts(row.ord, mark)
        ] + [(fact.flag, "r", fact.first_record, fact.last_record, 1) for fact in self.tail.facts]
        self._copied = self._copied_ranges()

    # ------------------------------------------------------------ making one in memory

    @classmethod
    def from_items(
        cls,
        items: Iterable[Item | Record | dict[str, Any]],
        *,
        session_id: str = "session",
        agent: str = "host",
        segment_id: str = "",
        project: str = "",
    ) -> Capture:
        """A capture of a host's own list; the n-th element is record n.

        Elements are `Item`s, `Record`s, or mappings in Yoi's in-memory form (`type`) or with the
        fields of `Item`. Costs the list once; later calls cost what they return.
        """
        from sessiondex.indexer.host_items import capture_of_items

        return capture_of_items(
            items, session_id=session_id, agent=agent, segment_id=segment_id, project=project
        )

    @classmethod
    def from_path(cls, path: str | Path, *, session: str = "") -> Capture:
        """A capture of a file that is in no library, read into memory.

        Raises:
            NotFound: when the file is not there or holds no such session.
            InvalidArgument: when it holds several and none is named; lists their ids.
        """
        from sessiondex.indexer.host_items import capture_of_path

        return capture_of_path(Path(path), session=session)

    @property
    def held(self) -> Capture:
        """The session as its library holds it, among the other sessions; another capture than
        this one where a changed source was read whole into memory."""
        return self._held or self

    def committed(self) -> Capture:
        """This capture without its provisional tail: what may be cited, observed, extracted."""
        if self.committed_count == self.entry_count:
            return self
        kept = tuple(e for e in self.tail.entries if not e.entry.flags & PROVISIONAL)
        records = tuple(r for r in self.tail.records if not r.provisional)
        tail = LiveTail(kept, records, self.tail.facts, self.tail.digest)
        return Capture(
            self.row, self.view, mark=self.mark, searcher=self.searcher, tail=tail,
            owner=self._owner, held=self._held,
        )  # fmt: skip

    # ------------------------------------------------------------ entries

    def entry(self, ordinal: int) -> Entry:
        """The entry with an ordinal."""
        return self.entries(ordinal, ordinal + 1)[0]

    def entries(self, first: int, stop: int) -> list[Entry]:
        """Entries `first` to `stop` (exclusive); costs the range, not the session."""
        first, stop = max(first, 0), min(stop, self.entry_count)
        found: list[Entry] = []
        if first < min(stop, self.tail_first):
            found = [
                item.entry
                for item in self.view.stored(self.session_ord, first, min(stop, self.tail_first))
            ]
        if stop > self.tail_first:
            begin = max(first - self.tail_first, 0)
            found.extend(item.entry for item in self.tail.entries[begin : stop - self.tail_first])
        return found

    def text(self, entry: Entry, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes `start` to `stop` of the entry's text in UTF-8; reads only what holds them."""
        if entry.ordinal >= self.tail_first:
            return self.tail.entries[entry.ordinal - self.tail_first].data[start:stop]
        stop = entry.total_bytes if stop is None else min(stop, entry.total_bytes)
        if start >= stop:
            return b""
        stored = self.view.stored(self.session_ord, entry.ordinal, entry.ordinal + 1)[0]
        return self.view.text(stored.text_id, start, stop)

    def head(self, entry: Entry) -> bytes:
        """At least the first KiB of the text (all of a shorter one), without reading the rest."""
        if entry.ordinal < self.tail_first and entry.total_bytes > 2 * HEAD_BYTES:
            stored = self.view.stored(self.session_ord, entry.ordinal, entry.ordinal + 1)[0]
            if stored.head is not None:
                return stored.head
        return self.text(entry)

    def summary(self, entry: Entry) -> str:
        """The source's own summary, else the first 240 characters with white space folded."""
        return entry.summary or derived_summary(self.head(entry).decode(errors="ignore"))

    def flags(self, entry: Entry) -> int:
        """Flags of an entry with the facts that were known at the mark."""
        bits = entry.flags
        for flag, unit, first, last, value in self._facts:
            at = entry.ordinal if unit == "o" else entry.ref.record
            if first <= at <= last:
                bits = bits | flag if value else bits & ~flag
        return bits

    def fact_ranges(self, flag: int) -> list[tuple[int, int]]:
        """Ordinal ranges (inclusive) that facts touch for a flag; `flags` decides inside them."""
        found: list[tuple[int, int]] = []
        for bit, unit, first, last, _ in self._facts:
            if bit & flag:
                if unit == "r":
                    first, last = self.lower(EntryRef(first)), self.upper(EntryRef(last)) - 1
                if first <= last:
                    found.append((first, min(last, self.entry_count - 1)))
        return found

    # ------------------------------------------------------------ refs

    def ordinal(self, ref: EntryRef) -> int:
        """The ordinal of an entry.

        Raises:
            PastEnd: the ref lies behind the last record.
            HiddenEntry: the position exists but is never shown.
            NotFound: the record has no such block.
        """
        at = self.lower(ref)
        if at < self.entry_count:
            entry = self.entry(at)
            if entry.ref == ref:
                return at
        if ref.record >= self.record_count:
            raise PastEnd(
                f"entry ref {str(ref)!r} lies past the end",
                hint=f"the last record of this session is {max(self.record_count - 1, 0)}",
            )
        record = self.record(ref.record)
        if ref.block >= max(record.blocks, 1):
            raise NotFound(
                f"unknown entry ref {str(ref)!r}: record {ref.record} has {record.blocks} block(s)",
                hint="use a ref that an overview, a search, a listing or a read returned",
            )
        raise HiddenEntry(
            f"entry {str(ref)!r} is not shown: {_why_hidden(record)}",
            hint="use a ref that an overview, a search, a listing or a read returned",
        )

    def lower(self, ref: EntryRef) -> int:
        """The first ordinal at or after a source position."""
        if self.tail.entries and ref >= self.tail.entries[0].entry.ref:
            refs = [item.entry.ref for item in self.tail.entries]
            return self.tail_first + bisect_left(refs, ref)
        if not self.tail_first:
            return 0
        run = self.view.catalog.run_of_record(self.session_ord, ref.record)
        while run is not None and run.first < self.tail_first:
            at = self.view.position(run, self.tail_first, ref)
            if at is not None:
                return at
            if run.stop >= self.tail_first:
                break
            run = self.view.run(self.session_ord, run.stop)
        return self.tail_first

    def upper(self, ref: EntryRef) -> int:
        """The first ordinal after a ref that ends a range; a bare ref takes in all its blocks."""
        if ref.block:
            return self.lower(EntryRef(ref.record, ref.block + 1))
        return self.lower(EntryRef(ref.record + 1))

    def record(self, number: int) -> Record:
        """What is known of a record: its place in the source, digest, blocks."""
        if number >= self.row.records:
            return self.tail.records[number - self.row.records]
        found = self.view.record(self.session_ord, number)
        if found is None:
            raise Damaged(
                f"record {number} of session {self.session!r} is not in the catalog",
                hint="run 'sessiondex check --repair'",
            )
        return found

    def admit(self, token: str | None, refs: Iterable[EntryRef] = ()) -> None:
        """Checks refs that were given with the token of an earlier capture.

        Raises:
            InvalidArgument: the token is malformed or of another session.
            Stale: a ref lies outside what the token's generation shares with this one.
        """
        if not token:
            return
        session, generation, entries, digest = Token.parse(token)
        if session != _short(self.session):
            raise InvalidArgument(
                "the capture token belongs to another session",
                hint=f"use the token of a reply about {self.session!r}",
            )
        refs = list(refs)
        shared = 0
        if generation == self.generation:
            if not refs or begins_with(self, entries, digest):
                return
        elif 1 <= generation < self.generation:
            shared = min(self.row.shared[generation - 1 :], default=0)
        for ref in refs:
            if ref.record >= shared:
                raise Stale(
                    f"entry ref {str(ref)!r} is stale: the session was rewritten since",
                    hint="search or list again and use the refs of the new reply",
                )

    # ------------------------------------------------------------ counting, anchors, labels

    def counts(self, ordinal: int) -> Counts:
        """Entries by kind that stand before an ordinal."""
        ordinal = max(0, min(ordinal, self.entry_count))
        inside = min(ordinal, self.tail_first)
        total = Counts()
        if inside:
            run = self._run_at(inside - 1)
            total = run.before.plus(Counts(*self.view.kind_counts(run, inside)))
        for item in self.tail.entries[: ordinal - inside]:
            code = kind_code(item.entry)
            total = total.plus(Counts(*(int(code == n) for n in range(5))))
        return total

    def _run_at(self, ordinal: int) -> EntryRun:
        run = self.view.run(self.session_ord, ordinal)
        if run is None:
            raise Damaged(
                f"entry {ordinal} of session {self.session!r} is not in the catalog",
                hint="run 'sessiondex check --repair'",
            )
        return run

    @property
    def anchor_count(self) -> int:
        """Anchors of the capture: real user and assistant messages that are no copies."""
        return self.anchor_index(self.entry_count)

    def anchor_index(self, ordinal: int) -> int:
        """How many anchors stand before an ordinal."""
        total = self._raw_anchors(ordinal)
        for first, last in self._copied:
            if first < ordinal:
                total -= self._raw_anchors(min(last + 1, ordinal)) - self._raw_anchors(first)
        return total

    def _raw_anchors(self, ordinal: int) -> int:
        inside = min(ordinal, self.tail_first)
        total = 0
        if inside > 0:
            run = self._run_at(inside - 1)
            total = run.anchors + self.view.anchors(run, inside)
        return total + sum(e.entry.is_anchor for e in self.tail.entries[: max(ordinal - inside, 0)])

    def anchor_ordinals(self, first: int, stop: int, step: int = 1) -> list[int]:
        """Ordinals of the anchors number `first`, `first + step`, … below `stop`."""
        stop = min(stop, self.anchor_count)
        return [self._anchor_at(self._raw_number(n)) for n in range(first, stop, step)]

    def _raw_number(self, number: int) -> int:
        """Number of an anchor when copied ones are counted too."""
        for first, last in self._copied:
            before = self._raw_anchors(first)
            if number < before:
                break
            number += self._raw_anchors(last + 1) - before
        return number

    def _anchor_at(self, number: int) -> int:
        run = self.view.catalog.run_of_anchor(self.session_ord, number, self.tail_first)
        if run is not None:
            start, (marks,) = self.view.run_columns(run, run.first, self.tail_first, ("is_anchor",))
            wanted = number - run.anchors
            found = next(
                islice((at for at, is_set in enumerate(marks) if is_set), wanted, None), None
            )
            if found is not None:
                return start + found
        seen = self._raw_anchors(self.tail_first)
        for item in self.tail.entries:
            if item.entry.is_anchor:
                if seen == number:
                    return item.entry.ordinal
                seen += 1
        raise NotFound(f"the session has no anchor number {number}")

    def _copied_ranges(self) -> list[tuple[int, int]]:
        """Disjoint ordinal ranges that a fact says are copies now, in order."""
        state: list[tuple[int, int]] = []
        for flag, unit, first, last, value in self._facts:
            if flag == COPIED and unit == "o":
                state = _with_range(state, first, last) if value else _without(state, first, last)
        return state

    def is_final(self, entry: Entry) -> bool:
        """Whether an assistant message is the last of its turn in this capture."""
        if entry.kind != "assistant" or not entry.step:
            return False
        at = entry.ordinal + 1
        if at < self.tail_first:
            names = ("kind", "turn", "step")
            for _, (kinds, turns, steps) in self.view.columns(
                self.session_ord, at, self.tail_first, names
            ):
                for kind, turn, step in zip(kinds, turns, steps, strict=True):
                    if turn != entry.turn:
                        return True
                    if kind == 1 and step > entry.step:
                        return False
        for item in self.tail.entries[max(at - self.tail_first, 0) :]:
            if item.entry.turn != entry.turn:
                return True
            if item.entry.kind == "assistant" and item.entry.step > entry.step:
                return False
        return True

    def last_plan(self, first: int, stop: int) -> Entry | None:
        """The last committed task list or plan in a range of ordinals."""
        for item in reversed(self.tail.entries):
            entry = item.entry
            if first <= entry.ordinal < stop and entry.plan and not entry.flags & PROVISIONAL:
                return entry
        found = self.view.catalog.row(
            "SELECT max(ordinal) FROM plans WHERE ord=? AND ordinal>=? AND ordinal<?",
            (self.session_ord, first, min(stop, self.tail_first)),
        )
        return self.entry(found[0]) if found and found[0] is not None else None

    # ------------------------------------------------------------ source

    def source_file(self) -> SourcePlace:
        """Where the source lies; a session made from items has an empty path."""
        absolute = Path(self.row.source_path)
        root = self.row.source_root
        relative = self.row.source_path
        if root and absolute.is_relative_to(root):
            relative = str(absolute.relative_to(root))
        return SourcePlace(
            root=root,
            path=relative,
            digest=self.digest,
            absolute=absolute,
            format=self.row.format,
            selector=self.row.selector,
            exists=bool(self.row.source_path) and absolute.is_file(),
        )


SessionCapture = Capture


def _why_hidden(record: Record) -> str:
    if record.oversized:
        return "the record is oversized and was not loaded"
    if record.corrupt:
        return f"the record is corrupt ({record.corrupt})"
    return "it is reasoning, a prompt or metadata"


def _with_range(ranges: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted([*ranges, (first, last)]):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


def _without(ranges: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for low, high in ranges:
        if low < first:
            kept.append((low, min(high, first - 1)))
        if high > last:
            kept.append((max(low, last + 1), high))
    return [pair for pair in kept if pair[0] <= pair[1]]
