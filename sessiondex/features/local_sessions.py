"""Local agent sessions as subjects: files that Claude Code, Codex and others are writing now.

A session is named `local:<agent>` and an opaque worker id; it is active while its file was
written recently. Listing looks at names and times; a capture costs the new bytes of one file.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from sessiondex.errors import Failed, NotFound
from sessiondex.features.live_session import LiveSession
from sessiondex.features.observation import GrantBook, SessionList
from sessiondex.features.providers import newest_first
from sessiondex.features.state import subject_not_found
from sessiondex.features.subjects import (
    LOCAL_RUNTIME,
    ListedSubject,
    RuntimeWorker,
    Subject,
    runtime_worker,
    subject_key,
)
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.indexer.sources import detect
from sessiondex.indexer.sources.base import SessionStub, SourceFile
from sessiondex.indexer.sources.discovery import Found, discover

ACTIVE_SECONDS: Final = 900
"""A file that was not written for this long is no active session."""

KEPT_SESSIONS: Final = 32
"""Sessions whose entries are kept in memory between captures; the longest unused one goes."""

KNOWN_FILES: Final = 4_096


def local_subject(agent: str, session: str) -> RuntimeWorker:
    """The subject of a local session; the worker id tells nothing of it."""
    name = hashlib.sha256(f"{agent}\0{session}".encode()).hexdigest()[:32]
    return runtime_worker(f"{LOCAL_RUNTIME}{agent}", name)


class LocalSession(NamedTuple):
    """An active session on this machine; for the host, not for models."""

    subject: RuntimeWorker
    agent: str
    session: str
    stub: SessionStub
    path: Path
    root: Path
    written: int
    """Epoch milliseconds of the last write."""


class LocalAgentSessions:
    """The active sessions below some folders, whoever may see them."""

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        clock: Callable[[], float],
        library: Library | None = None,
        exclude: Sequence[str] = (),
        active_seconds: float = ACTIVE_SECONDS,
    ) -> None:
        self._roots = [Path(os.path.realpath(root)) for root in roots]
        self._clock = clock
        self._library = library
        self._exclude = tuple(exclude)
        self._active_seconds = active_seconds
        self._lock = threading.Lock()
        self._contents: dict[tuple[str, int], list[tuple[str, SessionStub]]] = {}
        self._places: dict[RuntimeWorker, LocalSession] = {}
        self._live: dict[RuntimeWorker, LiveSession] = {}

    def active(self) -> list[LocalSession]:
        """The sessions that were written recently, newest first, each once."""
        found: dict[RuntimeWorker, LocalSession] = {}
        since = self._clock() - self._active_seconds
        roots = [root for root in self._roots if root.exists()]
        for file in discover(roots, report=lambda _: None, exclude=self._exclude):
            if file.stat.st_mtime < since:
                break  # newest first
            for session in self._sessions(file):
                found.setdefault(session.subject, session)
        with self._lock:
            self._places = found
        return list(found.values())

    def capture(self, subject: RuntimeWorker) -> Capture:
        """The committed entries of an active session.

        Raises:
            NotFound: there is no such session, or it is not active.
            Failed: its file cannot be read.
        """
        now = self._clock()
        place = self._places.get(subject)
        if place is None or not self._is_active(place, now):
            place = next((each for each in self.active() if each.subject == subject), None)
            if place is None:
                raise subject_not_found()
        try:
            return self._live_session(place).capture(now=now)
        except NotFound:
            # It may name a path.
            raise subject_not_found() from None
        except Failed as error:
            raise Failed("the session cannot be read", hint="try again later") from error

    def _is_active(self, place: LocalSession, now: float) -> bool:
        try:
            return os.stat(place.path).st_mtime >= now - self._active_seconds
        except OSError:
            return False

    def _live_session(self, place: LocalSession) -> LiveSession:
        with self._lock:
            live = self._live.pop(place.subject, None)
            if live is None or live.path != place.path:
                live = LiveSession(place.path, place.root, place.stub, library=self._library)
            self._live[place.subject] = live
            if len(self._live) > KEPT_SESSIONS:
                del self._live[next(iter(self._live))]
            return live

    def _sessions(self, file: Found) -> Iterator[LocalSession]:
        """The sessions that a file holds; what a file is, is looked at once."""
        key = (str(file.path), file.stat.st_ino)
        contents = self._contents.get(key)
        if contents is None:
            source = SourceFile(file.path, file.root)
            format = detect(source)
            contents = []
            if format is not None:
                try:
                    contents = [(format.agent, stub) for stub in format.stubs(source)]
                except (OSError, EOFError):
                    return
                if len(self._contents) >= KNOWN_FILES:
                    self._contents.clear()
                self._contents[key] = contents
        for agent, stub in contents:
            yield LocalSession(
                local_subject(agent, stub.session_id), agent, stub.session_id, stub, file.path,
                file.root, int(file.stat.st_mtime * 1000),
            )  # fmt: skip


class LocalAgentObservationProvider:
    """The active local sessions that were granted to one observer."""

    def __init__(
        self,
        sessions: LocalAgentSessions,
        *,
        observer: str,
        grants: GrantBook,
        workspace: str = "",
    ) -> None:
        self._sessions = sessions
        self._observer = observer
        self._grants = grants
        self._workspace = workspace

    def list_sessions(self) -> SessionList:
        """The granted sessions that are active."""
        granted = {
            subject_key(subject)
            for subject in self._grants.granted_subjects(self._observer, workspace=self._workspace)
            if _is_local(subject)
        }
        active: Iterable[LocalSession] = self._sessions.active() if granted else ()
        return newest_first(
            ListedSubject(
                subject=session.subject, display_name=f"{session.agent} {session.session}"[:200],
                relation="local", status="active", last_seen=session.written,
            )
            for session in active
            if subject_key(session.subject) in granted
        )  # fmt: skip

    def capture(self, subject: Subject) -> Capture:
        """The committed entries of a granted session; see `WorkerObservationProvider`."""
        if isinstance(subject, RuntimeWorker) and self._is_granted(subject):
            capture = self._sessions.capture(subject)
            # A grant that was revoked while the file was read counts no more.
            if self._is_granted(subject):
                return capture
        raise subject_not_found()

    def _is_granted(self, subject: RuntimeWorker) -> bool:
        return _is_local(subject) and self._grants.is_granted(
            self._observer, subject, workspace=self._workspace
        )


def _is_local(subject: Subject) -> bool:
    return isinstance(subject, RuntimeWorker) and subject.runtime_id.startswith(LOCAL_RUNTIME)
