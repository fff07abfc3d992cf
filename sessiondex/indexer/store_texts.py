"""Texts in the item store: cut into chunks, put together again, any slice of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

from sessiondex.errors import Damaged
from sessiondex.indexer.store_rows import integers
from sessiondex.indexer.store_schema import SCHEMAS, TEXTS, TextRun


class TextChunks:
    """The chunks of one `texts` batch, opened for slicing."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch  # owns the memory of the views
        self.ids = _unsigned(batch.column("text_id"))
        self.starts = _unsigned(batch.column("start"))
        self.texts: pa.StringArray = batch.column("text")
        _, offsets, data = self.texts.buffers()
        first = self.texts.offset
        self.offsets = memoryview(offsets).cast("i")[first : first + len(self.texts) + 1]
        """Where each chunk begins in `data`, and where the last one ends."""
        self.data = memoryview(data) if data is not None else memoryview(b"")
        self.nbytes = batch.nbytes

    def holds_all_of(self, text_id: int) -> bool:
        """Whether a text certainly begins and ends in this batch."""
        ids = self.ids
        if not ids[0] <= text_id < ids[-1]:
            return False
        return text_id > ids[0] or self.starts[0] == 0

    def rows(self, text_id: int, start: int) -> range:
        """The rows of a text from the one with byte `start` on."""
        first, last = bisect_left(self.ids, text_id), bisect_right(self.ids, text_id)
        return range(max(bisect_right(self.starts, start, first, last) - 1, first), last)

    def start(self, row: int) -> int:
        return self.starts[row]

    def chunk(self, row: int) -> memoryview:
        return self.data[self.offsets[row] : self.offsets[row + 1]]


def text_slice(
    batches: Iterable[TextChunks], text_id: int, start: int = 0, stop: int | None = None
) -> bytes:
    """The UTF-8 bytes [start, stop) of a text from the batches that hold them, in order.

    Takes no more batches than it needs; may begin with any batch at or before the one with
    `start`. Without `stop`, reads to the end of the last batch that is given.

    Raises:
        Damaged: when the batches lack some of the bytes.
    """
    if start == stop:
        return b""
    parts: list[memoryview] = []
    position = start
    found = False
    for batch in batches:
        for row in batch.rows(text_id, start):
            chunk_start = batch.start(row)
            if chunk_start > position:
                raise Damaged(f"texts: text {text_id} lacks bytes {position} to {chunk_start}")
            found = True
            chunk = batch.chunk(row)
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
