"""The live tail: what a source holds beyond the library, parsed from its new bytes in memory."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from sessiondex.errors import SessiondexError
from sessiondex.indexer.assembly import AssembledEntry, Assembler
from sessiondex.indexer.capture import Capture, LiveTail
from sessiondex.indexer.catalog_rows import SessionRow
from sessiondex.indexer.fingerprint import fingerprint, resume_offset
from sessiondex.indexer.sources import format_named
from sessiondex.indexer.sources.base import Parser, SessionStub, SourceFile
from sessiondex.indexer.view import View
from sessiondex.limits import SETTLE_SECONDS
from sessiondex.model import PROVISIONAL, Fact, Record


@dataclass(frozen=True, slots=True)
class LiveState:
    """Either a tail behind what the library holds, or a capture of the rewritten source."""

    tail: LiveTail | None = None
    rewritten: Capture | None = None


def live_tail(view: View, row: SessionRow, *, now: float) -> LiveState | None:
    """What the source of a session has beyond the library; None if nothing.

    Costs a `stat` for an unchanged file and the new bytes for one that grew. A source that is no
    longer what the library holds is read whole, into memory. Writes nothing. A source that cannot
    be read adds nothing: the library's entries stay what they are.
    """
    source = view.catalog.source(row.source_path)
    if source is None:
        return None
    path = Path(row.source_path)
    try:
        found = os.stat(path)
    except OSError:
        return None
    if (found.st_size, found.st_mtime_ns) == (source.size, source.mtime_ns) and not source.pending:
        return None
    format = format_named(row.format)
    if format.parser_version != row.parser_version:
        return None
    file = SourceFile(path, Path(row.source_root))
    stub = SessionStub(row.session, row.selector)
    state = source.state.get(row.selector)
    has_settled = now - found.st_mtime >= SETTLE_SECONDS
    try:
        if (
            state is not None
            and format.is_line_format
            and not file.is_compressed
            and source.head == fingerprint(path, resume_offset(source.state))
        ):
            parser = format.parser(file, stub, state["parser"])
            parser.settle = has_settled
            assembler = Assembler(state["assembler"])
            tail = _tail(parser, assembler, row, skip=0)
            if not getattr(parser, "needs_reread", False):
                return LiveState(tail=tail) if tail.records else None
        return _whole(view, row, path)
    except (SessiondexError, OSError):
        return None


def _tail(parser: Parser, assembler: Assembler, row: SessionRow, *, skip: int) -> LiveTail:
    entries: list[AssembledEntry] = []
    records: list[Record] = []
    facts: list[Fact] = []
    chain = bytes.fromhex(row.digest)
    for record in parser.records():
        assembled = assembler.assemble(record)
        if skip:
            skip -= 1
            continue
        if record.provisional:
            for item in assembled:
                item.entry.flags |= PROVISIONAL
        else:
            chain = hashlib.sha256(chain + record.digest).digest()[:16]
        entries.extend(assembled)
        facts.extend(record.facts)
        record.items = []
        records.append(record)
    return LiveTail(tuple(entries), tuple(records), tuple(facts), chain.hex())


def _whole(view: View, row: SessionRow, path: Path) -> LiveState | None:
    """Reads the source whole: a tail if it still holds all records, else a new generation."""
    from sessiondex.indexer.host_items import library_of_path

    library = library_of_path(path, root=Path(row.source_root))
    rows = [found for found in library.snapshot().rows() if found.selector == row.selector]
    if not rows:
        return None
    fresh = rows[0]
    other = library.epoch().view
    shared = 0
    for known, now in zip(
        view.records(row.ord, 0, row.records), other.records(fresh.ord, 0, fresh.records),
        strict=False,
    ):  # fmt: skip
        if known.digest != now.digest:
            break
        shared += 1
    if shared == row.records == fresh.records and fresh.entries == row.entries:
        return None
    snapshot = library.snapshot()
    if shared == row.records:
        same_generation, shares = row.generation, row.shared
    else:
        same_generation, shares = row.generation + 1, [*row.shared, shared]
    renamed = replace(fresh, session=row.session, generation=same_generation, shared=shares)
    return LiveState(
        rewritten=Capture(
            renamed,
            snapshot.view,
            mark=snapshot.mark,
            searcher=snapshot.searcher,
            owner=library,
            held=Capture(row, view, mark=view.catalog.meta("seq"), searcher=None),
        )
    )
