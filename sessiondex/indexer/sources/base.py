"""What every session format implements, and the file that it reads.

A format is one module with one `Format` object; adding one is adding a module, its line in
`sources.FORMATS`, and its tests. Nothing here knows of libraries, indexes or stores.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from sessiondex.indexer.fingerprint import open_regular
from sessiondex.model import Record, SessionHeader

HEAD_BYTES = 64 * 1024
"""How much of a file's decompressed beginning a format may look at to recognise it."""

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(slots=True)
class SourceFile:
    """One file on disk that may hold sessions; opens through compression."""

    path: Path
    home: Path | None = None
    """The agent's home or root folder under which discovery found it."""
    options: SourceOptions = field(default_factory=lambda: SourceOptions())
    _is_compressed: bool | None = field(default=None, repr=False)

    @property
    def is_compressed(self) -> bool:
        """Whether the file is a Zstandard stream (by its magic number, never its name)."""
        known = self._is_compressed
        if known is None:
            with open_regular(self.path) as file:
                known = self._is_compressed = file.read(4) == ZSTD_MAGIC
        return known

    def open(self, offset: int = 0) -> BinaryIO:
        """Opens the decompressed stream at a byte offset; buffered, read-only."""
        file = io.BufferedReader(open_regular(self.path))
        if self._is_compressed is None:
            self._is_compressed = file.read(4) == ZSTD_MAGIC
            file.seek(0)
        if not self._is_compressed:
            file.seek(offset)
            return file
        import zstandard

        stream = zstandard.ZstdDecompressor().stream_reader(
            file, read_across_frames=True, closefd=True
        )
        opened = io.BufferedReader(_Decompressed(stream), 1 << 18)
        remaining = offset
        while remaining:
            skipped = len(opened.read(min(remaining, 1 << 20)))
            if not skipped:
                break
            remaining -= skipped
        return opened

    def head(self) -> bytes:
        """The first `HEAD_BYTES` of the decompressed stream."""
        with self.open() as file:
            return file.read(HEAD_BYTES)

    def is_cut(self) -> bool:
        """Whether a compressed file ends inside a frame: its reader takes that for the end."""
        if not self.is_compressed:
            return False
        with open_regular(self.path) as file:
            return _ends_inside_frame(file, os.fstat(file.fileno()).st_size)


def _ends_inside_frame(file: io.FileIO, size: int) -> bool:
    """Walks over frames and blocks by what their headers say (RFC 8878); reads no contents."""
    import zstandard

    at = 0
    while at < size:
        file.seek(at)
        head = file.read(_FRAME_HEADER)
        if head[1:4] == _SKIPPABLE and head[0] >> 4 == 5:
            at += 8 + int.from_bytes(head[4:8], "little")
            continue
        if len(head) >= 4 and head[:4] != ZSTD_MAGIC:
            return False  # no frame: the reader calls it damage
        try:
            has_checksum = zstandard.get_frame_parameters(head).has_checksum
            at += zstandard.frame_header_size(head)
        except zstandard.ZstdError:
            return len(head) < _FRAME_HEADER
        is_last = False
        while not is_last:
            file.seek(at)
            block = int.from_bytes(file.read(3), "little")
            if at + 3 > size:
                return True
            is_last = bool(block & 1)
            at += 3 + (1 if block >> 1 & 3 == _REPEATED else block >> 3)
        at += 4 * has_checksum
    return at > size


_SKIPPABLE = b"\x2a\x4d\x18"
"""Behind a first byte of 0x50 to 0x5f: a frame that is no data."""
_FRAME_HEADER = 18
"""Bytes of the longest one."""
_REPEATED = 1
"""The type of a block that is one byte, many times."""


class DamagedCompression(OSError):
    """A compressed source breaks off in damage."""


CUT = "damaged compression (the file was cut)"
"""What is said of a compressed file that ends too early."""


class _Decompressed(io.RawIOBase):
    """A Zstandard stream whose damage is an `OSError`, like that of any file."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        import zstandard

        try:
            return self._stream.readinto(buffer)
        except zstandard.ZstdError as error:
            raise DamagedCompression(f"damaged compression ({error})") from error

    def close(self) -> None:
        self._stream.close()
        super().close()


@dataclass(slots=True)
class SourceOptions:
    """What a host may set for reading."""

    record_bytes: int = 32 * 1024 * 1024
    """A larger record is numbered, not loaded, and reported as oversized."""
    document_bytes: int = 512 * 1024 * 1024
    """A larger JSON document is refused: it must be held in memory to be parsed."""


@dataclass(slots=True)
class SessionStub:
    """One session that a file holds, before it is parsed."""

    session_id: str
    selector: str = ""
    """Which one inside the file ('' where a file is one session)."""


class Parser(Protocol):
    """Reads the records of one session from where it stopped before."""

    header: SessionHeader
    """Complete once `records` is exhausted."""
    settle: bool
    """Set before `records`: the file has been quiet, so a tail that parses is committed."""

    def records(self) -> Iterator[Record]:
        """Yields every record after the resume point, in order, the provisional tail last."""
        ...

    def state(self) -> dict[str, Any]:
        """JSON-able resume state after the last *committed* record that was yielded.

        Holds at least `offset` (bytes of the decompressed stream), `number` (of the next
        record) and `line`; for documents `number` alone counts.
        """
        ...


class Format(Protocol):
    """One session format."""

    name: str
    agent: str
    parser_version: int
    is_line_format: bool
    """True: append-only lines, refreshed from a byte offset. False: a document, read whole."""

    def matches(self, head: bytes, source: SourceFile) -> bool:
        """Whether the content is of this format. Never decides by extension."""
        ...

    def stubs(self, source: SourceFile) -> list[SessionStub]:
        """The sessions that the file holds, in order."""
        ...

    def parser(
        self, source: SourceFile, stub: SessionStub, state: dict[str, Any] | None = None
    ) -> Parser:
        """A parser from the beginning, or from a state that `Parser.state` gave."""
        ...

    def resume_command(self, header: SessionHeader) -> list[str] | None:
        """The agent's own command that resumes the session; None where there is none."""
        ...


def real_path(path: str | os.PathLike[str]) -> Path:
    """The path with links resolved, as sources are known by."""
    return Path(os.path.realpath(path))
