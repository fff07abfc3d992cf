"""Exports of entries: JSONL, Arrow, Parquet and Markdown, in constant memory, masked.

A row is an entry with its session and its whole text. Batches are bounded in bytes, so that an
export needs no more memory than its largest entry and one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import orjson

from sessiondex.indexer.capture import Capture
from sessiondex.model import EntryRef
from sessiondex.query.entry_view import entry_view, shown_fact
from sessiondex.query.reading import text_pieces
from sessiondex.query.search import iterate

if TYPE_CHECKING:
    import pyarrow as pa

    from sessiondex.indexer.snapshot import LibrarySnapshot
    from sessiondex.model import Entry
    from sessiondex.query.request import SearchRequest

ExportFormat = Literal["jsonl", "arrow", "parquet", "markdown"]

EXPORT_FORMATS: Final[tuple[ExportFormat, ...]] = ("jsonl", "arrow", "parquet", "markdown")

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Text that is gathered for one batch of columns."""

CHUNK: Final = 256
"""Entries that are looked at together."""

_TEXT_COLUMNS: Final = (
    "session", "agent", "project", "branch", "model", "entry_ref", "kind", "tool_part",
    "tool_name", "call_id", "timestamp", "label", "text",
)  # fmt: skip


def entry_row(capture: Capture, entry: Entry, *, reveal: bool = False) -> dict[str, Any]:
    """An entry with its session and whole text, as it is exported."""
    view = entry_view(capture, entry, reveal=reveal)
    return {
        "session": capture.session,
        "agent": capture.agent,
        "project": shown_fact(entry.cwd or capture.project, reveal=reveal) or None,
        "branch": shown_fact(entry.branch or capture.branch, reveal=reveal) or None,
        "model": shown_fact(entry.model, reveal=reveal) or None,
        "turn": entry.turn,
        **view,
        "total_bytes": entry.total_bytes,
        "text": "".join(text_pieces(capture, entry, reveal=reveal)),
    }


def session_rows(capture: Capture, *, reveal: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of all entries of a session, in source order."""
    for first in range(0, capture.entry_count, CHUNK):
        for entry in capture.entries(first, first + CHUNK):
            yield entry_row(capture, entry, reveal=reveal)


def hit_rows(
    place: Capture | LibrarySnapshot, request: SearchRequest, *, reveal: bool = False
) -> Iterator[dict[str, Any]]:
    """The rows of all entries that a search finds, in source order."""
    for hit in iterate(place, replace(request, order="source"), reveal=reveal):
        capture = place if isinstance(place, Capture) else place.capture(hit["session"], live=False)
        entry = capture.entry(capture.ordinal(EntryRef.parse(hit["entry_ref"])))
        yield entry_row(capture, entry, reveal=reveal)


def write_export(rows: Iterable[dict[str, Any]], file: IO[bytes], format: ExportFormat) -> int:
    """Writes rows to a file opened for bytes; gives their number."""
    if format == "jsonl":
        return _write_jsonl(rows, file)
    if format == "markdown":
        return _write_markdown(rows, file)
    return _write_columns(rows, file, format)


def _write_jsonl(rows: Iterable[dict[str, Any]], file: IO[bytes]) -> int:
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007 - the number of the last one
        file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
    return count


def _write_markdown(rows: Iterable[dict[str, Any]], file: IO[bytes]) -> int:
    count = 0
    session = None
    for count, row in enumerate(rows, 1):  # noqa: B007 - the number of the last one
        if row["session"] != session:
            session = row["session"]
            facts = ", ".join(filter(None, (row["agent"], row["project"])))
            file.write(f"# {session}\n\n{facts}\n\n".encode())
        when = f" · {row['timestamp']}" if row["timestamp"] else ""
        file.write(f"## {row['entry_ref']} · {row['label']}{when}\n\n".encode())
        text = row["text"]
        if row["kind"] == "tool":
            fence = _fence(text)
            text = f"{fence}\n{text}\n{fence}"
        file.write(f"{text}\n\n".encode())
    return count


def _fence(text: str) -> str:
    """A code fence that the text cannot end: longer than any run of backticks in it."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return "`" * max(3, longest + 1)


def _write_columns(rows: Iterable[dict[str, Any]], file: IO[bytes], format: ExportFormat) -> int:
    import pyarrow as pa

    schema = _schema()
    count = 0
    if format == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in _batches(rows, schema):
                writer.write_batch(batch)
                count += batch.num_rows
    else:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in _batches(rows, schema):
                writer.write_batch(batch)
                count += batch.num_rows
    return count


def _schema() -> pa.Schema:
    import pyarrow as pa

    fields: list[pa.Field] = [pa.field(name, pa.string()) for name in _TEXT_COLUMNS[:-1]]
    fields += [
        pa.field("turn", pa.int64()),
        pa.field("error", pa.bool_()),
        pa.field("flags", pa.list_(pa.string())),
        pa.field("total_bytes", pa.int64()),
        pa.field("text", pa.large_string()),
    ]
    return pa.schema(fields)


def _batches(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    gathered: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        gathered.append({name: row.get(name) for name in schema.names})
        size += len(row["text"])
        if size >= BATCH_BYTES:
            yield pa.RecordBatch.from_pylist(gathered, schema=schema)
            gathered, size = [], 0
    if gathered:
        yield pa.RecordBatch.from_pylist(gathered, schema=schema)
