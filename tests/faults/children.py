"""Child processes that work on a library and may be killed or fail in it."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    """How a child ended: its exit code (negative for a signal), and what it told."""

    code: int
    told: dict[str, Any]

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Children:
    """Starts children, which are forked from one server that has imported everything."""

    def __init__(self, module: str = "tests.faults.work") -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def _ask(self, request: dict[str, Any]) -> str:
        server = self._server
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        return server.stdout.readline()

    def start(self, job: str, faults: dict[str, Any] | None = None, /, **arguments: Any) -> int:
        """Starts a job; returns the child's process id."""
        texts = {name: str(v) if isinstance(v, Path) else v for name, v in arguments.items()}
        return int(self._ask({"job": job, "faults": faults or {}, "arguments": texts}))

    def wait(self, child: int) -> Ended:
        """Waits for the end of a child; its id stays its own until then."""
        code, told = json.loads(self._ask({"wait": child}))
        data = base64.b64decode(told)
        return Ended(code, pickle.loads(data) if data else {})

    def run(self, job: str, faults: dict[str, Any] | None = None, /, **arguments: Any) -> Ended:
        return self.wait(self.start(job, faults, **arguments))

    def close(self) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


@contextmanager
def children(module: str = "tests.faults.work") -> Generator[Children]:
    started = Children(module)
    try:
        yield started
    finally:
        started.close()


@contextmanager
def fast_folder() -> Generator[Path]:
    """A folder in memory where there is one: many trials need no real disk to be killed."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="sessiondex-faults-", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
