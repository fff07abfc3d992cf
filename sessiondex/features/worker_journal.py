"""The session log of a model-run worker, in the line format of Yoi: one segment, appended to.

    <root>/<session>/<segment>.jsonl        folder 0700, file 0600

A newline commits; what stands after the last one was never part of the session and is cut off
before the next turn. The log holds the conversation as the model had it, so that a worker can be
restored from it, but of reasoning only that there was some. The instructions are not in it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from sessiondex.errors import Busy, Damaged, Failed, InvalidArgument, NotFound
from sessiondex.features.durable import flush_names
from sessiondex.features.worker_records import Value, conversation
from sessiondex.indexer.sources.base import SessionStub
from sessiondex.model import clean_text

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class _Committed(NamedTuple):
    values: list[Value]
    length: int
    """Bytes up to the last newline."""


class WorkerJournal:
    """One segment log. Written by one thread at a time, and only while it is open."""

    def __init__(
        self, path: Path, root: Path, *, model: str, clock: Callable[[], float], length: int = 0
    ) -> None:
        """Use `begin` or `resume`. `length` is how much of the file is known to be committed."""
        self.path = path
        self.root = root
        self.clock = clock
        """Epoch seconds."""
        self.record_count = 0
        """Records that this object has committed."""
        self.stub = SessionStub(f"{path.parent.name}/{path.stem}")
        self._model = model
        self._length = length
        self._file: int | None = None

    @classmethod
    def begin(
        cls, root: Path, session: str, *, model: str, clock: Callable[[], float]
    ) -> WorkerJournal:
        """A new segment of a session; its number is the next one. It is durable, and so are the
        names by which it is found.

        Raises:
            InvalidArgument: the session's name cannot name a folder.
            Failed: the file cannot be made.
        """
        folder = _folder(root, session)
        # A name is durable when the folder that holds it was flushed.
        named = [folder, root]
        named += [each.parent for each in (root, *root.parents) if not each.exists()]
        try:
            for each in (root, folder):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            number = len(_segments(folder))
            while True:
                number += 1
                path = folder / f"{number:04d}.jsonl"
                try:
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                    break
                except FileExistsError:
                    continue
        except OSError as error:
            raise _unwritable(error) from error
        journal = cls(path, root, model=model, clock=clock)
        with journal.open():
            for each in named:
                _make_durable(each)
            return journal

    @classmethod
    def resume(
        cls, root: Path, session: str, *, model: str, clock: Callable[[], float]
    ) -> tuple[WorkerJournal, list[ModelMessage]]:
        """The last segment of a session, and the conversation that is committed in it.

        Raises:
            NotFound: there is no such session.
            Damaged: a committed line is no record.
            Failed: the file cannot be read.
        """
        segments = _segments(_folder(root, session))
        if not segments:
            raise NotFound("there is no session to go on with", hint="begin a new one")
        committed = _committed(segments[-1])
        journal = cls(segments[-1], root, model=model, clock=clock, length=committed.length)
        return journal, conversation(committed.values)

    # ------------------------------------------------------------ writing

    @contextmanager
    def open(self) -> Generator[None]:
        """Holds the log for one turn; a tail that was never committed is cut off first.

        Raises:
            Busy: another worker holds it.
            Failed: it cannot be written, or another worker has gone on with it.
        """
        try:
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            raise _unwritable(error) from error
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(
                    "another worker is in a turn of this session", hint="wait for its end"
                ) from None
            self._cut_tail(file)
            self._file = file
            if not self._length:
                self.append([self._start()])
            yield
        finally:
            self._file = None
            os.close(file)

    def append(self, values: Iterable[Value]) -> None:
        """Commits records, in order.

        Raises:
            Failed: not all could be written; those that were whole are committed.
        """
        assert self._file is not None, "a journal is written while it is open"
        now = int(self.clock() * 1000)
        data = b"".join(_line({**value, "ts": now}) for value in values)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fsync(self._file)
        except OSError as error:
            self._length += data.rfind(b"\n", 0, written) + 1
            self.record_count += data.count(b"\n", 0, written)
            with suppress(OSError):
                os.ftruncate(self._file, self._length)
            raise _unwritable(error) from error
        self._length += len(data)
        self.record_count += data.count(b"\n")

    def discard(self) -> None:
        """Removes a segment in which no turn began; for whoever made it in vain."""
        with suppress(OSError):
            self.path.unlink()
            self.path.parent.rmdir()

    def _start(self) -> Value:
        return {
            "kind": "segment_start",
            "session_id": self.path.parent.name,
            "config": {"model": self._model},
            "history": [],
        }

    def _cut_tail(self, file: int) -> None:
        size = os.fstat(file).st_size
        if size < self._length or b"\n" in os.pread(file, size - self._length, self._length):
            raise Failed(
                "another worker has gone on with this session", hint="restore the worker again"
            )
        if size > self._length:
            try:
                os.ftruncate(file, self._length)
            except OSError as error:
                raise _unwritable(error) from error


def _folder(root: Path, session: str) -> Path:
    if not _SESSION.fullmatch(session):
        raise InvalidArgument(
            f"{session[:80]!r} cannot name a session",
            hint="expected at most 100 letters, digits, '_', '.' and '-'",
        )
    return root / session


def _make_durable(folder: Path) -> None:
    """Flushes the names of a folder."""
    try:
        flush_names(folder)
    except OSError as error:
        raise _unwritable(error) from error


def _segments(folder: Path) -> list[Path]:
    """The segments of a session, in order."""
    return sorted(folder.glob("[0-9]*.jsonl"), key=lambda path: (len(path.name), path.name))


def _committed(path: Path) -> _Committed:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Failed(f"the session cannot be read: {error.strerror}") from error
    length = data.rfind(b"\n") + 1
    values: list[Value] = []
    at = 0
    for line in data[:length].split(b"\n")[:-1]:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise Damaged(f"{path}: byte {at}: no JSON: {error}", hint="mend the file") from error
        if not isinstance(value, dict):
            raise Damaged(f"{path}: byte {at}: no JSON object", hint="mend the file")
        values.append(value)
        at += len(line) + 1
    return _Committed(values, length)


def _line(value: Mapping[str, Any]) -> bytes:
    return clean_text(json.dumps(value, ensure_ascii=False)).encode() + b"\n"


def _unwritable(error: OSError) -> Failed:
    return Failed(
        f"the session cannot be written: {error.strerror}",
        hint="what is committed stays; restore the worker when it can be written",
    )
