"""SIGKILL at any moment: a library shows its old state or its new one, and the next run goes on.

More than 200 kills: at calls of the system, SQLite and tantivy that are counted, and by time.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from sessiondex.errors import SessiondexError
from sessiondex.indexer.check import check_library
from tests.faults.children import Ended
from tests.faults.histories import NAMES, History, picture_of

COUNTED_KILLS = 24
TIMED_KILLS = 10

histories = pytest.mark.parametrize("past", NAMES, indirect=True)


@histories
def test_a_kill_between_two_calls_leaves_the_old_or_the_new_state(past: History) -> None:
    points = list(range(1, past.calls + 1))
    random.Random(past.name).shuffle(points)
    kills = 0
    while kills < COUNTED_KILLS:
        library = past.fresh("killed")
        # The last points may not come: how much is merged is the engine's own choice.
        kills += past.do(library, {"kill_at": points.pop()}).was_killed
        past.assert_old_or_new(library)
        past.assert_completes(library)
        shutil.rmtree(library)


@histories
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_state(past: History) -> None:
    moments = random.Random(past.name)
    began = time.perf_counter()
    past.do(past.fresh("timed"))
    seconds = time.perf_counter() - began
    kills = 0
    while kills < TIMED_KILLS:
        library = past.fresh("killed")
        ended = _killed_within(past, library, moments.uniform(0, seconds))
        kills += ended.was_killed
        if not ended.was_killed:
            seconds *= 0.8  # the machine was busier when it was measured
        past.assert_old_or_new(library)
        past.assert_completes(library)
        shutil.rmtree(library)


def _killed_within(past: History, library: Path, seconds: float) -> Ended:
    child = past.start(library)
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        os.sched_yield()
    os.kill(child, signal.SIGKILL)
    return past.server.wait(child)


@pytest.mark.parametrize("past", ["forget"], indirect=True)
def test_a_killed_repair_is_repeated(past: History) -> None:
    assert past.old is not None
    (past.base / "library.json").write_bytes(b"not a manifest")
    whole = past.server.run("repair", {"kill_at": 0}, library=past.fresh("whole"))
    for point in random.Random(1).sample(range(1, len(whole.told["calls"]) + 1), 8):
        library = past.fresh(f"killed-{point}")
        assert past.server.run("repair", {"kill_at": point}, library=library).was_killed
        try:
            assert picture_of(library) == past.old
        except SessiondexError:
            repaired = past.server.run("repair", library=library)
            assert repaired.told["result"]["problems"] == []
            assert picture_of(library) == past.old
        assert check_library(library).problems == []
