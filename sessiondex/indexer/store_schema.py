"""What the item store keeps: its streams and their columns, and what names a place in them."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from sessiondex.model import Entry, Record

ENTRIES: Final = "entries"
TEXTS: Final = "texts"
RECORDS: Final = "records"
SESSIONS: Final = "sessions"

SCHEMAS: Final[dict[str, pa.Schema]] = {
    ENTRIES: pa.schema(
        [
            ("session", pa.uint32()),
            ("ordinal", pa.uint32()),
            ("record", pa.uint64()),
            ("block", pa.uint32()),
            ("kind", pa.uint8()),
            ("tool_name", pa.string()),
            ("call_id", pa.string()),
            ("error", pa.int8()),
            ("sub_kind", pa.string()),
            ("flags", pa.uint32()),
            ("timestamp", pa.int64()),
            ("turn", pa.uint32()),
            ("step", pa.uint32()),
            ("cwd", pa.string()),
            ("branch", pa.string()),
            ("model", pa.string()),
            ("text_id", pa.uint64()),
            ("total_bytes", pa.uint64()),
            ("head", pa.string()),
            ("summary", pa.string()),
            ("attachments", pa.string()),
            ("is_anchor", pa.bool_()),
            ("identity", pa.uint64()),
            ("replayed", pa.bool_()),
            ("plan", pa.string()),
            ("pointer", pa.string()),
        ]
    ),
    TEXTS: pa.schema([("text_id", pa.uint64()), ("start", pa.uint64()), ("text", pa.string())]),
    RECORDS: pa.schema(
        [
            ("session", pa.uint32()),
            ("record", pa.uint64()),
            ("byte_offset", pa.uint64()),
            ("byte_length", pa.uint64()),
            ("line", pa.uint64()),
            ("digest", pa.binary(8)),
            ("blocks", pa.uint32()),
            ("entries", pa.uint32()),
            ("pointer", pa.string()),
            ("corrupt", pa.string()),
            ("oversized", pa.bool_()),
        ]
    ),
    SESSIONS: pa.schema([("json", pa.string())]),
}

STREAMS: Final = tuple(SCHEMAS)

CHUNK_BYTES: Final = 64 * 1024
"""A longer text is kept as several rows."""


class BatchInfo(NamedTuple):
    """Where one batch stands, and the checksum of its bytes there."""

    stream: str
    file: int
    offset: int
    length: int
    crc: int
    rows: int


class EntryRun(NamedTuple):
    """Consecutive entries of one session inside one `entries` batch."""

    session: int
    first_ordinal: int
    rows: int
    batch_index: int
    row0: int
    first_record: int
    last_record: int


class RecordRun(NamedTuple):
    """Consecutive records of one session inside one `records` batch."""

    session: int
    first_record: int
    rows: int
    batch_index: int
    row0: int


class TextRun(NamedTuple):
    """The chunks of one `texts` batch, which is ordered by text id and start.

    A text of several chunks goes on in the batches that follow: the byte `start` of a text is in
    the last batch whose (`first_text_id`, `first_start`) is not above (text id, start).
    """

    first_text_id: int
    last_text_id: int
    first_start: int
    batch_index: int


class StoredEntry(NamedTuple):
    """An entry, and what leads to its text."""

    entry: Entry
    text_id: int
    head: bytes | None
    """The first KiB of a text above 2 KiB; None for a shorter one."""


class StoredRecord(NamedTuple):
    """The place of a record (no items, times or flags), and how many entries it has."""

    record: Record
    entries: int
