"""Reads new files in other processes while this one writes what they hold.

Each reader process gets all its files at once and sends what it read in order; what waits to be
written is bounded in bytes. A reader is a plain Python child, not a fork and not a
`multiprocessing` one: it runs no code of the host's main module. It ends with its pipe.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from sessiondex.errors import Failed
from sessiondex.indexer.file_reading import Contents, DirectReading, ReadingOptions
from sessiondex.indexer.fingerprint import fingerprint, resume_offset
from sessiondex.indexer.preparing import FacetLists, SessionChunk
from sessiondex.indexer.sources.base import SessionStub, SourceFile

WAITING_BYTES: Final = 24 << 20
"""Frames that wait to be written, of all readers: what one commit takes to catch up with."""

PIPE_BYTES: Final = 1 << 20

_LENGTH: Final = struct.Struct("<Q")


class FileTask(NamedTuple):
    """One file to read."""

    path: str
    root: str
    has_settled: bool


class _Begin(NamedTuple):
    """Begins what was read of a session."""

    selector: str


class _End(NamedTuple):
    """Ends what was read of a file."""

    offset: int
    head: bytes
    """Fingerprint up to the offset."""


_Part = Contents | _Begin | SessionChunk | _End | Exception


class ReadAhead:
    """Files in order, read by several processes in turn."""

    def __init__(self, tasks: Sequence[FileTask], options: ReadingOptions, readers: int) -> None:
        self._readers: list[_Reader] = []
        self._next = 0
        self._reading: AheadReading | None = None
        try:
            for number in range(readers):
                mine = tasks[number::readers]
                self._readers.append(_Reader(mine, options, WAITING_BYTES // readers))
        except BaseException:
            self.close()
            raise

    def next(self, path: str) -> AheadReading | None:
        """The next file; None if no process could be made to read."""
        if self._reading is not None:
            self._reading.drain()
        reader = self._readers[self._next % len(self._readers)]
        self._next += 1
        self._reading = None
        if self._next > len(self._readers) or reader.has_begun():
            self._reading = AheadReading(path, reader.next_part)
        return self._reading

    @property
    def is_broken(self) -> bool:
        """Whether a process ended before its work was done."""
        return any(reader.is_gone for reader in self._readers)

    def close(self) -> None:
        """Ends all readers, whatever they are doing."""
        for reader in self._readers:
            reader.close()


class AheadReading:
    """One file as a reader process read it."""

    def __init__(self, path: str, next_part: Callable[[], _Part]) -> None:
        self._path = path
        self._next_part = next_part
        self._is_over = False

    def _part(self) -> _Part:
        part = self._next_part()
        self._is_over = isinstance(part, _End | Exception)
        if isinstance(part, Exception):
            raise part
        return part

    def contents(self) -> Contents:
        part = self._part()
        assert isinstance(part, Contents)
        return part

    def chunks(self, stub: SessionStub) -> Iterator[SessionChunk]:
        while self._part() != _Begin(stub.selector):
            pass  # a session that was not asked for
        is_last = False
        while not is_last:
            part = self._part()
            assert isinstance(part, SessionChunk)
            is_last = part.is_last
            yield part

    def head(self, state: dict[str, Any]) -> bytes:
        part = self._part()
        while not isinstance(part, _End):
            part = self._part()
        if part.offset == resume_offset(state):
            return part.head
        return fingerprint(Path(self._path), resume_offset(state))

    def drain(self) -> None:
        """Passes over what was not asked for."""
        while not self._is_over:
            self._is_over = isinstance(self._next_part(), _End | Exception)


class _Reader:
    """One reader process, and the frames of it that wait."""

    def __init__(
        self, tasks: Sequence[FileTask], options: ReadingOptions, waiting_bytes: int
    ) -> None:
        self._waiting_bytes = waiting_bytes
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._is_over = False
        self.is_gone = False
        """The process ended too early."""
        self._changed = threading.Condition()
        self._parts: deque[_Part] = deque()
        # The child finds its modules where this process found them.
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its readers
        )  # fmt: skip
        work = pickle.dumps((tasks, options))
        self._thread = threading.Thread(target=self._receive, args=(work,), daemon=True)
        self._thread.start()

    def _receive(self, work: bytes) -> None:
        to_child, from_child = self._process.stdin, self._process.stdout
        assert to_child is not None and from_child is not None
        with suppress(OSError, ValueError):  # the end of the child, or `close`
            _grow_pipe(from_child)
            with to_child:
                to_child.write(work)
            while (frame := _read_frame(from_child)) is not None:
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._is_over or self._bytes <= self._waiting_bytes
                    )
                    self._frames.append(frame)
                    self._bytes += len(frame)
                    self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def has_begun(self) -> bool:
        """Waits for the first frame; False if the process ended before it."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._frames)
            return bool(self._frames)

    def next_part(self) -> _Part:
        """The next part of what the process read.

        Raises:
            Failed: the process ended too early.
        """
        if not self._parts:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or self._frames)
                if not self._frames:
                    self.is_gone = True
                    raise Failed(
                        f"a process that reads session files ended (exit {self._process.wait()})",
                        hint="run it again: what was committed stays",
                    )
                frame = self._frames.popleft()
                self._bytes -= len(frame)
                self._changed.notify_all()
            self._parts.extend(pickle.loads(frame))
        return self._parts.popleft()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        with self._changed:
            self._is_over = True
            self._frames.clear()
            self._bytes = 0
            self._changed.notify_all()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _grow_pipe(pipe: IO[bytes]) -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _read_frame(pipe: IO[bytes]) -> bytes | None:
    """The next whole frame; None at the end."""
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    length = _LENGTH.unpack(header)[0]
    frame = pipe.read(length)
    return frame if len(frame) == length else None


# ---------------------------------------------------------------- in the reader process


def main() -> None:
    """Reads the files that the parent names on standard input; sends frames until it is gone."""
    # What a library prints must not get between the frames.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    tasks, options = pickle.load(sys.stdin.buffer)
    # What is read is freed by its references; cycles are few.
    gc.set_threshold(100_000)
    facets = FacetLists()
    try:
        for task in tasks:
            parts: list[_Part] = []
            for part in _read(task, options, facets):
                parts.append(part)
                if isinstance(part, SessionChunk) and not part.is_last:
                    _send(output, parts)
                    parts = []
            _send(output, parts)
    except BrokenPipeError:
        os._exit(0)


def _read(task: FileTask, options: ReadingOptions, facets: FacetLists) -> Iterator[_Part]:
    source = SourceFile(Path(task.path), Path(task.root), options.source)
    reading = DirectReading(source, options, facets, has_settled=task.has_settled)
    try:
        contents = reading.contents()
        yield contents
        state: dict[str, Any] = {}
        for stub in contents.stubs:
            yield _Begin(stub.selector)
            for part in reading.chunks(stub):
                state[stub.selector] = part.state
                yield part
        yield _End(resume_offset(state), reading.head(state))
    except Exception as error:  # noqa: BLE001 - raised again where the file is written
        yield error


def _send(output: IO[bytes], parts: list[_Part]) -> None:
    frame = pickle.dumps(parts, pickle.HIGHEST_PROTOCOL)
    output.write(_LENGTH.pack(len(frame)))
    output.write(frame)
    output.flush()
