"""What a child process does when it extracts, and where it may be killed or held up in it.

Run as `python -m tests.faults.extract_work`, it is the server of `work` with one more job.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import pkgutil
import random
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.report import ExtractResult
from sessiondex.features.extract.runner import ExtractHost, Extraction
from sessiondex.features.loop.loop import LoopHost
from sessiondex.features.services import Clock
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.staging.ids import RecordIds
from sessiondex.features.state import State
from sessiondex.indexer.library import Library
from sessiondex.model import EntryRef
from tests.builders import claude_path, conversation, write_lines
from tests.faults import work
from tests.faults.children import fast_folder
from tests.features.extract.scripted import Talk, calls, finish, read, stage

NOW = 1_780_000_000_000
"""When the first run begins, in epoch milliseconds."""

LEASE_MS = 600_000

Hook = Callable[[], None]


def planted(first: int, last: int) -> list[tuple[str, str, str]]:
    """Claim, ref and quote of each turn of a `conversation` whose prompt lies in a range."""
    found: list[tuple[str, str, str]] = []
    for n in range(-(-first // 5) * 5, last + 1, 5):
        quote = f"check the spindle number {n}"
        found.append((f"Spindle number {n} is to be checked.", str(EntryRef(n)), quote))
    return found


class Obedient:
    """Looks, reads, stages all that is planted, two in an answer, and finishes."""

    def __init__(self, claims: list[tuple[str, str, str]], on_turn: Callable[[int], None]) -> None:
        self.model = FunctionModel(self._answer, model_name="obedient")
        self._on_turn = on_turn
        pairs = [claims[at : at + 2] for at in range(0, len(claims), 2)]
        self._turns: list[ModelResponse] = [
            calls(("ShowOverview", {})),
            calls(read(*(ref for _, ref, _ in claims[:4]))),
            *(calls(*map(_staging, pair)) for pair in pairs),
        ]

    # Not run in another thread, so that a kill is counted where it happens.
    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        talk = Talk(messages, info)
        turn = len(messages) // 2
        self._on_turn(turn + 1)
        if turn < len(self._turns):
            return self._turns[turn]
        return calls(finish(talk.staged_count))


def _staging(planted: tuple[str, str, str]) -> tuple[str, Any]:
    claim, ref, quote = planted
    return stage(claim, ref, quotes=[{"entry_ref": ref, "quote": quote}])


@contextmanager
def extraction(
    folder: Path,
    session: str,
    *,
    seed: int,
    now: Callable[[], int],
    on_turn: Callable[[int], None] = lambda turn: None,
    on_step: Hook | None = None,
) -> Iterator[Extraction]:
    """An extraction of a session of a library by the obedient model, as a host makes it."""
    randoms = random.Random(seed)
    with Library.open(folder) as library, State.beside(folder) as state:
        if on_step is not None:
            # SQLite asks after each step of its machine.
            state._connection.set_progress_handler(on_step, 1)
        ledger, staging = ExtractLedger(state), StagingFolder.beside(folder)
        capture = library.capture(session, now=now() / 1000)
        last = capture.record_count - 1
        first = min(ledger.done_records(capture).records, last)
        host = ExtractHost(
            ledger=ledger, backend=staging, records_of_run=staging.of_run,
            current=lambda: library.capture(session, now=now() / 1000),
            ids=RecordIds(now_ms=now, random_bytes=randoms.randbytes),
            run_id=f"run-{seed}", holder=f"process {seed}", now_ms=now,
            loop=LoopHost(clock=lambda: 0.0, random=lambda: 0.5, sleep=_never), clock=Clock(),
            lease_seconds=LEASE_MS / 1000,
        )  # fmt: skip
        model = Obedient(planted(first, last), on_turn).model
        yield Extraction(capture, model, host, model_name="obedient")


async def _never(seconds: float) -> None:
    raise AssertionError(f"a run was to wait {seconds} s")


def told(result: ExtractResult) -> dict[str, Any]:
    report = result.report
    return {
        "outcome": result.outcome, "reason": result.reason, "detail": result.detail,
        "staged": list(result.staged), "run": report.run_id, "is_adopted": report.is_adopted,
        "range": list(report.range), "pointer": report.pointer_records,
    }  # fmt: skip


def do_extract(
    library: str,
    session: str,
    *,
    seed: int,
    now: int = NOW,
    kill_turn: int = 0,
    kill_step: int = 0,
    pause: tuple[int, str, str] | None = None,
) -> dict[str, Any]:
    """Extracts; may die when the model is asked for the nth time, or at the nth step of SQLite.

    `pause` is a turn, a pipe into which the turn is told and one that is read before it goes on;
    `now` goes on by what is read.
    """
    times = {"now": now}
    steps = itertools.count(1)
    turns: list[int] = []

    def on_turn(turn: int) -> None:
        turns.append(turn)
        if turn == kill_turn:
            _die()
        if pause is not None and turn == pause[0]:
            Path(pause[1]).write_text(str(turn))
            times["now"] += int(Path(pause[2]).read_text())

    def on_step() -> None:
        times["steps"] = next(steps)
        if times["steps"] == kill_step:
            _die()

    with extraction(
        Path(library), session, seed=seed, now=lambda: times["now"], on_turn=on_turn,
        on_step=on_step if kill_step else None,
    ) as made:  # fmt: skip
        result = asyncio.run(made.run_async())
    return told(result) | {"turns": len(turns), "steps": times.get("steps", 0)}


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


work.JOBS["extract"] = do_extract

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import sessiondex.features

    for module in pkgutil.walk_packages(sessiondex.features.__path__, "sessiondex.features."):
        importlib.import_module(module.name)
    # What is loaded or built at first use is there before a child is forked.
    with fast_folder() as folder:
        write_lines(claude_path(folder / "home", "warm"), conversation(2))
        indexer = os.fork()  # whose threads end with it
        if not indexer:
            work.do_index(str(folder / "library"), str(folder / "home"))
            os._exit(0)
        os.waitpid(indexer, 0)
        do_extract(str(folder / "library"), "warm", seed=1)
    work.serve()
