"""Rows of the item store to and from the model's types.

Columns are built a batch at a time from tuples: per-row work is what writing costs.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sessiondex.indexer.store_schema import (
    SCHEMAS,
    EntryRun,
    RecordRun,
    StoredEntry,
    StoredRecord,
)
from sessiondex.model import Attachment, Entry, EntryRef, Kind, Record, ToolPart, clean_text

_KINDS: Final[tuple[tuple[Kind, ToolPart | None], ...]] = (
    ("user", None),
    ("assistant", None),
    ("system", None),
    ("tool", "input"),
    ("tool", "output"),
)
# ---------------------------------------------------------------- columns from rows


def row_batch(stream: str, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """A batch from rows that have the columns of the stream in order."""
    schema = SCHEMAS[stream]
    columns = [
        _column(values, kind)
        for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_ARRAY_CODES: Final = {pa.uint8(): "B", pa.int8(): "b", pa.uint32(): "I", pa.uint64(): "Q"}


def _column(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if kind in _ARRAY_CODES:
        return integers(values, kind)
    first = values[0]
    # Most columns of text hold one value throughout a batch.
    if values.count(first) == len(values):
        return pa.repeat(pa.scalar(_clean(first), kind), len(values))
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([_clean(value) for value in values], kind)


def integers(values: Sequence[int], kind: pa.DataType) -> pa.Array:
    """A column of integers without nulls."""
    buffer = pa.py_buffer(array(_ARRAY_CODES[kind], values))
    return pa.Array.from_buffers(kind, len(values), [None, buffer])


def _clean(value: Any) -> Any:
    return clean_text(value) if isinstance(value, str) else value


# ---------------------------------------------------------------- rows from columns


def entry_rows(batch: pa.RecordBatch, first_row: int, stop_row: int) -> list[StoredEntry]:
    """The entries of some rows of an `entries` batch that was read with all its columns."""
    rows = batch.slice(first_row, stop_row - first_row)
    heads = rows.column("head").view(pa.binary()).to_pylist()
    columns = [column.to_pylist() for column in rows.columns]
    entries: list[StoredEntry] = []
    for (
        (
            _session, ordinal, record, block, kind, tool_name, call_id, error, sub_kind, flags,
            timestamp, turn, step, cwd, branch, model, text_id, total_bytes, _head, summary,
            attachments, is_anchor, identity, replayed, plan, pointer,
        ),
        head,
    ) in zip(zip(*columns, strict=True), heads, strict=True):  # fmt: skip
        name, part = _KINDS[kind]
        entry = Entry(
            ordinal,
            EntryRef(record, block),
            name,
            part,
            tool_name,
            call_id,
            None if error < 0 else error == 1,
            sub_kind,
            flags,
            timestamp,
            turn,
            step,
            cwd,
            branch,
            model,
            total_bytes,
            summary or "",
            [Attachment(**each) for each in json.loads(attachments)] if attachments else [],
            is_anchor,
            identity,
            replayed,
            plan or "",
            pointer or "",
        )
        entries.append(StoredEntry(entry, text_id, head))
    return entries


def record_rows(batch: pa.RecordBatch, first_row: int, stop_row: int) -> list[StoredRecord]:
    """The records of some rows of a `records` batch that was read with all its columns."""
    rows = batch.slice(first_row, stop_row - first_row)
    return [
        StoredRecord(
            Record(
                number,
                byte_offset,
                byte_length,
                line,
                digest,
                blocks=blocks,
                pointer=pointer or "",
                corrupt=corrupt or "",
                oversized=oversized,
            ),
            entries,
        )
        for (
            _session, number, byte_offset, byte_length, line, digest, blocks, entries, pointer,
            corrupt, oversized,
        ) in zip(*(column.to_pylist() for column in rows.columns), strict=True)
    ]  # fmt: skip


# ---------------------------------------------------------------- what a batch holds


def entry_runs(batch: pa.RecordBatch, batch_index: int) -> list[EntryRun]:
    """The runs of an `entries` batch."""
    records = batch.column("record").to_pylist()
    return [
        EntryRun(session, ordinal, stop - row, batch_index, row, records[row], records[stop - 1])
        for session, ordinal, row, stop in _runs(batch.column("session"), batch.column("ordinal"))
    ]


def record_runs(batch: pa.RecordBatch, batch_index: int) -> list[RecordRun]:
    """The runs of a `records` batch."""
    return [
        RecordRun(session, number, stop - row, batch_index, row)
        for session, number, row, stop in _runs(batch.column("session"), batch.column("record"))
    ]


class _Run(NamedTuple):
    session: int
    number: int
    row: int
    stop: int


def _runs(session_column: pa.Array, number_column: pa.Array) -> list[_Run]:
    sessions, numbers = session_column.to_pylist(), number_column.to_pylist()
    runs: list[_Run] = []
    row = 0
    while row < len(sessions):
        session, number, stop = sessions[row], numbers[row], row + 1
        while (
            stop < len(sessions)
            and sessions[stop] == session
            and numbers[stop] - number == stop - row
        ):
            stop += 1
        runs.append(_Run(session, number, row, stop))
        row = stop
    return runs
