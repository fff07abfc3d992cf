"""The item store: every entry, text and record, in append-only Arrow streams, on disk or in memory.

Four streams (`entries`, `texts`, `records`, `sessions`), each in numbered files of lz4-compressed
batches of about 64 KiB. Which batches are visible, and where an entry stands, is the catalog's
knowledge; the store reads what it is asked for, and checks it. A reader never writes, and a file
only ever grows or goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

import pyarrow as pa
from pyarrow import ipc

from sessiondex.errors import Damaged
from sessiondex.indexer.store_files import (
    DiskFolder,
    MemoryFolder,
    StoredFile,
    StoreFolder,
    file_name,
    stream_files,
)
from sessiondex.indexer.store_message import message_at, messages
from sessiondex.indexer.store_rows import entry_rows, entry_runs, record_rows, record_runs
from sessiondex.indexer.store_schema import (
    SCHEMAS,
    STREAMS,
    BatchInfo,
    EntryRun,
    RecordRun,
    StoredEntry,
    StoredRecord,
    TextRun,
)
from sessiondex.indexer.store_tail import Committed
from sessiondex.indexer.store_texts import TextChunks, text_run, text_slice
from sessiondex.indexer.store_values import text_head
from sessiondex.indexer.store_writer import Flushed, StoreWriter

__all__ = [
    "MAX_FILE_BYTES",
    "SCHEMAS",
    "STREAMS",
    "BatchInfo",
    "Committed",
    "EntryRun",
    "FileInfo",
    "Flushed",
    "ItemStore",
    "RecordRun",
    "StoreWriter",
    "StoredEntry",
    "StoredRecord",
    "TextChunks",
    "TextRun",
    "entry_rows",
    "entry_runs",
    "record_rows",
    "record_runs",
    "text_head",
    "text_run",
    "text_slice",
]

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""A stream goes on in a new file rather than beyond this."""

_READ_OPTIONS = ipc.IpcReadOptions(use_threads=False)


class FileInfo(NamedTuple):
    """One file of the store."""

    name: str
    stream: str
    number: int
    size: int


class _OpenFile:
    """A file that is held open, and its schema once it was needed."""

    def __init__(self, file: StoredFile) -> None:
        self.file = file
        self.head = b""
        self.names: list[str] = []

    def load_head(self) -> bool:
        """Whether the file begins with a schema that is as it was written."""
        if not self.head:
            found = message_at(self.file, 0, self.file.size())
            if found is None or found.data is None:
                return False
            self.names = ipc.read_schema(pa.py_buffer(found.data)).names
            self.head = found.data
        return True


class ItemStore:
    """Reads one store, and opens its writer. Safe for any number of threads."""

    def __init__(
        self,
        folder: StoreFolder,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        open_files: Mapping[str, _OpenFile] | None = None,
    ) -> None:
        self._folder = folder
        self._max_file_bytes = max_file_bytes
        self._open_files = dict(open_files or {})

    @classmethod
    def create(cls, folder: Path | None, *, max_file_bytes: int = MAX_FILE_BYTES) -> ItemStore:
        """A store in this folder, which is made if it is not there; in memory for None."""
        if folder is None:
            return cls(MemoryFolder(), max_file_bytes=max_file_bytes)
        place = DiskFolder(folder)
        place.make()
        return cls(place, max_file_bytes=max_file_bytes)

    @classmethod
    def open(cls, folder: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> ItemStore:
        """The store in this folder.

        Raises:
            Damaged: when there is no such folder.
        """
        if not folder.is_dir():
            raise Damaged(f"the item store folder {folder} is missing")
        return cls(DiskFolder(folder), max_file_bytes=max_file_bytes)

    def writer(self, lengths: Mapping[str, tuple[int, int]]) -> StoreWriter:
        """Opens the one writer, which first drops all that is not committed.

        `lengths` gives the (file number, committed length) of each stream. What stands behind, and
        later files, are what a dead writer left; a stream that is not named loses all its files.
        Length 0 begins a new file of that number.

        Raises:
            Damaged: when a file is shorter than committed; then nothing was changed.
        """
        return StoreWriter(self._folder, lengths, self._max_file_bytes)

    def read(self, info: BatchInfo, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """One batch, or some of its columns (in the order of the schema).

        Raises:
            Damaged: when its bytes are not what was written; names file, offset and check.
        """
        name = file_name(info.stream, info.file)
        opened = self._opened(name)
        data = _checked_bytes(opened.file, info)
        if data is None:
            opened, data = self._replaced(name, opened, info)
        return self._decoded(name, info.offset, opened, data, columns)

    def text(
        self, infos: Iterable[BatchInfo], text_id: int, start: int = 0, stop: int | None = None
    ) -> bytes:
        """The bytes [start, stop) of a text, from the `texts` batches that hold them, in order."""
        return text_slice((TextChunks(self.read(info)) for info in infos), text_id, start, stop)

    def scan(
        self, stream: str, *, on_damage: Callable[[Damaged], None] | None = None
    ) -> Iterator[tuple[BatchInfo, pa.RecordBatch]]:
        """Every whole batch of a stream, in order, without the catalog; a torn tail is left out.

        Raises:
            Damaged: at the first damaged place; with `on_damage`, tells it and goes on behind.
        """

        def report(damage: Damaged) -> None:
            if on_damage is None:
                raise damage
            on_damage(damage)

        for (name, _, number, _), file in self._listed(stream):
            opened = _OpenFile(file)
            for found in messages(file, 0):
                offset, length, data = found
                if data is None:
                    what = f"{length} bytes have changed"
                    report(self._damaged(name, offset, what, "crc32"))
                    if not offset:
                        break  # without its schema no batch of the file can be read
                elif offset:
                    try:
                        batch = self._decoded(name, offset, opened, data, None)
                    except Damaged as damage:
                        report(damage)
                        continue
                    info = BatchInfo(stream, number, offset, length, crc32(data), batch.num_rows)
                    yield info, batch

    def pinned(self) -> ItemStore:
        """A reader that holds all files of now open: they stay readable when they are removed."""
        held: dict[str, _OpenFile] = {}
        for info, file in self._listed(*STREAMS):
            opened = self._open_files.get(info.name)
            if opened is None or opened.file.identity != file.identity:
                opened = self._open_files[info.name] = _OpenFile(file)
            held[info.name] = opened
        return ItemStore(self._folder, max_file_bytes=self._max_file_bytes, open_files=held)

    def files(self) -> list[FileInfo]:
        """The files of all streams, with their sizes in bytes."""
        return [info for info, _ in self._listed(*STREAMS)]

    def remove_files(self, names: Iterable[str]) -> None:
        """Removes files for good; pinned readers keep theirs."""
        for name in names:
            self._folder.remove(name)
            self._open_files.pop(name, None)
        self._folder.sync()

    def _listed(self, *streams: str) -> Iterator[tuple[FileInfo, StoredFile]]:
        names = self._folder.names()
        for stream in streams:
            for number in stream_files(names, stream):
                name = file_name(stream, number)
                file = self._folder.open(name)
                if file is not None:  # it may have been removed since it was listed
                    yield FileInfo(name, stream, number, file.size()), file

    def _opened(self, name: str) -> _OpenFile:
        opened = self._open_files.get(name)
        if opened is None:
            file = self._folder.open(name)
            if file is None:
                raise self._damaged(name, 0, "the file is missing", "presence")
            # Two threads may both open it; either handle serves.
            opened = self._open_files.setdefault(name, _OpenFile(file))
        return opened

    def _replaced(self, name: str, opened: _OpenFile, info: BatchInfo) -> tuple[_OpenFile, bytes]:
        """The batch from the file that has the name now, if that is another one.

        A file that a dead writer left is removed, and the next writer may use its name again.
        """
        file = self._folder.open(name)
        if file is not None and file.identity != opened.file.identity:
            opened = _OpenFile(file)
            data = _checked_bytes(file, info)
            if data is not None:
                self._open_files[name] = opened
                return opened, data
        size = opened.file.size()
        if info.offset + info.length > size:
            what = f"{info.length} bytes were written there, the file ends at {size}"
            raise self._damaged(name, info.offset, what, "length")
        raise self._damaged(name, info.offset, f"{info.length} bytes have changed", "crc32")

    def _decoded(
        self,
        name: str,
        offset: int,
        opened: _OpenFile,
        data: bytes,
        columns: Sequence[str] | None,
    ) -> pa.RecordBatch:
        if not opened.load_head():
            raise self._damaged(name, 0, "the schema has changed, no batch can be read", "schema")
        options = _READ_OPTIONS
        if columns is not None:
            fields = [opened.names.index(column) for column in columns]
            options = ipc.IpcReadOptions(use_threads=False, included_fields=fields)
        try:
            stream = ipc.open_stream(pa.py_buffer(opened.head + data), options=options)
            return stream.read_next_batch()
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise self._damaged(name, offset, f"no readable batch: {error}", "arrow") from error

    def _damaged(self, name: str, offset: int, what: str, check: str) -> Damaged:
        return Damaged(
            f"{self._folder.shown(name)} at offset {offset}: {what} ({check} check)",
            hint="run 'sessiondex check'",
        )


def _checked_bytes(file: StoredFile, info: BatchInfo) -> bytes | None:
    """The bytes of a batch, None where they are not what was written."""
    if info.offset + info.length > file.size():
        return None
    data = file.read(info.offset, info.length)
    return data if len(data) == info.length and crc32(data) == info.crc else None
