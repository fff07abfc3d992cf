"""Workers of a workspace as their runtimes report them, and who may observe which of them.

The active set is worked out at each request: nothing here remembers an answer.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, get_args

from sessiondex.errors import InvalidArgument
from sessiondex.features.state import OBSERVE, State, checked_name, subject_not_found
from sessiondex.features.subjects import RuntimeWorker, subject_key
from sessiondex.limits import SUBJECTS

WorkerStatus = Literal["idle", "running", "stopping", "stopped", "failed"]

WORKER_STATUSES: Final[tuple[WorkerStatus, ...]] = get_args(WorkerStatus)

ACTIVE_MS: Final = 120_000
"""A worker whose runtime has not reported it for this long counts as gone."""


class WorkerRow(NamedTuple):
    """A worker as its runtime reported it."""

    workspace: str
    subject: RuntimeWorker
    session: str
    status: WorkerStatus
    last_seen: int
    """Epoch milliseconds."""
    display_name: str


class WorkerRows:
    """The workers and orchestrators in a state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def put(self, row: WorkerRow) -> None:
        """Reports a worker, or replaces what was reported of it.

        Raises:
            InvalidArgument: its status is none of the known ones, or its session has no name.
        """
        if row.status not in WORKER_STATUSES:
            raise InvalidArgument(
                f"unknown status {row.status!r}", hint=f"expected {', '.join(WORKER_STATUSES)}"
            )
        values = (
            checked_name(row.workspace, "workspace"), subject_key(row.subject),
            checked_name(row.session, "session"), row.status, row.last_seen, row.display_name[:200],
        )  # fmt: skip
        with self._state.transaction() as db:
            db.execute("INSERT OR REPLACE INTO workers VALUES (?,?,?,?,?,?)", values)

    def remove(self, workspace: str, subject: RuntimeWorker) -> None:
        """Forgets a worker; nothing happens where there is none."""
        with self._state.transaction() as db:
            db.execute(
                "DELETE FROM workers WHERE workspace=? AND subject=?",
                (workspace, subject_key(subject)),
            )

    def observable(
        self, workspace: str, observer: str, *, now: int, limit: int = SUBJECTS.maximum
    ) -> list[WorkerRow]:
        """The active workers that an observer may observe at this moment, newest first.

        The current orchestrator may observe all, others those they were granted; worked out in
        one statement, so that a change of either holds at the next call.
        """
        return self._select(workspace, observer, "", (), now, limit)

    def observable_one(
        self, workspace: str, observer: str, subject: RuntimeWorker, *, now: int
    ) -> WorkerRow:
        """One active worker, if the observer may observe it at this moment.

        Raises:
            NotFound: it is not there, not active, or may not be observed: one text for all.
        """
        rows = self._select(
            workspace, observer, " AND w.subject=?", (subject_key(subject),), now, 1
        )
        if not rows:
            raise subject_not_found()
        return rows[0]

    def _select(
        self,
        workspace: str,
        observer: str,
        more: str,
        values: tuple[Any, ...],
        now: int,
        limit: int,
    ) -> list[WorkerRow]:
        rows = self._state.rows(
            "SELECT w.workspace,w.subject,w.session,w.status,w.last_seen,w.display_name"
            " FROM workers w WHERE w.workspace=?1 AND w.status<>'stopped' AND w.last_seen>?3"
            " AND (EXISTS (SELECT 1 FROM orchestrators o WHERE o.workspace=?1 AND o.observer=?2)"
            "  OR EXISTS (SELECT 1 FROM grants g WHERE g.workspace=?1 AND g.observer=?2"
            "   AND g.subject=w.subject AND g.verb=?4 AND g.revoked IS NULL))"
            f"{more} ORDER BY w.last_seen DESC, w.subject LIMIT {int(limit)}",
            (workspace, observer, now - ACTIVE_MS, OBSERVE, *values),
        )
        found: list[WorkerRow] = []
        for row in rows:
            subject = self._state.subject(row[1])
            if isinstance(subject, RuntimeWorker):
                found.append(WorkerRow(row[0], subject, *row[2:]))
        return found

    def set_orchestrator(self, workspace: str, observer: str | None) -> None:
        """Makes an observer the workspace's current orchestrator; None: nobody is."""
        with self._state.transaction() as db:
            db.execute("DELETE FROM orchestrators WHERE workspace=?", (workspace,))
            if observer is not None:
                db.execute(
                    "INSERT INTO orchestrators VALUES (?,?)",
                    (checked_name(workspace, "workspace"), checked_name(observer, "observer")),
                )

    def orchestrator(self, workspace: str) -> str | None:
        """The workspace's orchestrator at this moment."""
        rows = self._state.rows(
            "SELECT observer FROM orchestrators WHERE workspace=?", (workspace,)
        )
        return rows[0][0] if rows else None
