"""Turns records into chunks of what the library's writer adds: all work that needs no library.

A chunk can be made in another process than the one that writes it, so what is here imports
neither the catalog, nor the item store, nor Arrow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from sessiondex.errors import SessiondexError
from sessiondex.indexer.assembly import AssembledEntry, Assembler, kind_code
from sessiondex.indexer.sources.base import Parser
from sessiondex.indexer.store_values import entry_row, record_row, text_head
from sessiondex.indexer.term_document import facet_list, term_document
from sessiondex.indexer.term_fields import facet
from sessiondex.limits import TITLE
from sessiondex.model import Entry, Fact, Record, SessionHeader, derived_summary, flag_names

SHARED_TEXT_BYTES: Final = 128
"""A text at least this long is stored once; below it a reference would cost as much."""

CHUNK_BYTES: Final = 1 << 20
"""About how much text a chunk holds; bounds memory, and how often a long session may commit."""

_FACET_LISTS: Final = 10_000

_RECORD_BYTES: Final = 100
_ENTRY_BYTES: Final = 200
"""What a record and an entry weigh beside their text."""


class PreparedEntries(NamedTuple):
    """Consecutive entries, ready for the item store and the term index, by columns.

    Columns of plain values pass between processes several times faster than objects.
    """

    before_text: list[tuple[Any, ...]]
    after_text: list[tuple[Any, ...]]
    row_sizes: list[int]
    """These three: see `EntryRow`."""
    texts: list[bytes]
    """In UTF-8."""
    digests: list[bytes]
    """Of texts that are stored once; else b''."""
    facets: list[str]
    pieces: list[list[str]]
    characters: list[int]
    """These three: see `TermDocument`."""
    codes: list[int]
    """See `kind_code`."""
    anchors: list[bool]
    blocks: list[int]


class Fault(NamedTuple):
    """A record that could not be read."""

    line: int
    byte_offset: int
    reason: str


class Chunk(NamedTuple):
    """Consecutive records of one session with their entries, and what follows from them."""

    records: list[tuple[Any, ...]]
    """Rows of the item store but for their session."""
    entries: PreparedEntries
    facts: list[Fact]
    faults: list[Fault]
    identities: list[tuple[int, int]]
    """Identity and ordinal of the entries that have one."""
    plans: list[int]
    """Ordinals of the entries that set a plan."""
    chain: bytes
    """Chain digest of all records of the session so far."""
    turns: int
    """Number of the last turn."""
    title: str
    """The first real prompt in the chunk, shortened; '' if there is none."""
    started: int | None
    ended: int | None
    """Earliest and latest time of an entry, epoch milliseconds."""
    text_bytes: int
    size: int
    """About what the chunk adds to a batch."""


class SessionChunk(NamedTuple):
    """A chunk with what its parser knew at its end."""

    chunk: Chunk
    header: SessionHeader
    state: dict[str, Any]
    """From which reading goes on."""
    is_last: bool
    is_pending: bool
    """A provisional tail follows, which is not committed."""


def record_faults(record: Record) -> list[Fault]:
    """Why a record could not be read, if it could not."""
    if not record.corrupt and not record.oversized:
        return []
    return [Fault(record.line, record.byte_offset, record.corrupt or "oversized")]


class FacetLists:
    """Filter codes of entries; entries that differ in nothing else share a list."""

    def __init__(self) -> None:
        self._lists: dict[tuple[object, ...], str] = {}

    def of(self, agent: str, entry: Entry) -> str:
        """The filter codes of an entry but for its session."""
        alike = (
            agent, entry.kind, entry.tool_part, entry.tool_name, entry.error, entry.flags,
            entry.branch, entry.model,
        )  # fmt: skip
        found = self._lists.get(alike)
        if found is None:
            if len(self._lists) > _FACET_LISTS:
                self._lists.clear()
            found = self._lists[alike] = facet_list(_common_facets(agent, entry))
        return f"{found},{facet('call', entry.call_id)}" if entry.call_id else found


def _common_facets(agent: str, entry: Entry) -> list[int]:
    found = [facet("agent", agent), facet("kind", entry.kind)]
    if entry.tool_part:
        found.append(facet("part", entry.tool_part))
        if entry.tool_name:
            found.append(facet("tool", entry.tool_name))
        if entry.error is not None:
            found.append(facet("error", "1" if entry.error else "0"))
    found += [facet("flag", name) for name in flag_names(entry.flags)]
    if entry.branch:
        found.append(facet("branch", entry.branch))
    if entry.model:
        found.append(facet("model", entry.model))
    return found


class ChunkBuilder:
    """Gathers the records of one session."""

    def __init__(self, facets: FacetLists, agent: str, *, chain: bytes = b"") -> None:
        self._facets = facets
        self._agent = agent
        self._chain = chain
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        """About what was gathered, in bytes."""
        self._records: list[tuple[Any, ...]] = []
        self._entries = PreparedEntries([], [], [], [], [], [], [], [], [], [], [])
        self._facts: list[Fact] = []
        self._faults: list[Fault] = []
        self._identities: list[tuple[int, int]] = []
        self._plans: list[int] = []
        self._turns = 0
        self._title = ""
        self._times: list[int] = []
        self._text_bytes = 0

    def add(self, record: Record, entries: list[AssembledEntry]) -> None:
        """Adds one committed record with the entries that were assembled from it."""
        self._chain = hashlib.sha256(self._chain + record.digest).digest()[:16]
        self._records.append(record_row(record, len(entries)))
        self._facts += record.facts
        self._faults += record_faults(record)
        self.size += _RECORD_BYTES
        for entry, text, data in entries:
            self._add_entry(entry, text, data)

    def _add_entry(self, entry: Entry, text: str, data: bytes) -> None:
        size = len(data)
        to = self._entries
        before_text, after_text, row_size = entry_row(entry, text_head(data))
        to.before_text.append(before_text)
        to.after_text.append(after_text)
        to.row_sizes.append(row_size)
        to.texts.append(data)
        to.digests.append(hashlib.sha256(data).digest()[:16] if size >= SHARED_TEXT_BYTES else b"")
        facets, pieces, characters = term_document(
            time=entry.timestamp, facets=self._facets.of(self._agent, entry), text=text
        )
        to.facets.append(facets)
        to.pieces.append(pieces)
        to.characters.append(characters)
        code = kind_code(entry)
        to.codes.append(code)
        to.anchors.append(entry.is_anchor)
        to.blocks.append(entry.ref.block)
        if entry.identity:
            self._identities.append((entry.identity, entry.ordinal))
        if entry.plan:
            self._plans.append(entry.ordinal)
        if entry.timestamp is not None:
            self._times.append(entry.timestamp)
        if entry.is_anchor and code == 0 and not self._title:
            self._title = derived_summary(text, TITLE.maximum)
        self._turns = entry.turn
        self._text_bytes += size
        self.size += size + _ENTRY_BYTES

    def take(self) -> Chunk:
        """What was gathered since the last chunk."""
        chunk = Chunk(
            self._records, self._entries, self._facts, self._faults,
            self._identities, self._plans, self._chain, self._turns, self._title,
            min(self._times, default=None), max(self._times, default=None), self._text_bytes,
            self.size,
        )  # fmt: skip
        self._clear()
        return chunk


def session_chunks(
    records: Iterable[Record], parser: Parser, assembler: Assembler, builder: ChunkBuilder,
    *, chunk_bytes: int,
) -> Iterator[SessionChunk]:  # fmt: skip
    """Reads records up to the provisional tail; the last chunk may be empty.

    Where reading fails, what was read before is yielded first.
    """
    is_pending = False
    try:
        for record in records:
            if record.provisional:
                is_pending = True
                break
            builder.add(record, assembler.assemble(record))
            if builder.size >= chunk_bytes:
                yield _session_chunk(parser, assembler, builder)
    except (OSError, SessiondexError):
        yield _session_chunk(parser, assembler, builder)
        raise
    yield _session_chunk(parser, assembler, builder, is_last=True, is_pending=is_pending)


def _session_chunk(
    parser: Parser, assembler: Assembler, builder: ChunkBuilder,
    *, is_last: bool = False, is_pending: bool = False,
) -> SessionChunk:  # fmt: skip
    state = {"parser": parser.state(), "assembler": assembler.state()}
    return SessionChunk(builder.take(), parser.header, state, is_last, is_pending)
