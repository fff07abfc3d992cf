"""The folder that holds the item store's files, on disk or in memory, behind one face.

Files are read at explicit offsets (`pread`), never mapped: a file that was cut short gives a short
answer instead of SIGBUS, growth needs no remapping, and an open file outlives its name.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sessiondex.errors import Failed

_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


_NAME = re.compile(r"([a-z]+)-([0-9]{6,})\.arrow")


def file_name(stream: str, number: int) -> str:
    """Name of a stream's numbered file."""
    return f"{stream}-{number:06d}.arrow"


def stream_files(names: Iterable[str], stream: str) -> list[int]:
    """The numbers of a stream's files among names, in order; other names are not ours."""
    found = (_NAME.fullmatch(name) for name in names)
    return sorted(int(match[2]) for match in found if match and match[1] == stream)


class StoredFile(Protocol):
    """One file of the store; stays readable after its name was removed."""

    @property
    def identity(self) -> object:
        """Equal for two handles of the same file, whatever its name is now."""
        ...

    def size(self) -> int: ...
    def read(self, offset: int, length: int) -> bytes:
        """The bytes there; fewer where the file ends before."""
        ...

    def write(self, offset: int, data: bytes) -> None: ...
    def truncate(self, length: int) -> None: ...
    def sync(self) -> None: ...


class StoreFolder(Protocol):
    """Names and opens the files of one store."""

    def names(self) -> list[str]: ...
    def open(self, name: str, *, writable: bool = False) -> StoredFile | None:
        """The file of this name, None if there is none."""
        ...

    def create(self, name: str) -> StoredFile: ...
    def remove(self, name: str) -> None: ...
    def sync(self) -> None:
        """Makes created and removed names durable."""
        ...

    def shown(self, name: str) -> str:
        """The name as messages give it."""
        ...


class MemoryFile:
    """A file of an in-memory store."""

    def __init__(self) -> None:
        self._data = bytearray()

    @property
    def identity(self) -> object:
        return id(self)

    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        # A copying slice: an exported view would forbid the writer to grow the array.
        return bytes(self._data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self._data[offset : offset + len(data)] = data

    def truncate(self, length: int) -> None:
        del self._data[length:]

    def sync(self) -> None:
        pass


class MemoryFolder:
    """The files of an in-memory store."""

    def __init__(self) -> None:
        self._files: dict[str, MemoryFile] = {}

    def names(self) -> list[str]:
        return list(self._files)

    def open(self, name: str, *, writable: bool = False) -> MemoryFile | None:
        return self._files.get(name)

    def create(self, name: str) -> MemoryFile:
        self._files[name] = file = MemoryFile()
        return file

    def remove(self, name: str) -> None:
        self._files.pop(name, None)

    def sync(self) -> None:
        pass

    def shown(self, name: str) -> str:
        return name


class DiskFile:
    """An open file; closed when nothing refers to it any more."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        found = os.fstat(descriptor)
        self._identity = (found.st_dev, found.st_ino)

    @property
    def identity(self) -> object:
        return self._identity

    def size(self) -> int:
        with failing("read", self._path):
            return os.fstat(self._descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        with failing("read", self._path):
            return os.pread(self._descriptor, length, offset)

    def write(self, offset: int, data: bytes) -> None:
        with failing("write", self._path):
            written = os.pwrite(self._descriptor, data, offset)
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], offset + written)

    def truncate(self, length: int) -> None:
        with failing("truncate", self._path):
            os.ftruncate(self._descriptor, length)

    def sync(self) -> None:
        with failing("sync", self._path):
            _sync_data(self._descriptor)


class DiskFolder:
    """The files of a store on disk: folder 0700, files 0600."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def make(self) -> None:
        """Creates the folder if it is not there."""
        with failing("create", self._path):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self._path.parent)

    def names(self) -> list[str]:
        with failing("list", self._path):
            return os.listdir(self._path)

    def open(self, name: str, *, writable: bool = False) -> DiskFile | None:
        path = self._path / name
        with failing("open", path):
            try:
                mode = os.O_RDWR if writable else os.O_RDONLY
                return DiskFile(path, os.open(path, mode | os.O_CLOEXEC))
            except FileNotFoundError:
                return None

    def create(self, name: str) -> DiskFile:
        path = self._path / name
        with failing("create", path):
            mode = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return DiskFile(path, os.open(path, mode, 0o600))

    def remove(self, name: str) -> None:
        path = self._path / name
        with failing("remove", path):
            path.unlink(missing_ok=True)

    def sync(self) -> None:
        with failing("sync", self._path):
            sync_folder(self._path)

    def shown(self, name: str) -> str:
        return str(self._path / name)


def sync_folder(path: Path) -> None:
    """Makes created, renamed and removed names of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def failing(action: str, path: Path) -> Generator[None]:
    """Turns what the system refuses into `Failed`, which says what was to be done to which file."""
    try:
        yield
    except OSError as error:
        raise Failed(f"cannot {action} {path}: {error.strerror or error}") from error
