"""Arrow IPC messages that carry their own checksum.

Every message of a store file, the schema too, holds `crc32=… length=…` in its custom metadata: the
length of the whole message, and the crc32 of its bytes while the crc's own digits are zeros. So a
file can be checked and read without the catalog, and Arrow never sees bytes that were not checked.
Other Arrow readers see plain streams without an end marker.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
from pyarrow import ipc

from sessiondex.indexer.store_files import StoredFile

_KEY = "sessiondex"
_BLANK = b"crc32=00000000 length=00000000"
_SEAL = re.compile(rb"crc32=([0-9a-f]{8}) length=([0-9a-f]{8})")
_START = b"\xff\xff\xff\xff"
_PREFIX_BYTES = 8
_MAX_METADATA = 1 << 20
"""More than any schema of ours needs; a larger one is a damaged length."""
_WINDOW = 1 << 20

_WRITE_OPTIONS = ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def schema_message(schema: pa.Schema) -> bytes:
    """The message that begins a file: the sealed schema."""
    return _sealed(schema.with_metadata({_KEY: _BLANK}).serialize().to_pybytes())


def batch_message(batch: pa.RecordBatch, schema_bytes: int) -> bytes:
    """The sealed message of a batch; `schema_bytes` is the serialized size of its plain schema."""
    sink = pa.BufferOutputStream()
    ipc.new_stream(sink, batch.schema, options=_WRITE_OPTIONS).write_batch(
        batch, custom_metadata={_KEY: _BLANK}
    )
    return _sealed(memoryview(sink.getvalue())[schema_bytes:])


def _sealed(message: bytes | memoryview) -> bytes:
    data = bytearray(message)
    start = data.index(_BLANK)
    data[start + 22 : start + 30] = b"%08x" % len(data)
    data[start + 6 : start + 14] = b"%08x" % crc32(data)
    return bytes(data)


class FoundMessage(NamedTuple):
    """Where a message stands in a file, and its bytes if they are what was written."""

    offset: int
    length: int
    data: bytes | None
    """None: the message says how long it is and is there, but its checksum does not hold."""


def message_at(file: StoredFile, offset: int, size: int) -> FoundMessage | None:
    """The message that begins at an offset; None where none begins or it is not whole."""
    prefix = file.read(offset, _PREFIX_BYTES)
    if len(prefix) < _PREFIX_BYTES or prefix[:4] != _START:
        return None
    metadata_bytes = struct.unpack_from("<I", prefix, 4)[0]
    if metadata_bytes > _MAX_METADATA:
        return None
    seal = _SEAL.search(file.read(offset + _PREFIX_BYTES, metadata_bytes))
    if seal is None:
        return None
    length = int(seal[2], 16)
    if length < _PREFIX_BYTES + metadata_bytes or offset + length > size:
        return None
    data = file.read(offset, length)
    digits = _PREFIX_BYTES + seal.start() + 6
    check = crc32(data[digits + 8 :], crc32(b"0" * 8, crc32(data[:digits])))
    return FoundMessage(offset, length, data if check == int(seal[1], 16) else None)


def messages(file: StoredFile, offset: int) -> Iterator[FoundMessage]:
    """Every message from an offset on, in order.

    A stretch that is no message, with a whole message behind it, is yielded with `data=None`; at
    the end of the file it is a torn tail and ends the walk.
    """
    size = file.size()
    while offset < size:
        found = message_at(file, offset, size)
        if found is None or found.data is None:
            resume = _next_whole(file, offset + 8, size)
            if resume is not None:
                found = FoundMessage(offset, resume - offset, None)
            elif found is None:
                return
        yield found
        offset += found.length


def _next_whole(file: StoredFile, offset: int, size: int) -> int | None:
    """Offset of the first whole message at or behind an offset."""
    while offset < size:
        window = file.read(offset, _WINDOW)
        position = window.find(_START)
        while position >= 0:
            # Messages are padded to 8 bytes, and so are their beginnings.
            if not (offset + position) & 7:
                found = message_at(file, offset + position, size)
                if found is not None and found.data is not None:
                    return offset + position
            position = window.find(_START, position + 1)
        # The next window overlaps, so that no beginning is cut; both edges stay multiples of 8.
        offset += max(len(window) - 8, 8)
    return None
