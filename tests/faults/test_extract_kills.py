"""SIGKILL at any point of an extraction: nothing is staged twice, lost or half, the pointer is
true, and when the lease has expired the next run takes over and completes.

More than 150 kills: at calls of the system and SQLite that are counted, at every turn of the
model, between steps inside SQLite's statements, and of runs that took over a killed one.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sessiondex.errors import Busy, InvalidArgument
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.ledger_rows import Lease, Pointer, RunRow
from sessiondex.features.similarity import normalised_claim
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.staging.record import StagingRecord
from sessiondex.features.state import State
from sessiondex.indexer.library import Library
from sessiondex.query.verify import verify
from tests.builders import claude_path, conversation, index, write_lines
from tests.faults.children import Children, Ended, children, fast_folder
from tests.faults.extract_work import LEASE_MS, NOW, do_extract, planted

SESSION = "lathe"
TURNS = 6
RECORDS = 5 * TURNS
CLAIMS = sorted(claim for claim, _, _ in planted(0, RECORDS - 1))
STEP_KILLS = 24
DURABLE = {"mkdir", "fsync", "rename", "executescript", "rollback"}
"""Calls before each of which a kill comes; before every second of the others."""
LATER = NOW + LEASE_MS + 1
"""When the lease of a run that began at `NOW` and was heard of no more has expired."""


@dataclass(frozen=True)
class Seen:
    """What a state and a staging folder hold."""

    pointer: Pointer | None
    lease: Lease | None
    runs: list[RunRow]
    records: list[StagingRecord]
    reserved: dict[str, str]

    @property
    def is_over(self) -> bool:
        """Whether a run ended well."""
        return any(run.outcome == "staged" for run in self.runs)


@dataclass
class Place:
    """A library of one session whose extraction is tried again and again."""

    folder: Path
    server: Children
    kept: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        write_lines(claude_path(self.folder / "home", SESSION), conversation(TURNS))
        with Library.create(self.library) as library:
            index(library, self.folder / "home")
        self.kept = self.files()

    @property
    def library(self) -> Path:
        return self.folder / "library"

    @property
    def staging(self) -> StagingFolder:
        return StagingFolder.beside(self.library)

    def files(self) -> dict[str, bytes]:
        """What a run may not change: the sources, and the library but for state and staging."""
        names = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        told = {path: path.relative_to(self.folder).as_posix() for path in names}
        ours = ("library/state.sqlite3", "library/staging/")
        # SQLite's own files of a reader of the catalog.
        passing = ("-wal", "-shm")
        return {
            name: hashlib.sha256(path.read_bytes()).digest()
            for path, name in told.items()
            if not name.startswith(ours) and not name.endswith(passing)
        }

    def forget(self) -> None:
        """Makes it as if nothing was ever extracted."""
        for path in self.library.glob("state.sqlite3*"):
            path.unlink()
        shutil.rmtree(self.staging.folder, ignore_errors=True)

    def child(self, faults: dict[str, Any] | None = None, /, **arguments: Any) -> Ended:
        return self.server.run(
            "extract", faults, library=self.library, session=SESSION, **arguments
        )

    def extract(self, *, seed: int, now: int) -> dict[str, Any]:
        return do_extract(str(self.library), SESSION, seed=seed, now=now)

    def seen(self) -> Seen:
        listing = self.staging.waiting()
        assert listing.unreadable == []
        with State.beside(self.library) as state:
            ledger = ExtractLedger(state)
            lease = ledger.lease(SESSION)
            runs = ledger.runs()
            run_ids = {run.run_id for run in runs} | ({lease.run_id} if lease else set[str]())
            reserved: dict[str, str] = {}
            for run_id in run_ids:
                reserved |= ledger.claims(run_id)
            return Seen(ledger.pointer(SESSION), lease, runs, listing.records, reserved)

    # ------------------------------------------------------------ what must hold

    def assert_true(self) -> Seen:
        """What holds after a kill at any point."""
        seen = self.seen()
        keys = Counter(normalised_claim(record.claim) for record in seen.records)
        assert set(keys.values()) <= {1}
        assert {record.id for record in seen.records} <= set(seen.reserved.values())
        assert len(set(seen.reserved.values())) == len(seen.reserved)
        names = {record.id for record in seen.records}
        for path in self.staging.folder.glob("[!.]*"):
            assert path.stem in names  # what is half begins with a dot, and is not listed
        if seen.is_over:
            (run,) = (run for run in seen.runs if run.outcome == "staged")
            assert run.staged_count == len(seen.records) == len(CLAIMS)
            assert {record.extract_run_id for record in seen.records} == {run.run_id}
            assert seen.pointer is not None
            assert run.pointer_records == seen.pointer.records == RECORDS
            assert seen.pointer.run_id == run.run_id
            assert seen.lease is None
        else:
            assert seen.pointer is None and seen.runs == []
        return seen

    def assert_completes(
        self, seen: Seen, *, seed: int, now: int = NOW, later: int = LATER
    ) -> None:
        """The next run is told to wait while the lease lives; the one after it completes."""
        if seen.is_over:
            with pytest.raises(InvalidArgument, match="nothing was added"):
                self.extract(seed=seed, now=later)
        else:
            if seen.lease is not None:
                with pytest.raises(Busy, match=seen.lease.holder):
                    self.extract(seed=seed, now=now)
                assert self.seen() == seen
            end = self.extract(seed=seed, now=later)
            assert (end["outcome"], end["pointer"]) == ("staged", RECORDS)
            assert end["is_adopted"] == (seen.lease is not None)
            if seen.lease is not None:
                assert end["run"] == seen.lease.run_id
            assert {record.id for record in seen.records} <= set(end["staged"])
        after = self.assert_true()
        assert after.is_over
        assert sorted(record.claim for record in after.records) == CLAIMS
        assert {record.id: record for record in after.records}.items() >= {
            record.id: record for record in seen.records
        }.items()

    def assert_evidence_holds(self) -> None:
        with Library.open(self.library) as library:
            cited = [record.to_json() for record in self.staging.waiting().records]
            for found in verify(cited, open_capture=library.capture):
                assert (found["status"], found["source"]) == ("ok", "present")


@pytest.fixture(scope="module")
def extract_server() -> Iterator[Children]:
    with children("tests.faults.extract_work") as started:
        yield started


@pytest.fixture
def extracted(extract_server: Children) -> Generator[Place]:
    with fast_folder() as folder:
        made = Place(folder, extract_server)
        yield made
        assert made.files() == made.kept


def test_a_kill_between_two_calls_leaves_nothing_twice_lost_or_half(extracted: Place) -> None:
    whole = extracted.child({"kill_at": 0}, seed=1)
    assert whole.told["result"]["outcome"] == "staged"
    points = [
        number
        for number, name in enumerate(whole.told["calls"], 1)
        if name in DURABLE or number % 2
    ]
    assert len(points) >= 100
    held = Counter[str]()
    for point in points:
        extracted.forget()
        assert extracted.child({"kill_at": point}, seed=1).was_killed, point
        seen = extracted.assert_true()
        held["over" if seen.is_over else "begun" if seen.lease else "not begun"] += 1
        extracted.assert_completes(seen, seed=2)
    extracted.assert_evidence_holds()
    # The kills came before the lease, while it was held, and after the end.
    assert held["not begun"] and held["over"] and held["begun"] > len(points) // 2


def test_a_kill_while_the_model_thinks_is_taken_over_at_any_turn(extracted: Place) -> None:
    turns = extracted.child(seed=1).told["result"]["turns"]
    for turn in range(1, turns + 1):
        extracted.forget()
        assert extracted.child(seed=1, kill_turn=turn).was_killed
        seen = extracted.assert_true()
        assert seen.lease is not None
        assert len(seen.records) == min(max(0, 2 * (turn - 3)), len(CLAIMS))
        extracted.assert_completes(seen, seed=2)


def test_a_kill_inside_a_statement_leaves_the_state_before_it_or_after_it(
    extracted: Place,
) -> None:
    steps = extracted.child(seed=1, kill_step=10**9).told["result"]["steps"]
    for number in range(STEP_KILLS):
        extracted.forget()
        step = 1 + number * (steps - 1) // (STEP_KILLS - 1)
        assert extracted.child(seed=1, kill_step=step).was_killed, step
        extracted.assert_completes(extracted.assert_true(), seed=2)


def test_a_run_that_took_over_may_be_killed_as_well(extracted: Place) -> None:
    points = len(extracted.child({"kill_at": 0}, seed=1).told["calls"])
    for number in range(12):
        extracted.forget()
        first = points // 3 + number * 7 % (points // 3)
        assert extracted.child({"kill_at": first}, seed=1).was_killed
        before = extracted.assert_true()
        assert before.lease is not None
        second = points // 3 + number * 11 % (points // 3)
        assert extracted.child({"kill_at": second}, seed=2, now=LATER).was_killed
        seen = extracted.assert_true()
        assert seen.lease is not None and seen.lease.run_id == before.lease.run_id
        assert {record.id for record in before.records} <= {record.id for record in seen.records}
        extracted.assert_completes(seen, seed=3, now=LATER, later=LATER + LEASE_MS + 1)


def test_a_killed_run_over_what_was_added_moves_the_pointer_from_where_it_was(
    extracted: Place,
) -> None:
    source = claude_path(extracted.folder / "home", SESSION)
    first = extracted.extract(seed=1, now=NOW)
    write_lines(source, conversation(2, start=RECORDS), append=True)
    for turn in range(1, 5):
        ended = extracted.child(seed=1 + turn, now=NOW + turn * 2 * LEASE_MS, kill_turn=turn)
        assert ended.was_killed
        seen = extracted.seen()
        assert seen.pointer is not None and seen.pointer.records == RECORDS
        assert len(seen.runs) == 1 and len(seen.records) == TURNS + (2 if turn == 4 else 0)
        assert seen.lease is not None and seen.lease.run_id == "run-2"
    end = extracted.extract(seed=9, now=NOW + 20 * LEASE_MS)
    assert (end["run"], end["range"]) == ("run-2", [RECORDS, RECORDS + 9])
    after = extracted.seen()
    assert after.pointer is not None and after.pointer.records == RECORDS + 10
    assert [record.id for record in after.records] == [*first["staged"], *end["staged"]]
    extracted.kept = extracted.files() | {
        name: digest for name, digest in extracted.kept.items() if not name.endswith(".jsonl")
    }
