"""A full disk, and calls of the system that fail: an error that says so, the old state or the new
one, and a next run that loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.faults.children import ROOT
from tests.faults.histories import History

histories = pytest.mark.parametrize("past", ["build", "grow", "forget"], indirect=True)


def assert_recovers(past: History, library: Path, told: dict[str, object]) -> None:
    """What failed said so as one of our errors, and nothing is lost by it."""
    if "error" in told:
        assert told["error"] in ("failed", "damaged"), told
    else:
        assert "result" in told, told
    past.assert_old_or_new(library)
    past.assert_completes(library)
    shutil.rmtree(library)


@histories
def test_a_file_that_may_not_grow_fails_the_run_and_nothing_else(past: History) -> None:
    failures = 0
    for size in (2_000, 6_000, 20_000, 60_000):
        library = past.fresh("full")
        told = past.do(library, {"file_bytes": size}).told
        failures += "error" in told
        assert_recovers(past, library, told)
    assert failures


@histories
@pytest.mark.parametrize("call", ["fsync", "fdatasync", "rename", "pwrite"])
def test_a_failing_call_fails_the_run_and_nothing_else(past: History, call: str) -> None:
    for at in (1, 2, -3):  # the first, the second, and all from the third on
        library = past.fresh("failing")
        told = past.do(library, {"fail": [call, at, "EIO" if "sync" in call else "ENOSPC"]}).told
        assert_recovers(past, library, told)


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A real file system that is soon full."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k,mode=700", "tmpfs", str(mounted)],
        capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)


@pytest.mark.parametrize("past", ["grow"], indirect=True)
def test_a_full_disk_keeps_what_was_committed(past: History, small_disk: Path) -> None:
    failures = 0
    for left in (0, 30_000, 90_000):
        library = small_disk / "library"
        shutil.copytree(past.base, library)
        ballast = small_disk / "ballast"
        free = os.statvfs(small_disk)
        ballast.write_bytes(b"x" * max(free.f_bavail * free.f_frsize - left, 0))
        told = past.do(library).told
        failures += "error" in told
        past.assert_old_or_new(library)
        ballast.unlink()
        assert told.get("error") in (None, "failed"), told
        past.assert_completes(library)
        shutil.rmtree(library)
    assert failures


@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace")
@pytest.mark.parametrize("past", ["grow"], indirect=True)
@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_failing_sync_inside_the_engines_fails_the_run_and_nothing_else(
    past: History, call: str
) -> None:
    """Faults under tantivy and SQLite, which no Python patch reaches."""
    failures = 0
    for at in (1, 4, 9, 14):
        library = past.fresh("traced")
        job = {"job": past.job, "arguments": {"library": str(library), **past.arguments}}
        ran = subprocess.run(
            ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}",
             "-e", f"inject={call}:error=EIO:when={at}",
             sys.executable, "-m", "tests.faults.work", json.dumps(job)],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        told = json.loads(ran.stdout)
        failures += "error" in told
        assert_recovers(past, library, told)
    assert failures
