"""Rows of the extract ledger: their types, and how they stand in the state's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Pointer(NamedTuple):
    """How far extraction of a session came."""

    session: str
    token: str
    """Identity of the capture in which the records were counted."""
    generation: int
    records: int
    """Leading records that are done."""
    run_id: str
    moved_at: int
    base: str = ""
    """Identity of what the library itself held, without what is live; see `done_records`."""
    base_records: int = 0
    """Leading records of that which the capture begins with."""


class Lease(NamedTuple):
    """The right of one run to work on a session."""

    session: str
    run_id: str
    holder: str
    fence: int
    """Grows with every lease of a session, so that whoever had one before is told apart."""
    token: str
    """Identity of the capture of the run."""
    first: int
    last: int
    """The records of the run, inclusive."""
    done: int
    """Leading records of that capture that were done when the lease was taken."""
    started: int
    """When the run began; taking it over does not change it."""
    expires: int
    has_ended: bool = False
    """The run gave up: nothing can be staged under this lease, it can only be taken over."""

    def is_live(self, now: int) -> bool:
        """Whether nobody else may work on the session now."""
        return not self.has_ended and now < self.expires


class Begun(NamedTuple):
    """A run that may work."""

    lease: Lease
    is_adopted: bool
    """It goes on with the id of a run that was given up; its records are to be taken over."""
    claims: Mapping[str, str]
    """Digests of the claims for which the adopted run reserved ids of records."""


class RunRow(NamedTuple):
    """The end of a run. A run that was given up and taken over has several."""

    session: str
    run_id: str
    holder: str
    fence: int
    first: int
    last: int
    started: int
    ended: int
    outcome: str
    reason: str
    """Of `incomplete`: a word of the closed set; else ''."""
    detail: str
    """A sentence of the host; '' where there is no more to say."""
    staged_count: int
    pointer_records: int | None
    """Where the run moved the pointer to; None: it did not."""
    pointer_reason: str
    facts: Mapping[str, Any]


class DecisionRow(NamedTuple):
    """The last decision about running an extraction of a session."""

    session: str
    decided: int
    reason: str
    growth_tokens: int
    first: int
    last: int
    threshold: int


# ---------------------------------------------------------------- rows

Rows = list[tuple[Any, ...]]

POINTER_COLUMNS: Final = "session,token,generation,records,run,moved,base,base_records"
LEASE_COLUMNS: Final = "session,run,holder,fence,token,first,last,done,started,expires,ended"
DECISION_COLUMNS: Final = "session,decided,reason,growth,first,last,threshold"
RUN_COLUMNS: Final = (
    "session,run,holder,fence,first,last,started,ended,outcome,reason,detail,staged,pointer,"
    "pointer_reason,facts"
)
"""Columns in the order of the fields of `Pointer`, `Lease`, `DecisionRow` and `RunRow`."""

SELECT_POINTER: Final = f"SELECT {POINTER_COLUMNS} FROM extract_pointers WHERE session=?"
SELECT_LEASE: Final = f"SELECT {LEASE_COLUMNS} FROM extract_leases WHERE session=?"
SELECT_CLAIMS: Final = "SELECT claim,record FROM extract_claims WHERE run=? ORDER BY record"
SELECT_DECISION: Final = f"SELECT {DECISION_COLUMNS} FROM extract_decisions WHERE session=?"


def pointer_of(rows: Rows) -> Pointer | None:
    """The pointer that was selected, if there is one."""
    return Pointer(*rows[0]) if rows else None


def lease_of(rows: Rows) -> Lease | None:
    """The lease that was selected, if there is one."""
    return Lease(*rows[0][:-1], has_ended=bool(rows[0][-1])) if rows else None


def claims_of(rows: Rows) -> dict[str, str]:
    """Digests of claims -> ids of records."""
    return dict(rows)


def decision_of(rows: Rows) -> DecisionRow | None:
    """The decision that was selected, if there is one."""
    return DecisionRow(*rows[0]) if rows else None


def run_of(row: tuple[Any, ...]) -> RunRow:
    """The end of a run that was selected."""
    return RunRow(*row[:-1], facts=json.loads(row[-1]))
