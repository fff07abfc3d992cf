"""The composite of several providers, each kept to what it may answer.

A provider that fails, hangs or lies harms nothing but itself: it is asked in a thread of its own
until a deadline, its lists are cut off, what it has no say about or what is not granted is
dropped, and nothing that is not committed passes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar, cast

from sessiondex.errors import Failed, InvalidArgument, NotFound
from sessiondex.features.foreign_call import call_in_thread
from sessiondex.features.observation import SessionList, WorkerObservationProvider
from sessiondex.features.providers import newest_first
from sessiondex.features.state import subject_not_found
from sessiondex.features.subjects import (
    LOCAL_RUNTIME,
    ListedSubject,
    RuntimeWorker,
    Subject,
    SubWorker,
    parse_subject,
    subject_key,
)
from sessiondex.indexer.capture import Capture
from sessiondex.limits import SUBJECTS

DEADLINE_SECONDS: Final = 10.0

EXAMINED_SUBJECTS: Final = 10_000
"""Items of one provider's list that are looked at; what follows is cut off."""

CALLS_IN_FLIGHT: Final = 4
"""Calls of one provider at a time; a provider that hangs holds no more threads than these."""

DISPLAY_CHARACTERS: Final = 1_000
"""A display name above it is a lie; what is shown of one is bounded by `FIELD`."""

Wait = Callable[[Sequence["Future[Any]"]], None]
"""Waits until all futures are done or the deadline has passed."""

T = TypeVar("T")


def until_deadline(futures: Sequence[Future[Any]]) -> None:
    """Waits until all are done, at most `DEADLINE_SECONDS`."""
    wait_for(futures, timeout=DEADLINE_SECONDS)


# ---------------------------------------------------------------- who answers for what


def serves_children(subject: Subject) -> bool:
    """The part of a provider of children."""
    return isinstance(subject, SubWorker)


def serves_local(subject: Subject) -> bool:
    """The part of a provider of local agent sessions."""
    return isinstance(subject, RuntimeWorker) and subject.runtime_id.startswith(LOCAL_RUNTIME)


def serves_runtime(runtime_id: str) -> Callable[[Subject], bool]:
    """The part of a provider of one runtime's workers."""
    return lambda subject: isinstance(subject, RuntimeWorker) and subject.runtime_id == runtime_id


def serves_elsewhere(*runtime_ids: str) -> Callable[[Subject], bool]:
    """The part of a workspace: workers of all runtimes but these and the local ones."""
    return lambda subject: (
        isinstance(subject, RuntimeWorker)
        and not serves_local(subject)
        and subject.runtime_id not in runtime_ids
    )


@dataclass(slots=True)
class Member:
    """A provider in a composite, and the part in which it is believed."""

    name: str
    """For the reply that says who could not be asked."""
    provider: WorkerObservationProvider
    serves: Callable[[Subject], bool]
    is_granted: Callable[[Subject], bool] = lambda subject: True
    """The host's own check of grants; a workspace's server checks its own."""
    _slots: threading.Semaphore = field(
        default_factory=lambda: threading.Semaphore(CALLS_IN_FLIGHT)
    )

    def ask(self, function: Callable[[], T]) -> Future[T] | None:
        """Calls the provider in a thread; None while too many calls are under way."""
        if not self._slots.acquire(blocking=False):
            return None
        future = call_in_thread(function, name=f"observation-{self.name}")
        future.add_done_callback(lambda _: self._slots.release())
        return future

    def admits(self, subject: Subject) -> bool:
        """Whether the provider may answer for a subject at this moment."""
        return self.serves(subject) and self.is_granted(subject)


class CompositeWorkerObservationProvider:
    """Several providers as one."""

    def __init__(self, members: Iterable[Member], *, wait: Wait = until_deadline) -> None:
        self._members = tuple(members)
        self._wait = wait

    def list_sessions(self) -> SessionList:
        """What all that could be asked list, newest first; names the others."""
        asked = [(each, each.ask(lambda each=each: _listed(each))) for each in self._members]
        self._wait([future for _, future in asked if future is not None])
        found: dict[str, ListedSubject] = {}
        unavailable: list[str] = []
        has_more = False
        for member, future in asked:
            if future is None or not future.done() or future.exception() is not None:
                unavailable.append(member.name)
                continue
            listed = future.result()
            unavailable += listed.unavailable
            has_more = has_more or listed.has_more
            for each in listed.subjects:
                found.setdefault(subject_key(each.subject), each)
        merged = newest_first(found.values())
        return SessionList(merged.subjects, has_more or merged.has_more, tuple(unavailable))

    def capture(self, subject: Subject) -> Capture:
        """The subject's session from the provider whose part it is.

        Raises:
            NotFound: no provider has it, or it is not granted.
            Failed: the provider whose part it is could not be asked.
        """
        failed = ""
        for member in self._members:
            if not member.admits(subject):
                continue
            future = member.ask(lambda member=member: member.provider.capture(subject))
            if future is not None:
                self._wait([future])
            if future is None or not future.done():
                failed = failed or member.name
                continue
            error = future.exception()
            if error is None:
                capture = cast(Any, future.result())
                if not isinstance(capture, Capture):
                    failed = failed or member.name
                elif member.admits(subject):
                    return capture.committed()
            elif not isinstance(error, NotFound):
                failed = failed or member.name
        if failed:
            raise Failed(f"{failed!r} could not be asked", hint="try again later")
        raise subject_not_found()


def _listed(member: Member) -> SessionList:
    """A member's list, bounded, without what it has no say about."""
    answer = cast(Any, member.provider.list_sessions())
    listed = answer if isinstance(answer, SessionList) else SessionList(answer)
    items: Iterator[Any] = iter(listed.subjects)
    kept: list[ListedSubject] = []
    for item in islice(items, EXAMINED_SUBJECTS):
        if _is_sound(item) and member.admits(item.subject):
            kept.append(item)
            if len(kept) > SUBJECTS.maximum:
                break
    is_cut = next(items, None) is not None
    unavailable = listed.unavailable
    if is_cut and len(kept) <= SUBJECTS.maximum:
        unavailable = (*unavailable, member.name)
    names = tuple(str(name)[:80] for name in unavailable[:20])
    return SessionList(kept, bool(listed.has_more) or is_cut, names)


def _is_sound(item: Any) -> bool:
    """Whether an item of a foreign list is what it should be, with a bounded reference."""
    if not isinstance(item, ListedSubject):
        return False
    claimed: Any = item
    texts = (claimed.display_name, claimed.relation, claimed.status)
    if not isinstance(claimed.last_seen, int) or not all(
        isinstance(text, str) and len(text) <= DISPLAY_CHARACTERS for text in texts
    ):
        return False
    try:
        return parse_subject(claimed.subject.model_dump()) == claimed.subject
    except (InvalidArgument, AttributeError):
        return False
