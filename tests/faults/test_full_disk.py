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
from typing import Any

import pytest

from sessiondex.errors import Failed
from sessiondex.indexer.library import Library
from tests.builders import index
from tests.faults.children import ROOT
from tests.faults.histories import History, picture_of
from tests.faults.pictures import picture

histories = pytest.mark.parametrize("past", ["build", "grow", "forget"], indirect=True)


def assert_recovers(past: History, library: Path, told: dict[str, Any]) -> bool:
    """What failed said so as one of our errors, and nothing is lost by it; whether it failed.

    Where the same process tried again on a healthy disk, it has brought what was to be brought.
    """
    assert "raw" not in told, told["raw"]
    failed = "error" in told or "first" in told["result"]
    if "error" in told:
        assert told["error"] in ("failed", "not_found"), told
        # A run whose last sync failed may have reached all, and then finds nothing to forget.
        assert told["error"] != "not_found" or past.job == "forget"
        past.assert_old_or_new(library)
    else:
        assert picture_of(library) == past.new
    past.assert_completes(library)
    shutil.rmtree(library)
    return failed


@histories
def test_a_file_that_may_not_grow_fails_the_run_and_nothing_else(past: History) -> None:
    failures = 0
    for size in (2_000, 6_000, 20_000, 60_000):
        library = past.fresh("full")
        failures += assert_recovers(past, library, past.again(library, {"file_bytes": size}).told)
    assert failures


@histories
@pytest.mark.parametrize(
    "call", ["fsync", "fdatasync", "rename", "replace", "pwrite", "ftruncate", "unlink", "open"]
)
def test_a_failing_call_fails_the_run_and_nothing_else(past: History, call: str) -> None:
    for at in (1, 2, 4, -3):  # the first, the second, the fourth, and all from the third on
        library = past.fresh("failing")
        fault = [call, at, "EIO" if "sync" in call else "ENOSPC"]
        assert_recovers(past, library, past.again(library, {"fail": fault}).told)


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A real file system that is soon full."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=900k,mode=700", "tmpfs", str(mounted)],
        capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)


@pytest.mark.parametrize("past", ["grow", "purge", "forget"], indirect=True)
def test_a_full_disk_keeps_what_was_committed(past: History, small_disk: Path) -> None:
    """The disk is full somewhere in the run; then there is room, and the same process tries again:
    a writer of the engine that failed once must not go on to commit nothing."""
    failures = 0
    for left in range(0, 200_000, 24_000):
        library, ballast = small_disk / "library", small_disk / "ballast"
        shutil.copytree(past.base, library)
        free = os.statvfs(small_disk)
        ballast.write_bytes(b"x" * max(free.f_bavail * free.f_frsize - left, 0))
        told = past.again(library, {"ballast": str(ballast)}).told
        ballast.unlink(missing_ok=True)
        failures += assert_recovers(past, library, told)
    assert failures


@pytest.mark.parametrize("past", ["grow"], indirect=True)
def test_a_library_opened_on_a_full_disk_reads_and_writes_once_there_is_room(
    past: History, small_disk: Path
) -> None:
    library, ballast = small_disk / "library", small_disk / "ballast"
    shutil.copytree(past.base, library)
    free = os.statvfs(small_disk)
    ballast.write_bytes(b"x" * (free.f_bavail * free.f_frsize))
    with Library.open(library) as opened:
        assert picture(opened) == past.old
        with pytest.raises(Failed):
            index(opened, Path(past.arguments["home"]))
        ballast.unlink()
        index(opened, Path(past.arguments["home"]))
        assert picture(opened) == past.new


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
        failures += assert_recovers(past, library, json.loads(ran.stdout))
    assert failures
