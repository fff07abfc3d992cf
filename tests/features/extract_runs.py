"""An invented session and an extract run over it, as a host makes them."""

from __future__ import annotations

import itertools
from typing import Any

import orjson

from sessiondex.features.extract_run import EXTRACT_RUN, ExtractRun
from sessiondex.features.memory_extract import MemoryExtract
from sessiondex.features.registry import Registry
from sessiondex.features.services import CAPTURE, RUN_RANGE, RunRange, Services
from sessiondex.features.staging.ids import RecordIds
from sessiondex.features.staging.record import StagingRecord
from sessiondex.indexer.capture import Capture
from sessiondex.model import Item

NOW_MS = 1_780_000_000_000

ITEMS = [
    Item(0, "user", "We always deploy   from the release\nbranch, never from main."),
    Item(0, "reasoning"),
    Item(0, "assistant", "Understood: releases are cut from the release branch."),
    Item(0, "tool_call", "Bash\ncommand: git branch", call_id="c1", name="Bash"),
    Item(0, "tool_result", "* release\n  main", call_id="c1"),
    Item(0, "system", "the build has finished", sub_kind="notification"),
    Item(0, "user", "Please remember that the lathe must be oiled on Mondays."),
    Item(0, "assistant", "I will."),
]


def capture_of(items: list[Item] | None = None) -> Capture:
    return Capture.from_items(ITEMS if items is None else items, session_id="s1")


def record_ids(start: int = NOW_MS) -> RecordIds:
    """Ids from a clock that stands still and a source that counts."""
    numbers = itertools.count(1)
    return RecordIds(now_ms=lambda: start, random_bytes=lambda n: next(numbers).to_bytes(n, "big"))


class Shelf:
    """A backend in memory that fails or refuses when it is told to."""

    def __init__(self) -> None:
        self.records: dict[str, StagingRecord] = {}
        self.calls = 0
        self.error: Exception | None = None
        self.keeps_before_failing = False

    def stage(self, record: StagingRecord) -> None:
        self.calls += 1
        if self.error is None or self.keeps_before_failing:
            self.records[record.id] = record
        if self.error is not None:
            raise self.error


class Host:
    """A registry with memory-extract over one run."""

    def __init__(
        self,
        capture: Capture | None = None,
        *,
        run_range: tuple[int, int] | None = None,
        backend: Any = None,
        **options: Any,
    ) -> None:
        self.capture = capture or capture_of()
        self.shelf = Shelf() if backend is None else backend
        shown = None if run_range is None else RunRange(*run_range)
        options.setdefault("ids", record_ids())
        self.run = ExtractRun(
            self.capture, run_id="run-1", backend=self.shelf, run_range=shown, **options
        )
        provided: dict[Any, Any] = {CAPTURE: self.capture, EXTRACT_RUN: self.run}
        if shown is not None:
            provided[RUN_RANGE] = shown
        self.faults: list[Exception] = []
        self.registry = Registry(on_fault=lambda name, error: self.faults.append(error))
        self.registry.install([MemoryExtract()], Services(provided)).require_all()

    def stage(self, claim: str = "Deploy from the release branch.", **more: Any) -> dict[str, Any]:
        arguments = {
            "kind": "constraint", "claim": claim, "why_useful": "Deploys go right.",
            "entry_refs": ["E0"],
        }  # fmt: skip
        return self.call("StageMemoryCandidate", arguments | more)

    def finish(self, **arguments: Any) -> dict[str, Any]:
        return self.call("FinishMemoryExtraction", arguments)

    def call(self, name: str, arguments: Any) -> dict[str, Any]:
        return orjson.loads(self.registry.call(name, arguments).data)

    def record(self, **arguments: Any) -> dict[str, Any]:
        """The record that a call stages."""
        reply = self.stage(**arguments)
        assert "error" not in reply, reply
        return self.shelf.records[reply["id"]].to_json()
