"""Extraction over one library: what a run gets from the folder, which sessions are due, and how
far each is.

This is what the command line and a host in Python use. It opens the state and the staging folder
beside the library; sessions are named as everywhere.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sessiondex.errors import InvalidArgument, NotFound, SessiondexError
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.ledger_rows import DecisionRow, Lease, RunRow
from sessiondex.features.extract.policy import Decision, ExtractPolicy
from sessiondex.features.extract.positions import Done
from sessiondex.features.extract.runner import ExtractHost, Extraction
from sessiondex.features.services import Clock, RunRange
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.staging.ids import RecordIds
from sessiondex.model import EntryRef
from sessiondex.query.selection import as_ref
from sessiondex.query.times import epoch_milliseconds

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic_ai.models import Model

    from sessiondex.features.loop.budget import Budgets, Meter
    from sessiondex.features.loop.loop import LoopHost
    from sessiondex.features.registry import OnFault
    from sessiondex.features.state import State
    from sessiondex.indexer.capture import Capture
    from sessiondex.indexer.library import Library


class DueSession(NamedTuple):
    """A session of the library with the decision about it."""

    session: str
    capture: Capture | None
    """None where the session cannot be read."""
    decision: Decision | None
    error: SessiondexError | None = None
    """Why there is no decision."""


class SessionStatus(NamedTuple):
    """How far extraction of one session is."""

    session: str
    record_count: int | None
    """Records of the session now; None where the library does not hold it any more."""
    done: Done | None
    last_run: RunRow | None
    lease: Lease | None
    recorded: DecisionRow | None
    """The last decision that a host recorded."""
    decision: Decision | None
    """What the policy says now, by the threshold of that decision, or the default where it was off;
    None as `record_count`."""

    def to_json(self, *, now: int) -> dict[str, Any]:
        """The status as JSON; `now` says whether the lease is live."""
        run, lease, recorded, decision = self.last_run, self.lease, self.recorded, self.decision
        return {
            "session": self.session,
            "records": self.record_count,
            "extracted_records": self.done.records if self.done else None,
            "extracted_by": self.done.why if self.done else None,
            "last_run": None if run is None else run._asdict() | {"facts": dict(run.facts)},
            "running": None
            if lease is None or not lease.is_live(now)
            else {"run_id": lease.run_id, "holder": lease.holder, "expires": lease.expires},
            "decision": None if decision is None else decision._asdict(),
            "recorded_decision": None if recorded is None else recorded._asdict(),
        }


@dataclass(frozen=True, kw_only=True)
class LocalExtractor:
    """Extracts from the sessions of one library."""

    folder: Path
    """Of the library, beside which the staging folder stands."""
    library: Library
    state: State
    now: Callable[[], datetime]
    loop: LoopHost
    random_bytes: Callable[[int], bytes] = os.urandom
    on_fault: OnFault | None = None

    @property
    def ledger(self) -> ExtractLedger:
        """Pointers, leases and ends of runs."""
        return ExtractLedger(self.state)

    @property
    def staging(self) -> StagingFolder:
        """The records, beside the library."""
        return StagingFolder.beside(self.folder)

    def now_ms(self) -> int:
        """Epoch milliseconds of this moment."""
        return epoch_milliseconds(self.now())

    def capture(self, session: str) -> Capture:
        """The committed entries of a session as it stands now.

        Raises:
            NotFound: there is no such session.
        """
        now = self.now().timestamp()
        return self.library.snapshot().capture(session, now=now).committed()

    # ------------------------------------------------------------ running

    def extraction(
        self,
        capture: Capture,
        model: Model,
        *,
        model_name: str,
        run_range: RunRange | None = None,
        budgets: Budgets | None = None,
        on_progress: Callable[[Meter, int], None] = lambda meter, staged: None,
        current: Callable[[], Capture] | None = None,
    ) -> Extraction:
        """A run over a capture, to be run. `current` captures the session anew; by default from
        the library."""
        ids = RecordIds(now_ms=self.now_ms, random_bytes=self.random_bytes)
        staging = self.staging
        host = ExtractHost(
            ledger=self.ledger,
            backend=staging,
            records_of_run=staging.of_run,
            current=current or (lambda: self.capture(capture.session)),
            ids=ids,
            run_id=ids(),
            holder=f"{socket.gethostname()}:{os.getpid()}",
            now_ms=self.now_ms,
            loop=self.loop,
            clock=Clock(self.now),
            earlier=staging.waiting().records,
            on_fault=self.on_fault,
            on_progress=on_progress,
        )
        return Extraction(
            capture, model, host, model_name=model_name, run_range=run_range, budgets=budgets
        )

    def due(self, policy: ExtractPolicy, *, keep: bool = True) -> Iterator[DueSession]:
        """Every session of the library with the decision about it, the newest first.

        A decision is kept in the ledger unless `keep` is False. Sessions are captured one by one,
        each when it is asked for; one that cannot be read hinders no other.

        Raises:
            Failed: the state cannot be used.
        """
        for row in self.library.snapshot().rows():
            now = self.now_ms()
            try:
                capture = self.capture(row.session)
                has_ended = policy.has_ended(capture, now=now)
            except NotFound:
                continue  # forgotten meanwhile
            except SessiondexError as error:
                yield DueSession(row.session, None, None, error)
                continue
            decision = policy.decide(
                capture, self.ledger, now=now, has_ended=has_ended, is_recorded=keep
            )
            yield DueSession(row.session, capture, decision)

    # ------------------------------------------------------------ status

    def status(self, session: str) -> SessionStatus:
        """How far one session is, by its id or what names it.

        Raises:
            NotFound: neither library nor ledger knows the session.
        """
        ledger = self.ledger
        try:
            return self._status(ledger, self.library.snapshot().resolve(session))
        except NotFound:
            if session not in ledger.sessions():
                raise
            return self._status(ledger, session)

    def statuses(self) -> Iterator[SessionStatus]:
        """How far every session is: those of the library, the newest first, then those that only
        the ledger knows. Each is looked at when it is asked for."""
        ledger = self.ledger
        gone = set(ledger.sessions())
        for row in self.library.snapshot().rows():
            gone.discard(row.session)
            yield self._status(ledger, row.session)
        for session in sorted(gone):
            yield self._status(ledger, session)

    def _status(self, ledger: ExtractLedger, session: str) -> SessionStatus:
        done = decision = count = None
        recorded = ledger.decision(session)
        with suppress(NotFound):  # forgotten; the ledger still knows it
            capture, now = self.capture(session), self.now_ms()
            policy = ExtractPolicy()
            if recorded is not None and recorded.threshold:
                policy = ExtractPolicy(recorded.threshold)
            decision = policy.decide(
                capture, ledger, now=now, has_ended=policy.has_ended(capture, now=now),
                is_recorded=False,
            )  # fmt: skip
            done, count = ledger.done_records(capture), capture.record_count
        return SessionStatus(
            session=session,
            record_count=count,
            done=done,
            last_run=ledger.last_run(session),
            lease=ledger.lease(session),
            recorded=recorded,
            decision=decision,
        )


def range_of(
    capture: Capture, ledger: ExtractLedger, from_ref: str | None, through_ref: str | None
) -> RunRange | None:
    """The records between two refs; an end that is not given is where extraction came to, or the
    end of the session. None where neither is given.

    Raises:
        InvalidArgument: a ref is malformed, or the range ends before it begins.
    """
    if from_ref is None and through_ref is None:
        return None
    first = ledger.done_records(capture).records if from_ref is None else as_ref(from_ref).record
    last = capture.record_count - 1 if through_ref is None else as_ref(through_ref).record
    if from_ref is None and last < first:
        raise InvalidArgument(
            f"{through_ref} was extracted from before: the pointer stands at {EntryRef(first)}",
            hint="also name the first entry of the range",
        )
    return RunRange(first, last)
