"""Two runs on one session: one works, the other is told; one that lost its lease does no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiondex.errors import Busy, Failed, InvalidArgument
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.ledger_rows import Begun, Lease
from sessiondex.features.extract.report import ExtractResult
from sessiondex.features.extract.runner import LEASE_SECONDS
from sessiondex.features.services import RunRange
from sessiondex.features.staging.record import StagingRecord
from sessiondex.features.state import State
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from tests.builders import claude_path, conversation, index, write_lines
from tests.faults.children import Children, Ended, children
from tests.faults.extract_work import LEASE_MS, NOW
from tests.features.extract.scripted import (
    Scripted,
    Talk,
    World,
    calls,
    finish,
    prose,
    read,
    stage,
)
from tests.features.extract_runs import ITEMS, capture_of

LEASE = int(LEASE_SECONDS * 1000)
FIRST, SECOND, THIRD = (f"Rule number {n} of the workshop holds." for n in (1, 2, 3))


pytestmark = pytest.mark.usefixtures("no_requests")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, state=tmp_path / "state.sqlite3")


def stages(*claims: str) -> list[Any]:
    """Turns that stage claims, all in one answer, and finish."""
    return [calls(*(stage(each, "E0") for each in claims)), ends]


def ends(talk: Talk) -> Any:
    return calls(finish(talk.staged_count))


class Held:
    """A run in a thread that is held up in a call of its model until it is let go."""

    def __init__(self, world: World, turns: list[Any], *, at: int, **options: Any) -> None:
        self._is_there, self._may_go = threading.Event(), threading.Event()
        turn = turns[at]

        def held(talk: Talk) -> Any:
            self._is_there.set()
            assert self._may_go.wait(60)
            return turn(talk) if callable(turn) else turn

        script = Scripted([*turns[:at], held, *turns[at + 1 :]])
        made = world.extraction(capture_of(), script, **options)
        self.results: list[ExtractResult] = []
        self._thread = threading.Thread(target=lambda: self.results.append(made.run()))
        self._thread.start()
        assert self._is_there.wait(60)

    def let_go(self) -> ExtractResult:
        self._may_go.set()
        self._thread.join(60)
        (result,) = self.results
        return result


def in_a_thread(action: Callable[[], object]) -> None:
    """Does something beside the run that is at work, which has an event loop."""
    thread = threading.Thread(target=action)
    thread.start()
    thread.join(60)


# ---------------------------------------------------------------- two at once


@pytest.mark.parametrize("names", [("one", "two"), ("two", "one")])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("has_own_state", [False, True])
def test_of_two_threads_one_works_and_the_other_is_told_who(
    world: World, names: tuple[str, str], at: int, has_own_state: bool
) -> None:
    worker, other = names
    working = Held(world, stages(FIRST), at=at, holder=worker)
    more: dict[str, Any] = {}
    if has_own_state:
        more["ledger"] = ExtractLedger(State.open(world.folder / "state.sqlite3"))
    script = Scripted(stages(SECOND))
    with pytest.raises(Busy, match=f"run 'run-1' of {worker}"):
        world.run(capture_of(), script, holder=other, **more)
    assert script.talks == []  # its model was not asked
    assert working.let_go().outcome == "staged"
    assert world.claims() == [FIRST] and world.pointer() == 8


def test_one_that_comes_when_the_other_has_ended_finds_nothing_to_do(world: World) -> None:
    world.run(capture_of(), stages(FIRST))
    with pytest.raises(InvalidArgument, match="nothing was added"):
        world.run(capture_of(), stages(SECOND))
    assert world.claims() == [FIRST]


def test_runs_on_two_sessions_do_not_wait_for_each_other(world: World) -> None:
    working = Held(world, stages(FIRST), at=1)
    other = Capture.from_items(ITEMS, session_id="s2")
    assert world.run(other, stages(SECOND)).outcome == "staged"
    assert working.let_go().outcome == "staged"
    assert (world.pointer("s1"), world.pointer("s2")) == (8, 8)


class Late(ExtractLedger):
    """A ledger whose user is held up between looking how far it is and taking the lease."""

    def __init__(self, state: State, meanwhile: Callable[[], object]) -> None:
        super().__init__(state)
        self._meanwhile: list[Callable[[], object]] = [meanwhile]

    def begin(self, *arguments: Any, **named: Any) -> Begun:
        if self._meanwhile:
            self._meanwhile.pop()()
        return super().begin(*arguments, **named)


def test_a_run_that_another_one_overtook_before_it_began_extracts_nothing_again(
    world: World,
) -> None:
    late = Late(
        State.open(world.folder / "state.sqlite3"),
        lambda: in_a_thread(lambda: world.run(capture_of(), stages(FIRST))),
    )
    script = Scripted(stages(SECOND))
    with pytest.raises(InvalidArgument, match="nothing was added"):
        world.run(capture_of(), script, ledger=late)
    assert script.talks == [] and world.claims() == [FIRST]
    assert world.ledger.lease("s1") is None
    assert [run.outcome for run in world.ledger.runs()] == ["staged"]


def test_a_run_that_was_overtaken_in_part_extracts_the_rest(world: World) -> None:
    late = Late(
        State.open(world.folder / "state.sqlite3"),
        lambda: in_a_thread(
            lambda: world.run(capture_of(), stages(FIRST), run_range=RunRange(0, 3))
        ),
    )
    result = world.run(capture_of(), [calls(stage(SECOND, "E6")), calls(finish(1))], ledger=late)
    assert (result.outcome, result.report.range) == ("staged", (4, 7))
    assert world.claims() == [FIRST, SECOND] and world.pointer() == 8


def test_of_many_threads_that_begin_at_once_one_works(world: World) -> None:
    barrier = threading.Barrier(8)
    told: list[str] = []

    def one(number: int) -> None:
        state = State.open(world.folder / "state.sqlite3")
        made = world.extraction(
            capture_of(), Scripted(stages(FIRST, SECOND)), ledger=ExtractLedger(state),
            holder=f"thread {number}",
        )  # fmt: skip
        barrier.wait(60)
        try:
            told.append(made.run().outcome)
        except (Busy, InvalidArgument) as error:
            told.append(error.kind)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(told) == 8 and told.count("staged") == 1
    assert set(told) <= {"staged", "busy", "invalid_argument"}
    assert world.claims() == [FIRST, SECOND] and world.pointer() == 8
    assert [run.outcome for run in world.ledger.runs()] == ["staged"]


# ---------------------------------------------------------------- a lost lease


@pytest.mark.parametrize(
    "late",
    [
        calls(stage(SECOND, "E0")),
        calls(stage(FIRST, "E0")),
        calls(finish(1)),
        calls(stage(SECOND, "E0"), stage(THIRD, "E0"), finish(3)),
        calls(read("E0")),
        calls(read("E0"), finish(1)),
        prose(),
    ],
    ids=["stages", "repeats", "finishes", "stages and finishes", "reads", "reads and finishes",
         "talks"],
)  # fmt: skip
@pytest.mark.parametrize("is_over", [True, False])
def test_a_run_that_was_taken_over_stages_nothing_more_and_cannot_be_sealed(
    world: World, late: Any, is_over: bool
) -> None:
    turns = [calls(stage(FIRST, "E0")), late, *stages(SECOND, THIRD)]
    zombie = Held(world, turns, at=1, holder="zombie")
    world.now += LEASE
    # It stages what is to come, and is over, or thinks about its end.
    other_turns = stages(FIRST, SECOND, THIRD)
    adopter = Held(world, other_turns, at=1, holder="adopter")
    adopted = adopter.let_go() if is_over else None
    before = {record.id: record for record in world.staging.waiting().records}
    ended = zombie.let_go()
    assert (ended.outcome, ended.reason) == ("incomplete", "cancelled")
    assert "no longer holds the lease" in ended.detail
    assert not ended.report.pointer_moved
    assert {record.id: record for record in world.staging.waiting().records} == before
    adopted = adopted or adopter.let_go()
    assert (adopted.outcome, adopted.report.run_id) == ("staged", ended.report.run_id)
    assert sorted(adopted.staged) == sorted(before)
    assert sorted(world.claims()) == [FIRST, SECOND, THIRD]
    assert world.pointer() == 8 and world.ledger.lease("s1") is None
    assert [(run.holder, run.outcome) for run in world.ledger.runs()] == [("adopter", "staged")]


def test_a_zombie_that_wakes_up_before_the_adopter_staged_anything_leaves_it_alone(
    world: World,
) -> None:
    zombie = Held(world, [calls(stage(FIRST, "E0")), *stages(SECOND)], at=1, holder="zombie")
    world.now += LEASE
    adopter = Held(world, stages(SECOND), at=0, holder="adopter")
    assert zombie.let_go().reason == "cancelled"
    assert world.claims() == [FIRST]
    ended = adopter.let_go()
    assert ended.outcome == "staged" and world.claims() == [FIRST, SECOND]


def test_a_run_that_was_slow_but_not_taken_over_goes_on(world: World) -> None:
    slow = Held(world, stages(FIRST), at=0)
    world.now += 3 * LEASE
    assert slow.let_go().outcome == "staged"
    assert world.claims() == [FIRST] and world.pointer() == 8


def test_a_run_that_is_heard_of_keeps_its_lease(world: World) -> None:
    def later(talk: Talk) -> Any:
        world.now += LEASE * 2 // 3
        with pytest.raises(Busy):
            world.run(capture_of(), stages(SECOND))
        return calls(read("E0"))

    result = world.run(capture_of(), [later, later, later, *stages(FIRST)])
    assert result.outcome == "staged" and world.claims() == [FIRST]


class Locked(ExtractLedger):
    """A ledger whose state another process holds locked when the lease is to be renewed."""

    def renew(self, lease: Lease, *, now: int, lease_ms: int) -> Lease:
        raise Failed("the state cannot be used: database is locked")


def test_a_state_that_is_busy_when_the_lease_is_renewed_does_not_end_the_run(
    world: World,
) -> None:
    def later(talk: Talk) -> Any:
        world.now += LEASE // 2
        return calls(read("E0"))

    ledger = Locked(State.open(world.folder / "state.sqlite3"))
    result = world.run(capture_of(), [later, later, *stages(FIRST)], ledger=ledger)
    assert result.outcome == "staged" and world.claims() == [FIRST]


class Stuck:
    """A staging backend that is held up when it has been asked, before it keeps anything."""

    def __init__(self, world: World, meanwhile: Callable[[], object]) -> None:
        self._world = world
        self._meanwhile: list[Callable[[], object]] = [meanwhile]

    def stage(self, record: StagingRecord) -> None:
        if self._meanwhile:
            self._meanwhile.pop()()
        self._world.staging.stage(record)


@pytest.mark.parametrize("claims", [(FIRST,), (SECOND,), (FIRST, SECOND)])
def test_a_run_that_is_taken_over_while_it_writes_a_record_stages_no_claim_twice(
    world: World, claims: tuple[str, ...]
) -> None:
    results: list[ExtractResult] = []

    def taken_over() -> None:
        world.now += LEASE
        results.append(world.run(capture_of(), stages(*claims), holder="adopter"))

    stuck = Stuck(world, lambda: in_a_thread(taken_over))
    ended = world.run(capture_of(), stages(FIRST), backend=stuck, holder="zombie")
    (adopted,) = results
    assert (ended.outcome, ended.reason) == ("incomplete", "cancelled")
    assert adopted.outcome == "staged"
    assert sorted(world.claims()) == sorted({*claims, FIRST})
    assert {record.id for record in world.staging.waiting().records} >= set(adopted.staged)


def test_what_a_zombie_wrote_late_is_found_by_who_took_over(world: World) -> None:
    """It is written between the look at what was staged and the staging of the same claim."""
    waits, goes = threading.Event(), threading.Event()

    def held_up() -> None:
        waits.set()
        assert goes.wait(60)

    results: list[ExtractResult] = []
    script = Scripted(stages(FIRST))
    backend = Stuck(world, held_up)
    made = world.extraction(capture_of(), script, backend=backend, holder="zombie")
    zombie = threading.Thread(target=lambda: results.append(made.run()))
    zombie.start()
    assert waits.wait(60)
    world.now += LEASE

    def after_the_zombie(talk: Talk) -> Any:
        goes.set()
        zombie.join(60)
        # Other words of the same claim: another record than the zombie's.
        return calls(stage(FIRST, "E0", "E6", why_useful="Something else."))

    adopted = world.run(capture_of(), [after_the_zombie, ends], holder="adopter")
    assert results[0].reason == "cancelled"
    assert (adopted.outcome, world.claims()) == ("staged", [FIRST])
    assert list(adopted.staged) == [record.id for record in world.staging.waiting().records]


# ---------------------------------------------------------------- two processes


@pytest.fixture(scope="module")
def server() -> Iterator[Children]:
    with children("tests.faults.extract_work") as started:
        yield started


class Processes:
    """A library and processes that extract from its one session; one may be held up."""

    def __init__(self, folder: Path, server: Children) -> None:
        self.server = server
        self.library = folder / "library"
        self._here, self._go = folder / "here", folder / "go"
        write_lines(claude_path(folder / "home", "lathe"), conversation(4))
        with Library.create(self.library) as library:
            index(library, folder / "home")
        self.world = World(self.library, state=self.library / "state.sqlite3")
        os.mkfifo(self._here)
        os.mkfifo(self._go)

    def hold(self, turn: int, **arguments: Any) -> int:
        """Starts a process that is held up when its model is asked for the nth time."""
        child = self.server.start(
            "extract", None, library=self.library, session="lathe",
            pause=[turn, str(self._here), str(self._go)], **arguments,
        )  # fmt: skip
        assert self._here.read_text() == str(turn)
        return child

    def let_go(self, child: int, passed: int = 0) -> dict[str, Any]:
        self._go.write_text(str(passed))
        return self.server.wait(child).told

    def run(self, **arguments: Any) -> Ended:
        return self.server.run("extract", None, library=self.library, session="lathe", **arguments)


@pytest.fixture
def processes(tmp_path: Path, server: Children) -> Processes:
    return Processes(tmp_path, server)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_processes_one_works_and_the_other_is_told_who(
    processes: Processes, order: tuple[int, int]
) -> None:
    first, second = order
    child = processes.hold(4, seed=first)
    refused = processes.run(seed=second).told
    assert refused["error"] == "busy"
    assert f"run 'run-{first}' of process {first}" in refused["message"]
    assert processes.let_go(child)["result"]["outcome"] == "staged"
    assert len(processes.world.claims()) == 4 and processes.world.pointer("lathe") == 20


@pytest.mark.parametrize("turn", [1, 3, 4, 5])
def test_a_process_that_slept_past_its_lease_ends_and_the_other_ones_records_are_whole(
    processes: Processes, turn: int
) -> None:
    child = processes.hold(turn, seed=1)
    adopted = processes.run(seed=2, now=NOW + LEASE_MS).told["result"]
    assert (adopted["outcome"], adopted["run"]) == ("staged", "run-1")
    before = processes.world.staging.waiting()
    late = processes.let_go(child, LEASE_MS + 1)["result"]
    assert (late["outcome"], late["reason"]) == ("incomplete", "cancelled")
    assert processes.world.staging.waiting() == before and len(before.records) == 4
    assert sorted(adopted["staged"]) == [record.id for record in before.records]
    assert processes.world.pointer("lathe") == 20
