"""Providers for workers of this process: the children of the observer, and its granted peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from sessiondex.features.observation import GrantBook, ObservableWorker, SessionList
from sessiondex.features.state import subject_not_found
from sessiondex.features.subjects import (
    ListedSubject,
    RuntimeWorker,
    Subject,
    SubWorker,
    runtime_worker,
    sub_worker,
)
from sessiondex.indexer.capture import Capture
from sessiondex.limits import SUBJECTS


def newest_first(subjects: Iterable[ListedSubject]) -> SessionList:
    """A list of at most 100 subjects, those last seen first."""
    found = sorted(subjects, key=lambda listed: (-listed.last_seen, listed.display_name))
    return SessionList(found[: SUBJECTS.maximum], len(found) > SUBJECTS.maximum)


class Children(Protocol):
    """The children of one worker; `SubWorkerRegistry` is one."""

    def observable(self) -> Sequence[ObservableWorker]:
        """Those that may be observed at this moment: all that are not stopped."""
        ...

    def observable_one(self, name: str) -> ObservableWorker | None:
        """One of them; None where there is none of that name."""
        ...


class SpawnedSubWorkerObservationProvider:
    """The children that the observer spawned in this process; being a child is the grant."""

    def __init__(self, children: Children) -> None:
        self._children = children

    def list_sessions(self) -> SessionList:
        """The children that are not stopped."""
        return newest_first(
            ListedSubject(
                subject=sub_worker(child.name), display_name=child.display_name,
                relation="child", status=child.status, last_seen=child.last_seen,
            )
            for child in self._children.observable()
        )  # fmt: skip

    def capture(self, subject: Subject) -> Capture:
        """The committed session of a child; see `WorkerObservationProvider`."""
        if isinstance(subject, SubWorker):
            child = self._children.observable_one(subject.name)
            if child is not None:
                return child.worker.capture().committed()
        raise subject_not_found()


FindPeer = Callable[[str, str], ObservableWorker | None]
"""Workspace and worker id → the live worker of this runtime, if it is of that workspace."""


class RuntimeGrantedWorkerObservationProvider:
    """The peers of this runtime that were granted to the observer.

    Holds no peer: each call looks it up, so that one that died, stopped or belongs to another
    workspace is not there. A grant counts while it is among those with which the observer was
    bound and stands in the grant book.
    """

    def __init__(
        self,
        *,
        observer: str,
        workspace: str,
        runtime_id: str,
        granted: Iterable[RuntimeWorker],
        grants: GrantBook,
        find_peer: FindPeer,
    ) -> None:
        self._observer = observer
        self._workspace = workspace
        self._runtime_id = runtime_id
        self._granted = tuple(dict.fromkeys(granted))
        self._grants = grants
        self._find_peer = find_peer

    def list_sessions(self) -> SessionList:
        """The granted peers that are alive in the observer's workspace."""
        found: list[ListedSubject] = []
        for subject in self._granted:
            peer = self._peer(subject)
            if peer is not None:
                found.append(
                    ListedSubject(
                        subject=runtime_worker(self._runtime_id, peer.name),
                        display_name=peer.display_name, relation="peer", status=peer.status,
                        last_seen=peer.last_seen,
                    )
                )  # fmt: skip
        return newest_first(found)

    def capture(self, subject: Subject) -> Capture:
        """The committed session of a granted peer; see `WorkerObservationProvider`."""
        peer = self._peer(subject)
        if peer is not None:
            capture = peer.worker.capture().committed()
            # A grant that was revoked while the capture was made counts no more.
            if self._peer(subject) is not None:
                return capture
        raise subject_not_found()

    def _peer(self, subject: Subject) -> ObservableWorker | None:
        if (
            not isinstance(subject, RuntimeWorker)
            or subject.runtime_id != self._runtime_id
            or subject not in self._granted
            or not self._grants.is_granted(self._observer, subject, workspace=self._workspace)
        ):
            return None
        return self._find_peer(self._workspace, subject.worker_id)
