"""Where a stream of the item store grows: its current file, cut to what is committed."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from sessiondex.errors import Damaged
from sessiondex.indexer.store_files import StoredFile, StoreFolder, file_name, stream_files
from sessiondex.indexer.store_message import batch_message, schema_message
from sessiondex.indexer.store_schema import SCHEMAS, BatchInfo


class Committed(NamedTuple):
    """How far a stream's current file is committed; length 0 where the file is not made yet."""

    file: int
    length: int


class StreamTail:
    """The end of one stream: its current file, and the files that wait for a sync."""

    def __init__(
        self, folder: StoreFolder, stream: str, committed: Committed, max_file_bytes: int
    ) -> None:
        self._folder = folder
        self._stream = stream
        self._max_file_bytes = max_file_bytes
        self.committed = committed
        self._schema = schema_message(SCHEMAS[stream])
        self._plain_schema_bytes = SCHEMAS[stream].serialize().size
        self._file: StoredFile | None = None
        self._unsynced: list[StoredFile] = []
        self._has_new_names = False
        if committed.length:
            name = file_name(stream, committed.file)
            self._file = folder.open(name, writable=True)
            size = -1 if self._file is None else self._file.size()
            if size < committed.length:
                state = "is missing" if size < 0 else f"ends at {size}"
                raise Damaged(
                    f"{folder.shown(name)} {state}, committed are {committed.length} bytes"
                    " (length check)"
                )

    def cut(self) -> None:
        """Removes what stands behind the committed length."""
        number, length = self.committed
        for stale in stream_files(self._folder.names(), self._stream):
            if stale > number or (stale == number and not length):
                self._folder.remove(file_name(self._stream, stale))
                self._has_new_names = True
        if self._file is None:
            return
        if self._file.size() > length:
            self._file.truncate(length)
            self._unsynced.append(self._file)
        if self._file.read(0, len(self._schema)) != self._schema:
            # Columns of another release (or a damaged head): they get no new rows.
            self._roll()

    def append(self, batch: pa.RecordBatch) -> BatchInfo:
        """Writes one batch behind the last one."""
        message = batch_message(batch, self._plain_schema_bytes)
        number, offset = self.committed
        if self._file is not None and offset + len(message) > self._max_file_bytes:
            self._roll()
            number, offset = self.committed
        if self._file is None:
            self._file = self._folder.create(file_name(self._stream, number))
            self._has_new_names = True
            self._file.write(0, self._schema)
            offset = len(self._schema)
        if self._file not in self._unsynced:
            self._unsynced.append(self._file)
        self._file.write(offset, message)
        self.committed = Committed(number, offset + len(message))
        return BatchInfo(self._stream, number, offset, len(message), crc32(message), batch.num_rows)

    def sync(self) -> bool:
        """Makes what was written durable; True if the folder must be synced too."""
        for file in self._unsynced:
            file.sync()
        self._unsynced = []
        has_new_names, self._has_new_names = self._has_new_names, False
        return has_new_names

    def _roll(self) -> None:
        self._file = None
        self.committed = Committed(self.committed.file + 1, 0)
