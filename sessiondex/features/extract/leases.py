"""Leases of the ledger, each step inside a transaction of it: who may work on a session.

A session has at most one lease. A fence that grows with every lease of a session
tells whoever holds it from those that held it before.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime

from sessiondex.errors import Busy, InvalidArgument
from sessiondex.features.extract.ledger_rows import (
    LEASE_COLUMNS,
    SELECT_LEASE,
    Lease,
    lease_of,
)
from sessiondex.indexer.capture import Capture


class LostLease(Busy):
    """The lease is no longer this run's: another took it over, or the run has ended."""


# ---------------------------------------------------------------- taking one


def check_range(capture: Capture, first: int, last: int) -> None:
    """Refuses records that no run may cover.

    Raises:
        InvalidArgument: they are no range of it, or it holds what is not committed.
    """
    if capture.committed_count < capture.entry_count:
        raise InvalidArgument(
            "the capture holds an entry that is not committed", hint="pass its committed()"
        )
    if not 0 <= first <= last < capture.record_count:
        raise InvalidArgument(
            f"records {first} to {last} are no range of the capture",
            hint=f"it has {capture.record_count} records, numbered from 0",
        )


def require_unused(db: sqlite3.Connection, run_id: str) -> None:
    """Refuses an id that a run had before.

    Raises:
        InvalidArgument: it was used before.
    """
    places = ("extract_runs", "extract_leases", "extract_claims")
    for table in places:
        if db.execute(f"SELECT 1 FROM {table} WHERE run=? LIMIT 1", (run_id,)).fetchone():
            raise InvalidArgument(f"run id {run_id!r} was used before", hint="pass a fresh one")


def next_fence(db: sqlite3.Connection, session: str) -> int:
    """The fence of a lease for a new run, above those of all that ended."""
    [fence] = db.execute(
        "SELECT max(fence) FROM extract_runs WHERE session=?", (session,)
    ).fetchone()
    return (fence or 0) + 1


def adopted_lease(
    lease: Lease, capture: Capture, *, first: int, last: int, done: int, holder: str, expires: int
) -> Lease:
    """The lease of a run that goes on with that of another; see `ExtractLedger.begin`."""
    if first <= lease.last + 1 and lease.first <= last + 1:
        first, last = min(first, lease.first), max(last, lease.last)
    else:
        first, last = lease.first, lease.last
    return Lease(
        lease.session, lease.run_id, holder, lease.fence + 1, capture.token, first, last, done,
        lease.started, expires,
    )  # fmt: skip


def busy(lease: Lease) -> Busy:
    """The error for whoever wants a session on which another run works."""
    until = datetime.fromtimestamp(lease.expires / 1000, UTC).isoformat(timespec="seconds")
    return Busy(
        f"another run extracts from session {lease.session!r}: run {lease.run_id!r} of"
        f" {lease.holder}",
        hint=f"its lease expires at {until}",
    )


# ---------------------------------------------------------------- keeping it


def write_lease(db: sqlite3.Connection, lease: Lease) -> None:
    """Keeps a lease in place of the one that its session had."""
    db.execute(
        f"INSERT OR REPLACE INTO extract_leases ({LEASE_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        lease,
    )


def held_lease(db: sqlite3.Connection, lease: Lease) -> Lease:
    """The lease as it stands, if it still is the run's.

    Raises:
        LostLease: it is not.
    """
    found = lease_of(db.execute(SELECT_LEASE, (lease.session,)).fetchall())
    mine = (lease.run_id, lease.holder, lease.fence)
    if found is None or found.has_ended or (found.run_id, found.holder, found.fence) != mine:
        raise LostLease(
            f"run {lease.run_id!r} no longer holds the lease of session {lease.session!r}",
            hint="it has ended, or another run took it over; stage nothing more in it",
        )
    return found


def renewed_lease(db: sqlite3.Connection, lease: Lease, expires: int) -> Lease:
    """The lease, which now expires at that time.

    Raises:
        LostLease: it is no longer the run's.
    """
    held = held_lease(db, lease)
    db.execute("UPDATE extract_leases SET expires=? WHERE session=?", (expires, held.session))
    return held._replace(expires=expires)


def give_up_lease(db: sqlite3.Connection, lease: Lease) -> None:
    """Leaves a lease to whoever takes it over, at once."""
    db.execute("UPDATE extract_leases SET ended=1 WHERE session=?", (lease.session,))
