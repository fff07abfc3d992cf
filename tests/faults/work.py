"""What a child process does to a library, and the faults that can be put into it first.

Run as `python -m tests.faults.work`, it is a server: each line of its input is a job, for which it
forks a child; so a child costs milliseconds and starts without threads. Run with one job as its
argument, it does that job itself (for a tracer that injects faults).
"""

from __future__ import annotations

import base64
import errno
import faulthandler
import importlib
import io
import json
import os
import pickle
import pkgutil
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sessiondex.indexer
import sessiondex.query
from sessiondex.errors import SessiondexError
from sessiondex.indexer import store_files
from sessiondex.indexer.check import check_library, repair_library
from sessiondex.indexer.forget import forget_sessions
from sessiondex.indexer.library import Library
from tests.builders import index
from tests.faults.pictures import found_by_reading, picture, picture_at

FILE_CALLS = frozenset(
    (
        "pwrite", "write", "open", "fsync", "fdatasync", "ftruncate", "rename", "replace", "unlink",
        "mkdir", "rmdir", "chmod",
        "executescript", "execute", "executemany", "commit", "rollback",
        "writer", "add_json", "delete_documents_by_query", "wait_merging_threads",
    )
)  # fmt: skip
"""Calls of the system, SQLite and tantivy between which what is on the disk may change."""

SECONDS = 120
"""A child that takes longer hangs: it shows where, and ends."""

# ---------------------------------------------------------------- jobs


def do_index(library: str, home: str, **options: Any) -> Any:
    with Library.create(library) as opened:
        return index(opened, Path(home), **options).to_json()


def do_index_again(library: str, home: str, **options: Any) -> Any:
    with Library.create(library) as opened:
        return _again(lambda: index(opened, Path(home), **options).to_json())


def do_forget_again(library: str, sessions: list[str]) -> Any:
    with Library.open(library) as opened:
        return _again(lambda: forget_sessions(opened, sessions))


def _again(job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Does a job; after a failure, of which it tells, once more without the faults."""
    try:
        return job()
    except SessiondexError as error:
        first = str(error)
    _heal()
    return {"first": first, **job()}


def do_forget(library: str, sessions: list[str]) -> Any:
    with Library.open(library) as opened:
        return forget_sessions(opened, sessions)


def do_repair(library: str) -> Any:
    return repair_library(library).to_json()


def do_check(library: str) -> Any:
    return check_library(library).to_json()


def do_picture(library: str, queries: list[str] | None = None) -> Any:
    with Library.open(library) as opened:
        return picture(opened, *(queries or ()))


def do_watch(library: str, until: str) -> Any:
    """Looks at a library that others change, opened anew and held open, until a file is there.

    A look during which nothing was committed is of one state: what is found is what is read.
    """
    looks = 0
    with Library.open(library) as held:
        while not os.path.exists(until) or not looks:
            with Library.open(library) as opened:
                for each in (opened, held):
                    snapshot = each.snapshot()
                    told = picture_at(snapshot)
                    now = each.snapshot()
                    if (now.epoch, now.commit) == (snapshot.epoch, snapshot.commit):
                        assert told["found"] == found_by_reading(told), told["found"]
                        looks += 1
    return looks


def do_flips(library: str, file: str, flips: list[list[int]], queries: list[str]) -> Any:
    """Turns each bit, asks `check` and everything else, and turns it back.

    Tells of each flip whether `check` reports it, and what came of reading: `same`, `other`, or
    the kind of an error.
    """
    folder = Path(library)
    told: list[tuple[bool, str]] = []

    def answers() -> Any:
        with Library.open(folder, read_only=True) as opened:
            return picture(opened, *queries)

    before = answers()
    for position, bit in flips:
        _flip(folder / file, position, bit)
        try:
            is_reported = not check_library(folder).is_sound
        except SessiondexError:
            is_reported = True
        try:
            came = "same" if answers() == before else "other"
        except SessiondexError as error:
            came = error.kind
        told.append((is_reported, came))
        _flip(folder / file, position, bit)
    return told


def _flip(path: Path, position: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


JOBS: dict[str, Callable[..., Any]] = {
    name.removeprefix("do_"): job for name, job in list(globals().items()) if name[:3] == "do_"
}

# ---------------------------------------------------------------- faults


class _Counter:
    """Counts the calls that change files, as they begin; at one of them the process dies."""

    def __init__(self, kill_at: int) -> None:
        self.names: list[str] = []
        self._kill_at = kill_at

    def __call__(self, frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and function.__name__ in FILE_CALLS and not _is_plain(function):
            self.names.append(function.__name__)
            if len(self.names) == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def _is_plain(function: Any) -> bool:
    """Whether a function only shares a name, like `str.replace`."""
    owner = getattr(function, "__self__", None)
    return isinstance(owner, str | bytes | io.IOBase)


_ballast: list[str] = []
_healthy: dict[str, Any] = {}


def _heal() -> None:
    """Takes the faults away again."""
    for path in _ballast:
        os.unlink(path)
    for name, real in _healthy.items():
        setattr(os, name, real)
    if "fdatasync" in _healthy:
        store_files._sync_data = os.fdatasync
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def _fail_nth(name: str, at: int, code: int) -> None:
    """Lets the `at`-th call of an `os` function fail, and all that follow where `at` is < 0.

    Opening a source is no such call: one that cannot be opened is skipped and reported.
    """
    real = _healthy[name] = getattr(os, name)
    calls = 0

    def failing(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        if name == "open" and arguments[1] & os.O_NONBLOCK:
            return real(*arguments, **keywords)
        calls += 1
        if calls == at or (at < 0 and calls >= -at):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **keywords)

    setattr(os, name, failing)
    if name == "fdatasync":
        store_files._sync_data = failing


def _prepared(faults: dict[str, Any]) -> _Counter:
    if "uid" in faults:
        os.setgroups([])
        os.setgid(faults["uid"])
        os.setuid(faults["uid"])
    if "file_bytes" in faults:
        resource.setrlimit(resource.RLIMIT_FSIZE, (faults["file_bytes"], resource.RLIM_INFINITY))
    if "ballast" in faults:
        _ballast.append(faults["ballast"])
    if "fail" in faults:
        name, at, code = faults["fail"]
        _fail_nth(name, at, getattr(errno, code))
    counter = _Counter(faults.get("kill_at", 0))
    if "kill_at" in faults:
        sys.setprofile(counter)
    return counter


def perform(job: dict[str, Any]) -> dict[str, Any]:
    """Does a job with its faults; tells the result, the error of ours, or what else was raised."""
    counter = _prepared(job.get("faults", {}))
    try:
        reply = {"result": JOBS[job["job"]](**job["arguments"])}
    except SessiondexError as error:
        reply = {"error": error.kind, "message": str(error)}
    except BaseException:  # noqa: BLE001 - whatever it is, the test must hear of it
        reply = {"raw": traceback.format_exc()}
    sys.setprofile(None)
    return {**reply, "calls": counter.names}


# ---------------------------------------------------------------- the server


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def serve() -> None:
    importlib.import_module("pyarrow.compute")  # loaded late, but a child may be another user
    for package in (sessiondex.indexer, sessiondex.query):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    children: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "job" in request:
            reader, writer = os.pipe()
            child = os.fork()
            if not child:
                os.close(reader)
                faulthandler.dump_traceback_later(SECONDS, exit=True)
                answer = pickle.dumps(perform(request))
                while answer:
                    answer = answer[os.write(writer, answer) :]
                os._exit(0)
            os.close(writer)
            children[child] = reader
            _say(child)
        else:
            child = request["wait"]
            with open(children.pop(child), "rb") as file:
                answer = file.read()
            _, status = os.waitpid(child, 0)
            told = base64.b64encode(answer).decode()
            _say(json.dumps([os.waitstatus_to_exitcode(status), told]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if len(sys.argv) > 1:
        _say(json.dumps(perform(json.loads(sys.argv[1])), default=str))
    else:
        serve()
