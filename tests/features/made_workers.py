"""Invented workers and providers for the tests of features."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from sessiondex.features.observation import SessionList
from sessiondex.features.state import subject_not_found
from sessiondex.features.subjects import ListedSubject, Subject
from sessiondex.indexer.capture import Capture, LiveTail
from sessiondex.model import PROVISIONAL, Item

PATIENCE = 10
"""Seconds after which a test that waits for another thread gives up."""


def talk(*texts: str, session: str = "talk") -> Capture:
    """A session of user and assistant messages in turn."""
    kinds = ("user", "assistant")
    return Capture.from_items(
        [Item(0, kinds[n % 2], text) for n, text in enumerate(texts)],  # type: ignore[arg-type]
        session_id=session,
    )


def with_uncommitted(capture: Capture) -> Capture:
    """The capture with its last entry standing, uncommitted, a second time at its end."""
    from dataclasses import replace

    from sessiondex.indexer.assembly import AssembledEntry
    from sessiondex.model import EntryRef, Record

    last = capture.entry(capture.entry_count - 1)
    entry = replace(
        last, ordinal=capture.entry_count, ref=EntryRef(capture.record_count),
        flags=last.flags | PROVISIONAL, total_bytes=len(b"uncommitted words"),
    )  # fmt: skip
    record = Record(capture.record_count, 0, 0, 0, b"12345678", provisional=True)
    tail = LiveTail((AssembledEntry(entry, "uncommitted words", b"uncommitted words"),), (record,))
    return Capture(
        capture.row, capture.view, mark=capture.mark, searcher=capture.searcher, tail=tail,
        owner=capture,
    )  # fmt: skip


class Talker:
    """A worker whose turns repeat what they are told; a test may hold or break one."""

    def __init__(self, *texts: str, session: str = "talk") -> None:
        self.said = list(texts)
        self.session = session
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.began = threading.Event()
        self.was_cancelled = threading.Event()
        self.breaks_with: BaseException | None = None
        self.ignores_cancel = False

    def run_turn(self, message: str) -> None:
        self.said.append(message)
        self.began.set()
        assert self.goes_on.wait(PATIENCE)
        if self.was_cancelled.is_set():
            return
        if self.breaks_with is not None:
            self.said.append(f"failed: {self.breaks_with}")
            raise self.breaks_with
        self.said.append(f"done: {message}")

    def cancel(self) -> None:
        if not self.ignores_cancel:
            self.was_cancelled.set()
            self.goes_on.set()

    def capture(self) -> Capture:
        return talk(*self.said, session=self.session)


class Given:
    """A provider that answers what a test gave it."""

    def __init__(
        self, subjects: Any = (), captures: dict[Subject, Any] | None = None,
        fault: BaseException | None = None,
    ) -> None:  # fmt: skip
        self.subjects = subjects
        self.captures = captures or {}
        self.fault = fault
        self.calls = 0

    def list_sessions(self) -> SessionList:
        self.calls += 1
        if self.fault is not None:
            raise self.fault
        return SessionList(self.subjects)

    def capture(self, subject: Subject) -> Capture:
        self.calls += 1
        if self.fault is not None:
            raise self.fault
        found = self.captures.get(subject)
        if found is None:
            raise subject_not_found()
        return found() if callable(found) else found


class Hanging:
    """A provider that answers nothing until it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.let_go = threading.Event()
        self.calls = 0

    def list_sessions(self) -> SessionList:
        self._hang()
        return SessionList(())

    def capture(self, subject: Subject) -> Capture:
        self._hang()
        raise subject_not_found()

    def _hang(self) -> None:
        self.calls += 1
        self.asked.set()
        assert self.let_go.wait(PATIENCE)


def impatient(hanging: Hanging) -> Callable[[Sequence[Future[Any]]], None]:
    """A deadline that passes once the hanging provider was asked and all others are done."""

    def wait(futures: Sequence[Future[Any]]) -> None:
        assert hanging.asked.wait(PATIENCE)
        hanging_future = len(futures)
        while sum(future.done() for future in futures) < hanging_future - 1:
            _wait_for_one(futures)

    return wait


def _wait_for_one(futures: Sequence[Future[Any]]) -> None:
    from concurrent.futures import FIRST_COMPLETED
    from concurrent.futures import wait as wait_for

    pending = [future for future in futures if not future.done()]
    wait_for(pending, timeout=PATIENCE, return_when=FIRST_COMPLETED)


def listed(subject: Subject, *, seen: int = 0, name: str = "someone", status: str = "idle",
           relation: str = "peer") -> ListedSubject:  # fmt: skip
    return ListedSubject(
        subject=subject, display_name=name, relation=relation, status=status, last_seen=seen
    )
