"""`Extraction`: one run of the extract worker, from a frozen capture to an outcome.

The order in which things become durable: the lease, then each record (its id reserved under the
lease before it is written), then the end. The end is one transaction in which the run is sealed
and the pointer moves, so a run that dies at any point leaves a lease that the next one takes over
with all its records, or a run that is over. Nothing but staging, pointer, audit and report is
written; what a run was shown and what the model said goes nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from sessiondex.errors import InvalidArgument, NotFound, SessiondexError
from sessiondex.features.extract.first_message import FirstMessage, first_message
from sessiondex.features.extract.lease_keeper import LeaseKeeper
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.ledger_rows import Begun, Pointer
from sessiondex.features.extract.positions import Done
from sessiondex.features.extract.prompt import extract_prompt
from sessiondex.features.extract.report import ExtractReport, ExtractResult, Outcome
from sessiondex.features.extract.shown import ShownEntries
from sessiondex.features.extract_run import EXTRACT_RUN, ExtractRun, Finished
from sessiondex.features.loop.budget import Budgets, Meter
from sessiondex.features.loop.loop import LoopEnd, LoopHost, ModelLoop
from sessiondex.features.loop.models import opened
from sessiondex.features.memory_extract import FINISH, MemoryExtract
from sessiondex.features.registry import OnFault, Registry
from sessiondex.features.services import CAPTURE, CLOCK, RUN_RANGE, Clock, RunRange, Services
from sessiondex.features.session_explore import SessionExplore
from sessiondex.masking import mask
from sessiondex.model import EntryRef
from sessiondex.query.times import format_time

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from sessiondex.features.staging.backend import StagingBackend
    from sessiondex.features.staging.ids import RecordIds
    from sessiondex.features.staging.record import StagingRecord
    from sessiondex.indexer.capture import Capture

LEASE_SECONDS: Final = 600.0
"""A run that was not heard of for so long counts as dead; it is heard of at every attempt, answer
and call, and one attempt takes less than a third of it."""


@dataclass(frozen=True, kw_only=True)
class ExtractHost:
    """What a run gets of its host."""

    ledger: ExtractLedger
    backend: StagingBackend
    records_of_run: Callable[[str], Iterable[StagingRecord]]
    """What a run has staged, waiting or closed, by its id."""
    current: Callable[[], Capture]
    """Captures the session as it stands when the run ends; NotFound where it is gone."""
    ids: RecordIds
    run_id: str
    """Of this run, unless it goes on with one that was given up."""
    holder: str
    """Who holds the lease; names process and machine to people."""
    now_ms: Callable[[], int]
    loop: LoopHost
    clock: Clock
    """For times that a model gives as an age."""
    earlier: Iterable[StagingRecord] = ()
    """Records of other runs, with which new claims are compared."""
    lease_seconds: float = LEASE_SECONDS
    on_fault: OnFault | None = None
    on_progress: Callable[[Meter, int], None] = lambda meter, staged: None
    """Told of what is used and how many are staged, after every answer and call."""


class _Ending(NamedTuple):
    outcome: Outcome
    reason: str
    detail: str


class _PointerMove(NamedTuple):
    """How many leading records are extracted when the run is over, and why."""

    records: int
    moved: Pointer | None
    reason: str


class Extraction:
    """One run over one capture with one model; `run` may be called once."""

    def __init__(
        self,
        capture: Capture,
        model: Model,
        host: ExtractHost,
        *,
        model_name: str,
        run_range: RunRange | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        """`run_range` is what was added since the pointer, unless given. `model_name` is for the
        report."""
        self._capture = capture.committed()
        self._model = model
        self._model_name = mask(model_name).text  # someone may have passed a key in its place
        self._host = host
        self._asked_range = run_range
        self._budgets = budgets or Budgets()
        self._shown = ShownEntries()
        self._is_cancelled = False
        self._loop: ModelLoop | None = None
        self._message: FirstMessage | None = None
        self._run: ExtractRun | None = None
        self._adopted_ids: frozenset[str] = frozenset()
        self._sealed: _Ending | None = None
        self._began_at = 0

    def cancel(self) -> None:
        """Ends the run as `incomplete(cancelled)`; from any thread, any number of times."""
        self._is_cancelled = True
        if self._loop is not None:
            self._loop.cancel()

    def run(self) -> ExtractResult:
        """Runs in a thread that has no event loop. Ctrl-C there ends the run as cancelled and
        raises KeyboardInterrupt; a host that wants the result installs `cancel` as its handler.

        Raises: see `run_async`.
        """
        return asyncio.run(self.run_async())

    async def run_async(self) -> ExtractResult:
        """Works until there is an outcome. Where the task that awaits it is cancelled, the run
        ends as cancelled and CancelledError is raised as ever.

        Raises:
            InvalidArgument: the range holds nothing that could be extracted from.
            Busy: another run works on the session.
            Failed: the state cannot be used; nothing was begun.
        """
        ledger, now = self._host.ledger, self._host.now_ms()
        self._began_at = now
        self._meter = Meter(self._budgets, clock=self._host.loop.clock)
        done = ledger.done_records(self._capture)
        asked = checked_range(self._capture, done, self._asked_range)
        begun = ledger.begin(
            self._capture, first=None if self._asked_range is None else asked.first,
            last=asked.last, run_id=self._host.run_id, holder=self._host.holder, now=now,
            lease_ms=self._lease_ms,
        )  # fmt: skip
        done = done._replace(records=begun.lease.done)  # another run may have come further
        keeper = LeaseKeeper(
            ledger, begun.lease, lease_ms=self._lease_ms, now_ms=self._host.now_ms,
            on_lost=self.cancel,
        )  # fmt: skip
        work = _Work(begun, keeper, done, RunRange(begun.lease.first, begun.lease.last))
        try:
            end = await self._work(work)
        except Exception as error:  # noqa: BLE001 - a fault of ours is an outcome, and it is told
            if self._host.on_fault is not None:
                self._host.on_fault("extract", error)
            said = mask(error.message).text if isinstance(error, SessiondexError) else ""
            broke = f"the run broke: {type(error).__name__}"
            return self._close(work, _Ending("failed", broke, said))
        except BaseException:
            # The process is told to end: the state says what is true.
            self._close(work, _Ending("incomplete", "cancelled", "the process was ended"))
            raise
        return self._close(work, _ending(end))

    # ------------------------------------------------------------ before

    @property
    def _lease_ms(self) -> int:
        return int(self._host.lease_seconds * 1000)

    # ------------------------------------------------------------ during

    async def _work(self, work: _Work) -> LoopEnd:
        host, run_id = self._host, work.begun.lease.run_id
        adopted = list(host.records_of_run(run_id)) if work.begun.is_adopted else []
        self._adopted_ids = frozenset(each.id for each in adopted)
        self._message = first_message(self._capture, work.range, staged=adopted)
        run = self._run = ExtractRun(
            self._capture, run_id=run_id, backend=host.backend, ids=host.ids,
            run_range=work.range, adopted=adopted,
            earlier=[each for each in host.earlier if each.extract_run_id != run_id],
            reserve=work.keeper.reserve, find=lambda id: self._kept(run_id, id),
            seal=lambda finished: self._seal(work, finished),
        )  # fmt: skip
        registry = Registry(on_fault=host.on_fault)
        provided = {
            CAPTURE: self._capture, RUN_RANGE: work.range, EXTRACT_RUN: run, CLOCK: host.clock,
        }  # fmt: skip
        registry.install([SessionExplore(), MemoryExtract()], Services(provided)).require_all()

        def progress(meter: Meter) -> None:
            if self._sealed is None:
                work.keeper.beat()
            host.on_progress(meter, len(run.staged))

        self._loop = ModelLoop(
            self._model,
            registry,
            instructions=extract_prompt().text,
            host=replace(host.loop, on_progress=progress),
            finishing=[FINISH.name],
            is_over=lambda: run.is_sealed,
            on_call=self._shown.note,
        )
        if self._is_cancelled:
            self._loop.cancel()
        self._meter.shown_bytes += len(self._message.text.encode())
        async with opened(self._model):
            return await self._loop.run(self._message.text, self._meter)

    def _kept(self, run_id: str, id: str) -> StagingRecord | None:
        """The record of the run that is kept under an id."""
        return next((each for each in self._host.records_of_run(run_id) if each.id == id), None)

    # ------------------------------------------------------------ the end

    def _seal(self, work: _Work, finished: Finished) -> None:
        """Makes the end that the model called for durable, before the model is told of it."""
        assert self._run is not None
        reason = mask(finished.no_candidates_reason).text
        doubts = self._doubts()
        if doubts:
            ending = _Ending("failed", doubts, "")
            work.keeper.guard(lambda lease, now: self._write_end(work, ending))
        else:
            outcome = "staged" if finished.staged_count else "no_candidates"
            ending = _Ending(outcome, reason, "")
            move = self._pointer_move(work)
            facts = _facts(self._report(work, move))
            row = work.keeper.guard(
                lambda lease, now: self._host.ledger.seal(
                    lease, outcome=outcome, staged_count=finished.staged_count,
                    pointer=move.moved, pointer_reason=move.reason, now=now, facts=facts,
                )
            )  # fmt: skip
            records = work.done.records if row.pointer_records is None else row.pointer_records
            moved = None if row.pointer_records is None else move.moved
            work.move = _PointerMove(records, moved, row.pointer_reason)
        self._sealed = ending

    def _doubts(self) -> str:
        """Why the run's end is in doubt; '' where nothing is."""
        run = self._run
        assert run is not None
        if run.unsure:
            return f"{len(run.unsure)} candidates may be kept, or not: staging them failed"
        if run.staged:
            held = {record.id for record in self._host.records_of_run(run.id)}
            lost = sum(record.id not in held for record in run.staged)
            if lost:
                return f"{lost} staged records are not there any more"
        return "; ".join(dict.fromkeys(self._shown.broken))

    def _pointer_move(self, work: _Work) -> _PointerMove:
        """Where the pointer goes when the run ends well; asks how the session stands now."""
        done, run_range = work.done.records, work.range
        if run_range.first > done:
            return _PointerMove(done, None, "the range begins after the pointer")
        if run_range.last + 1 <= done:
            return _PointerMove(done, None, "the session was extracted that far before")
        try:
            current = self._host.current()
        except NotFound:
            return _PointerMove(done, None, "the session is gone")
        except SessiondexError as error:
            return _PointerMove(done, None, f"the session cannot be looked at: {error.kind}")
        pointer, reason = self._host.ledger.next_pointer(
            work.keeper.lease, current, now=self._host.now_ms()
        )
        return _PointerMove(done if pointer is None else pointer.records, pointer, reason)

    def _close(self, work: _Work, ending: _Ending) -> ExtractResult:
        """The result; writes an end that is not written yet."""
        if self._sealed is not None:
            ending = self._sealed
        elif work.keeper.lost:
            ending = _Ending("incomplete", "cancelled", work.keeper.lost)
        else:
            try:
                self._write_end(work, ending)
            except SessiondexError as error:
                # The lease expires, and the next run takes it over: that is what the state says.
                ending = ending._replace(detail=f"the end could not be written: {error.message}")
        return ExtractResult(
            outcome=ending.outcome,
            reason=ending.reason,
            detail=ending.detail,
            staged=tuple(each.id for each in self._run.staged) if self._run else (),
            report=self._report(work, work.move),
        )

    def _write_end(self, work: _Work, ending: _Ending) -> None:
        """Writes an end that moves no pointer; the next run goes on with the records."""
        is_incomplete = ending.outcome == "incomplete"
        self._host.ledger.end(
            work.keeper.lease, outcome="incomplete" if is_incomplete else "failed",
            reason=ending.reason if is_incomplete else "",
            detail=ending.detail if is_incomplete else ending.reason,
            staged_count=len(self._run.staged) if self._run else 0,
            now=self._host.now_ms(), facts=_facts(self._report(work, None)),
        )  # fmt: skip

    def _report(self, work: _Work, move: _PointerMove | None) -> ExtractReport:
        meter, shown, message = self._meter, self._shown, self._message
        real = message.real_users if message else frozenset[EntryRef]()
        seen = real & (shown.by_tools | (message.shown if message else frozenset[EntryRef]()))
        own = [
            each
            for each in (self._run.staged if self._run else ())
            if each.id not in self._adopted_ids
        ]
        return ExtractReport(
            run_id=work.begun.lease.run_id,
            session=self._capture.session,
            capture=self._capture.token,
            range=(work.range.first, work.range.last),
            is_adopted=work.begun.is_adopted,
            model=self._model_name,
            prompt_digest=extract_prompt().digest,
            turns=meter.turns,
            calls=sum(shown.calls.values()),
            calls_by_tool=dict(sorted(shown.calls.items())),
            refused_calls=shown.refused_calls,
            shown_bytes=meter.shown_bytes,
            user_entries=len(real),
            shown_user_entries=len(seen),
            unseen_refs=shown.unseen(own),
            input_tokens=meter.input_tokens,
            output_tokens=meter.output_tokens,
            started=format_time(self._began_at) or "",
            seconds=meter.seconds,
            pointer_records=move.records if move else work.done.records,
            pointer_moved=move is not None and move.moved is not None,
            pointer_reason=move.reason if move else "the run did not end well",
        )


def checked_range(capture: Capture, done: Done, asked: RunRange | None) -> RunRange:
    """The range of a run: what was asked for, or what was added since the pointer.

    Raises:
        InvalidArgument: nothing was added, or the range is none of the capture or holds no entry.
    """
    last = capture.record_count - 1
    if asked is None and done.records > last:
        raise InvalidArgument(
            "nothing was added to the session since it was last extracted from",
            hint="name a range to extract from it again",
        )
    found = asked or RunRange(done.records, last)
    if not 0 <= found.first <= found.last <= last:
        raise InvalidArgument(
            f"records {found.first} to {found.last} are no range of the session",
            hint=f"its last record is {last}",
        )
    if capture.lower(EntryRef(found.first)) == capture.upper(EntryRef(found.last)):
        raise InvalidArgument(
            "the range holds no entry that could be extracted from", hint="name another range"
        )
    return found


@dataclass(slots=True)
class _Work:
    """What a run that has begun goes by."""

    begun: Begun
    keeper: LeaseKeeper
    done: Done
    range: RunRange
    move: _PointerMove | None = None


def _facts(report: ExtractReport) -> dict[str, str | int | float]:
    """What the ledger keeps of a report: numbers, and words of the host."""
    return {
        "model": report.model[:100],
        "prompt_digest": report.prompt_digest,
        "turns": report.turns,
        "calls": report.calls,
        "refused_calls": report.refused_calls,
        "shown_bytes": report.shown_bytes,
        "user_entries": report.user_entries,
        "shown_user_entries": report.shown_user_entries,
        "unseen_refs": len(report.unseen_refs),
        "input_tokens": report.input_tokens,
        "output_tokens": report.output_tokens,
        "seconds": round(report.seconds, 3),
    }


def _ending(end: LoopEnd) -> _Ending:
    return _Ending("incomplete", end.reason, end.detail)
