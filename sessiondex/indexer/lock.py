"""The writer lock: one writer at a time across processes; readers never take it.

A `flock` on a file that names its holder (pid, host, start time). The kernel frees it when the
holder dies, so a lock file that is left behind means nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sessiondex.errors import Busy, Failed

POLL_SECONDS: Final = 0.05


@contextmanager
def writer_lock(path: Path, *, wait_seconds: float) -> Generator[None]:
    """Holds the writer lock of a library.

    Raises:
        Busy: when another writer holds it for longer than `wait_seconds`; names that writer.
        Failed: when the lock file cannot be opened (a read-only library).
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Failed(
            f"the library cannot be written: {error.strerror}: {path.name}",
            hint="check the permissions of the library's folder or use --library",
        ) from error
    try:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Busy(
                        f"another writer holds the library: {_holder(file)}",
                        hint="wait for it, or give more time with --wait SECONDS",
                    ) from None
                time.sleep(POLL_SECONDS)
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        # The lock is what counts: a full disk must not keep anyone from, say, forgetting.
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(holder).encode(), 0)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.ftruncate(file, 0)
    finally:
        os.close(file)


def is_locked(path: Path) -> bool:
    """Whether a writer holds the lock now; needs no right to write."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)


def _holder(file: int) -> str:
    try:
        held = json.loads(os.pread(file, 4096, 0))
        return f"pid {held['pid']} on {held['host']} since {held['started']}"
    except (ValueError, KeyError, TypeError):
        return "a process that is just starting"
