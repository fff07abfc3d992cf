"""Texts in the item store: cut into chunks, put together again, any slice of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

from sessiondex.errors import Damaged
from sessiondex.indexer.store_rows import integers
from sessiondex.indexer.store_schema import (
    HEAD_ABOVE_BYTES,
    HEAD_BYTES,
    SCHEMAS,
    TEXTS,
    TextRun,
)


def code_point_cut(data: bytes, stop: int) -> int:
    """The last code point boundary of UTF-8 text that is not behind `stop`."""
    if stop >= len(data):
        return len(data)
    for position in range(stop, max(stop - 4, 0), -1):
        if data[position] & 0xC0 != 0x80:
            return position
    return stop


def text_head(data: bytes) -> bytes | None:
    """The head to keep beside the entry of this text; None if the text is short."""
    if len(data) <= HEAD_ABOVE_BYTES:
        return None
    return data[: code_point_cut(data, HEAD_BYTES)]


def text_slice(
    batches: Iterable[pa.RecordBatch], text_id: int, start: int = 0, stop: int | None = None
) -> bytes:
    """The UTF-8 bytes [start, stop) of a text from the batches that hold them, in order.

    Takes no more batches than it needs; may begin with any batch at or before the one with
    `start`. Without `stop`, reads to the end of the last batch that is given.

    Raises:
        Damaged: when the batches lack some of the bytes.
    """
    if start == stop:
        return b""
    parts: list[bytes] = []
    position = start
    found = False
    for batch in batches:
        ids = _unsigned(batch.column("text_id"))
        first, last = bisect_left(ids, text_id), bisect_right(ids, text_id)
        starts = _unsigned(batch.column("start"))
        texts = batch.column("text").cast(pa.binary())
        for row in range(max(bisect_right(starts, start, first, last) - 1, first), last):
            chunk_start = starts[row]
            if chunk_start > position:
                raise Damaged(f"texts: text {text_id} lacks bytes {position} to {chunk_start}")
            found = True
            chunk: bytes = texts[row].as_py()
            chunk_stop = chunk_start + len(chunk)
            if chunk_stop < position:
                continue
            piece_stop = chunk_stop if stop is None else min(stop, chunk_stop)
            parts.append(chunk[position - chunk_start : piece_stop - chunk_start])
            position = piece_stop
            if position == stop:
                return b"".join(parts)
    if stop is not None or not found:
        raise Damaged(f"texts: text {text_id} lacks bytes {position} to {stop or 'its end'}")
    return b"".join(parts)


def _unsigned(column: pa.UInt64Array) -> Sequence[int]:
    """The values of a column without nulls, as something to bisect."""
    view = memoryview(column.buffers()[1]).cast("Q")
    return view[column.offset : column.offset + len(column)]


def text_batch(rows: Sequence[tuple[int, int, bytes]]) -> pa.RecordBatch:
    """A `texts` batch from (text id, start, chunk)."""
    ids, starts, chunks = zip(*rows, strict=True)
    offsets = array("i", accumulate(map(len, chunks), initial=0))
    text = pa.StringArray.from_buffers(
        len(rows), pa.py_buffer(offsets), pa.py_buffer(b"".join(chunks))
    )
    columns = [integers(ids, pa.uint64()), integers(starts, pa.uint64()), text]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[TEXTS])


def text_run(batch: pa.RecordBatch, batch_index: int) -> TextRun:
    """What a `texts` batch, which is never empty, holds."""
    ids = _unsigned(batch.column("text_id"))
    return TextRun(ids[0], ids[-1], _unsigned(batch.column("start"))[0], batch_index)
