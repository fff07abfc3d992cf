"""The ledger of extraction: what outlives a run, so that every session is extracted once.

For each session it keeps how far extraction came (the pointer), who works on it (the lease), which
records a run has staged (claims, as digests), how runs ended and why none runs. All of it stands
in the state beside the library. Times are epoch milliseconds and are passed in. Each call is one
transaction: a process that is killed leaves the state before the call or the one after it. Nothing
that a session or a model said is ever written here.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Any, Final, Literal

from sessiondex.errors import InvalidArgument
from sessiondex.features.extract.leases import (
    adopted_lease,
    busy,
    check_range,
    give_up_lease,
    held_lease,
    next_fence,
    renewed_lease,
    require_unused,
    write_lease,
)
from sessiondex.features.extract.ledger_rows import (
    DECISION_COLUMNS,
    POINTER_COLUMNS,
    RUN_COLUMNS,
    SELECT_CLAIMS,
    SELECT_DECISION,
    SELECT_LEASE,
    SELECT_POINTER,
    Begun,
    DecisionRow,
    Lease,
    Pointer,
    RunRow,
    claims_of,
    decision_of,
    lease_of,
    pointer_of,
    run_of,
)
from sessiondex.features.extract.positions import (
    Done,
    NextPointer,
    done_records,
    next_pointer,
    still_holds,
)
from sessiondex.features.extract.report import INCOMPLETE_REASONS
from sessiondex.features.state import State, checked_name
from sessiondex.indexer.capture import Capture

CANCELLED_BY_REWRITE: Final = "the session was rewritten"
"""Why a run is closed whose session is no longer what the run was reading."""

_CLAIM_DIGEST = re.compile(r"[0-9a-f]{64}")
_FACT_CHARACTERS: Final = 200
_DETAIL_CHARACTERS: Final = 200


class ExtractLedger:
    """The ledger in one state. Thread-safe; any number of processes may use it at once."""

    def __init__(self, state: State) -> None:
        self._state = state

    # ------------------------------------------------------------ leases

    def begin(
        self,
        capture: Capture,
        *,
        first: int | None,
        last: int,
        run_id: str,
        holder: str,
        now: int,
        lease_ms: int,
    ) -> Begun:
        """Takes the lease of a session for the records `first` to `last` of a committed capture.

        `first` is None for a run that goes on where extraction came to. That is looked up in the
        transaction that takes the lease: what another run extracted just before is not extracted
        again. `run_id` is a fresh id.

        A lease that expired unsealed, or whose run gave up, is taken over with its run id while
        the session still begins with what that run read. The run then covers the records of both
        where the ranges overlap or adjoin, since what it staged cites its own range and stays
        true in a wider one; where a gap lies between, it covers the old range alone, and the
        range that was asked for is left to a next run. Where the session no longer begins so, the
        old run is closed as cancelled, its records stay, and the run is a new one.

        Raises:
            Busy: another run works on the session; names it and when its lease expires.
            InvalidArgument: nothing was added since the last run (`first` None), the range is
                none of the capture, the capture holds what is not committed, or the run id was
                used before.
        """
        check_range(capture, 0 if first is None else first, last)
        checked_name(run_id, "run id")
        checked_name(holder, "holder")
        session = capture.session
        while True:
            # Digests are read before the transaction, so that it is short; it starts again
            # if another process changed what they were compared with.
            found, pointer = self.lease(session), self.pointer(session)
            done = done_records(capture, pointer).records
            is_same = found is not None and still_holds(capture, found)
            with self._state.transaction() as db:
                known = lease_of(db.execute(SELECT_LEASE, (session,)).fetchall())
                moved = pointer_of(db.execute(SELECT_POINTER, (session,)).fetchall())
                if (known, moved) != (found, pointer):
                    continue
                if found is not None and found.is_live(now):
                    raise busy(found)
                start = done if first is None else first
                if start > last:
                    raise InvalidArgument(
                        "nothing was added to the session since it was last extracted from",
                        hint="name a range to extract from it again",
                    )
                if found is not None and is_same:
                    lease = adopted_lease(
                        found, capture, first=start, last=last, done=done, holder=holder,
                        expires=now + lease_ms,
                    )  # fmt: skip
                    action = "extract.adopt"
                else:
                    require_unused(db, run_id)
                    if found is not None:
                        self._close_rewritten(db, found, now)
                    lease = Lease(
                        session, run_id, holder, next_fence(db, session), capture.token, start,
                        last, done, now, now + lease_ms,
                    )  # fmt: skip
                    action = "extract.begin"
                write_lease(db, lease)
                self._audit(db, action, lease, f"run {lease.run_id}", now)
                reserved = db.execute(SELECT_CLAIMS, (lease.run_id,)).fetchall()
                return Begun(lease, action == "extract.adopt", claims_of(reserved))

    def renew(self, lease: Lease, *, now: int, lease_ms: int) -> Lease:
        """Keeps the lease for `lease_ms` more. One that expired untouched is still the run's.

        Raises:
            LostLease: another run took it over, or this one has ended.
        """
        with self._state.transaction() as db:
            return renewed_lease(db, lease, now + lease_ms)

    def reserve(
        self, lease: Lease, claim_digest: str, record_id: str, *, now: int, lease_ms: int
    ) -> str:
        """The id of the record for a claim: the one reserved before in this run, else this one.

        To be called before the record is written: whoever adopts the run then writes the same
        record and no second one. Renews the lease.

        Raises:
            LostLease: as `renew`; nothing may be staged any more.
            InvalidArgument: the digest is no SHA-256 in hexadecimal.
        """
        if not _CLAIM_DIGEST.fullmatch(claim_digest):
            raise InvalidArgument(
                "malformed claim digest", hint="pass 64 hexadecimal digits of SHA-256, never text"
            )
        checked_name(record_id, "record id")
        with self._state.transaction() as db:
            renewed_lease(db, lease, now + lease_ms)
            db.execute(
                "INSERT OR IGNORE INTO extract_claims (run,claim,record,reserved) VALUES (?,?,?,?)",
                (lease.run_id, claim_digest, record_id, now),
            )
            return claims_of(db.execute(SELECT_CLAIMS, (lease.run_id,)).fetchall())[claim_digest]

    # ------------------------------------------------------------ ends

    def seal(
        self,
        lease: Lease,
        *,
        outcome: Literal["staged", "no_candidates"],
        staged_count: int,
        pointer: Pointer | None,
        pointer_reason: str,
        now: int,
        reason: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> RunRow:
        """Ends a run that did what it was to do: its row, the pointer and the lease, all at once.

        The pointer moves to the given one unless that were a step back, or the run began after
        what is done; the row says where it moved and why it did not. `reason` must be '': what a
        model says of finding nothing belongs into the report and is kept nowhere here.

        Raises:
            LostLease: as `renew`; nothing was changed, and the run must not be called sealed.
        """
        _check_end(("staged", "no_candidates"), outcome, reason)
        if (outcome == "staged") != (staged_count > 0):
            raise InvalidArgument(f"a run that ends {outcome!r} has not staged {staged_count}")
        if pointer is not None and pointer.session != lease.session:
            raise InvalidArgument("the pointer is of another session than the lease")
        if pointer is not None and pointer.records > lease.last + 1:
            raise InvalidArgument(f"the pointer lies after record {lease.last}, the run's last")
        with self._state.transaction() as db:
            held = held_lease(db, lease)
            moved, why = pointer, pointer_reason
            if pointer is not None and held.first > held.done:
                moved = None
                why = f"records {held.done} to {held.first - 1} before the run are not extracted"
            elif pointer is not None and pointer.records < held.done:
                moved, why = None, f"{held.done} leading records were extracted before"
            if moved is not None:
                db.execute(
                    f"INSERT OR REPLACE INTO extract_pointers ({POINTER_COLUMNS})"
                    " VALUES (?,?,?,?,?,?,?,?)",
                    moved._replace(run_id=held.run_id, moved_at=now),
                )
            db.execute("DELETE FROM extract_leases WHERE session=?", (held.session,))
            row = _run_row(
                held, now, outcome, staged_count=staged_count, facts=facts,
                pointer=None if moved is None else moved.records, pointer_reason=why,
            )  # fmt: skip
            self._write_end(db, row)
            if moved is not None and moved.records != held.done:
                self._audit(
                    db, "extract.pointer", held, f"{held.done} to {moved.records} records", now
                )
            return row

    def end(
        self,
        lease: Lease,
        *,
        outcome: Literal["incomplete", "failed"],
        reason: str,
        staged_count: int,
        now: int,
        detail: str = "",
        pointer_reason: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> RunRow:
        """Ends a run that did not come to its end; the pointer stays.

        The lease is not deleted but given up: what the run staged is only kept from being staged
        a second time if the next run on the session adopts its id and records, and it may do so
        at once. This run can do no more.

        `reason` is of `incomplete` a word of the closed set, of `failed` ''; `detail` is a
        sentence of the host, never words of a session or a model.

        Raises:
            LostLease: as `renew`; nothing was changed.
        """
        _check_end(("incomplete", "failed"), outcome, reason)
        with self._state.transaction() as db:
            held = held_lease(db, lease)
            give_up_lease(db, held)
            row = _run_row(
                held, now, outcome, reason=reason, detail=detail, staged_count=staged_count,
                facts=facts, pointer_reason=pointer_reason,
            )  # fmt: skip
            self._write_end(db, row)
            return row

    def _close_rewritten(self, db: sqlite3.Connection, lease: Lease, now: int) -> None:
        """Ends a run in its stead, because nobody can go on with it."""
        row = _run_row(
            lease, now, "incomplete", reason="cancelled", detail=CANCELLED_BY_REWRITE,
            staged_count=len(db.execute(SELECT_CLAIMS, (lease.run_id,)).fetchall()),
            pointer_reason=CANCELLED_BY_REWRITE,
        )  # fmt: skip
        self._write_end(db, row)

    def _write_end(self, db: sqlite3.Connection, row: RunRow) -> None:
        db.execute(
            f"INSERT INTO extract_runs ({RUN_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (*row[:-1], json.dumps(row.facts, separators=(",", ":"))),
        )
        said = f"{row.outcome}({row.reason})" if row.reason else row.outcome
        said += f", staged {row.staged_count}, run {row.run_id}"
        self._state.audit(
            "extract.end", actor=row.holder, outcome=said, now=row.ended, session=row.session,
            within=db,
        )  # fmt: skip

    # ------------------------------------------------------------ positions

    def done_records(self, capture: Capture) -> Done:
        """How many leading records of a capture are extracted, or never need to be.

        The pointer counts in the capture in which it was set and in every one that begins with
        it. In a later generation those records count that the library held then and that all
        generations since share. Where something live was extracted that is gone or rewritten,
        and the library never read it, what the library held then counts. In any other capture
        nothing does. Where there is
        no pointer, the records that a fork or a resumed session repeats at its beginning count.

        Costs the digests of the prefix where the session grew since; without a pointer, the
        copied prefix.
        """
        return done_records(capture, self.pointer(capture.session))

    def next_pointer(self, lease: Lease, current: Capture, *, now: int) -> NextPointer:
        """The pointer to seal a run with; `current` is a capture of the session as it is now.

        None where the session is no longer the one that the run read, or not all of that can be
        found in it any more. A session whose source vanished is still the same while the library
        holds what the run read.
        """
        return next_pointer(lease, current, now=now)

    def pointer(self, session: str) -> Pointer | None:
        """How far extraction of a session came; None where no run moved a pointer."""
        return pointer_of(self._state.rows(SELECT_POINTER, (session,)))

    # ------------------------------------------------------------ what is known

    def lease(self, session: str) -> Lease | None:
        """The lease of a session: live, expired or given up; None where no run is unsealed."""
        return lease_of(self._state.rows(SELECT_LEASE, (session,)))

    def claims(self, run_id: str) -> Mapping[str, str]:
        """Digests of the claims of a run -> ids reserved for their records, in that order."""
        return claims_of(self._state.rows(SELECT_CLAIMS, (run_id,)))

    def runs(self, limit: int = 100) -> list[RunRow]:
        """The last ends of runs, the newest first."""
        rows = self._state.rows(
            f"SELECT {RUN_COLUMNS} FROM extract_runs ORDER BY number DESC LIMIT ?", (limit,)
        )
        return [run_of(row) for row in rows]

    def last_run(self, session: str) -> RunRow | None:
        """The last end of a run on a session."""
        rows = self._state.rows(
            f"SELECT {RUN_COLUMNS} FROM extract_runs WHERE session=? ORDER BY number DESC LIMIT 1",
            (session,),
        )
        return run_of(rows[0]) if rows else None

    def sessions(self) -> list[str]:
        """Every session that the ledger knows, by id."""
        tables = ("pointers", "leases", "runs", "decisions")
        union = " UNION ".join(f"SELECT session FROM extract_{name}" for name in tables)
        return [session for (session,) in self._state.rows(f"{union} ORDER BY session")]

    # ------------------------------------------------------------ decisions

    def decision(self, session: str) -> DecisionRow | None:
        """The last decision about a session."""
        return decision_of(self._state.rows(SELECT_DECISION, (session,)))

    def record_decision(self, row: DecisionRow, *, actor: str = "policy") -> None:
        """Keeps the decision in place of the last one; the audit names it if its reason is new."""
        checked_name(row.reason, "reason")
        with self._state.transaction() as db:
            known = decision_of(db.execute(SELECT_DECISION, (row.session,)).fetchall())
            db.execute(
                f"INSERT OR REPLACE INTO extract_decisions ({DECISION_COLUMNS})"
                " VALUES (?,?,?,?,?,?,?)",
                row,
            )
            if known is None or known.reason != row.reason:
                self._state.audit(
                    "extract.decision", actor=actor, outcome=row.reason, now=row.decided,
                    session=row.session, within=db,
                )  # fmt: skip

    def _audit(
        self, db: sqlite3.Connection, action: str, lease: Lease, outcome: str, now: int
    ) -> None:
        self._state.audit(
            action, actor=lease.holder, outcome=outcome, now=now, session=lease.session, within=db
        )


# ---------------------------------------------------------------- ends


def _check_end(allowed: tuple[str, ...], outcome: str, reason: str) -> None:
    if outcome not in allowed:
        raise InvalidArgument(f"unknown outcome {outcome!r}", hint=f"expected {allowed}")
    expected = INCOMPLETE_REASONS if outcome == "incomplete" else ("",)
    if reason not in expected:
        raise InvalidArgument(
            f"{reason[:40]!r} is no reason of a run that ends {outcome!r}",
            hint=f"expected one of {expected}; what a model said is not kept here",
        )


def _checked_facts(facts: Mapping[str, Any] | None) -> dict[str, Any]:
    """Numbers and short words about a run; anything longer could be text of the session."""
    for name, value in (facts or {}).items():
        is_word = isinstance(value, str) and len(value) <= _FACT_CHARACTERS
        if not (is_word or value is None or isinstance(value, bool | int | float)):
            raise InvalidArgument(
                f"fact {name!r} is no number and no word of at most {_FACT_CHARACTERS} characters"
            )
    return dict(facts or {})


def _run_row(
    lease: Lease,
    ended: int,
    outcome: str,
    *,
    staged_count: int,
    reason: str = "",
    detail: str = "",
    pointer: int | None = None,
    pointer_reason: str = "",
    facts: Mapping[str, Any] | None = None,
) -> RunRow:
    return RunRow(
        lease.session, lease.run_id, lease.holder, lease.fence, lease.first, lease.last,
        lease.started, ended, outcome, reason, detail[:_DETAIL_CHARACTERS], staged_count, pointer,
        pointer_reason[:_DETAIL_CHARACTERS], _checked_facts(facts),
    )  # fmt: skip
