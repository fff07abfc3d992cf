"""Worker observation: what a provider is, and what it is made of.

A provider is all that an observing worker holds. It decides at every call, anew, what the worker
may see; the answer to what is missing and to what is forbidden is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from sessiondex.features.subjects import ListedSubject, Subject
from sessiondex.indexer.capture import Capture


class SessionList(NamedTuple):
    """What a provider lists, newest first, at most 100 subjects."""

    subjects: Iterable[ListedSubject]
    has_more: bool = False
    """There are more than a list holds."""
    unavailable: tuple[str, ...] = ()
    """Names of sources that could not be asked; what they hold is not in the list."""


@runtime_checkable
class WorkerObservationProvider(Protocol):
    """The sessions that one observer may see. Methods may be called from several threads."""

    def list_sessions(self) -> SessionList:
        """The active subjects that are granted to the observer at this moment."""
        ...

    def capture(self, subject: Subject) -> Capture:
        """The committed entries of a subject's session, as they stand at this moment.

        Raises:
            NotFound: `subject_not_found()`, for what is not there, not active or not granted.
            Failed: the source of the subject could not be asked.
        """
        ...


class ObservedWorker(Protocol):
    """What is observed of a worker in this process."""

    def capture(self) -> Capture:
        """Its committed session at this moment."""
        ...


class ObservableWorker(NamedTuple):
    """A worker of this process that may be observed, as its owner lists it."""

    name: str
    """Name of a child, worker id of a peer."""
    display_name: str
    status: str
    last_seen: int
    """Epoch milliseconds."""
    worker: ObservedWorker


class GrantBook(Protocol):
    """Grants as they stand at the moment of the question; `State` is one."""

    def is_granted(self, observer: str, subject: Subject, *, workspace: str = "") -> bool:
        """Whether the observer may observe the subject."""
        ...

    def granted_subjects(self, observer: str, *, workspace: str = "") -> Sequence[Subject]:
        """What the observer may observe."""
        ...
