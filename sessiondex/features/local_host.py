"""A host on this machine: what a command or an MCP server gives to the features that it installs.

Library, session and observer are fixed when a host is made; no argument of a tool can change
them. Each is opened when a feature that needs it is installed, and nothing takes the writer lock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

from sessiondex.errors import InvalidArgument, NotFound, UsageError
from sessiondex.features.composite_provider import (
    CompositeWorkerObservationProvider,
    Member,
    serves_elsewhere,
    serves_local,
)
from sessiondex.features.extract_run import EXTRACT_RUN, ExtractRun
from sessiondex.features.library_tools import LibraryTools
from sessiondex.features.local_sessions import LocalAgentObservationProvider, LocalAgentSessions
from sessiondex.features.memory_extract import MemoryExtract
from sessiondex.features.observation import WorkerObservationProvider
from sessiondex.features.registry import Feature, OnFault, Registry
from sessiondex.features.services import (
    CALLING_SESSION,
    CAPTURE,
    CLOCK,
    LIBRARY,
    CallingSession,
    Clock,
    ServiceKey,
    Services,
)
from sessiondex.features.session_explore import SessionExplore
from sessiondex.features.session_log import SessionLog
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.staging.ids import RecordIds
from sessiondex.features.state import State, checked_name
from sessiondex.features.sub_worker import SubWorkerFeature
from sessiondex.features.worker_observation import PROVIDER, WorkerObservation
from sessiondex.features.workspace_provider import (
    WorkspaceClientWorkerObservationProvider,
    WorkspaceObservationClient,
)
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.indexer.sources.discovery import default_homes


class OpenWorkspace(WorkspaceObservationClient, Protocol):
    """A client of a workspace that is closed when the host is."""

    def close(self) -> None: ...


_FEATURES: Final[Mapping[str, Callable[[], Feature]]] = {
    each.descriptor.id: each
    for each in (
        LibraryTools, SessionExplore, SessionLog, MemoryExtract, WorkerObservation,
        SubWorkerFeature,
    )
}  # fmt: skip

STATE_FILE: Final = "state.sqlite3"

SLUGS: Final = tuple(id.removeprefix("builtin:") for id in _FEATURES)


def feature_id(name: str) -> str:
    """The id of a feature that is named by it, or without its `builtin:`.

    Raises:
        InvalidArgument: there is no such feature.
    """
    id = name if name.startswith("builtin:") else f"builtin:{name}"
    if id not in _FEATURES:
        raise InvalidArgument(f"no feature {name[:80]!r}", hint=f"expected {', '.join(SLUGS)}")
    return id


def feature_of_tool(name: str) -> str:
    """The id of the feature that declares a tool.

    Raises:
        NotFound: none does.
    """
    for id, make in _FEATURES.items():
        if any(tool.name == name for tool in make().descriptor.tools):
            return id
    raise NotFound(f"no tool {name[:80]!r}", hint="see 'sessiondex tools list'")


def local_roots(
    homes: Sequence[Path], environ: Mapping[str, str], library: Library | None
) -> list[Path]:
    """The folders in which agents of this machine write sessions: below the homes, and whatever
    else was indexed."""
    places = [place.path for base in (homes or [None]) for place in default_homes(environ, base)]
    if library is not None:
        rows = library.snapshot().catalog.rows("SELECT DISTINCT root FROM sources WHERE format<>''")
        places += [Path(root) for (root,) in rows]
    return list(dict.fromkeys(Path(os.path.realpath(place)) for place in places))


@dataclass(frozen=True, kw_only=True)
class LocalHost:
    """Gives features what they need, each once. Made for one registry."""

    folder: Path
    """Of the library, beside which state and staging stand."""
    open_library: Callable[[], Library]
    """Raises NotFound where there is none."""
    open_capture: Callable[[], Capture] | None = None
    """Captures the one session; None: none was named."""
    observer: str = ""
    open_workspace: Callable[[], OpenWorkspace] | None = None
    """Whose sessions are observed beside those of this machine."""
    calling_session: str = ""
    homes: Sequence[Path] = ()
    """In which agents are looked for; none: the user's."""
    environ: Mapping[str, str]
    exclude: Sequence[str] = ()
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    random_bytes: Callable[[int], bytes] = os.urandom
    on_fault: OnFault | None = None
    _opened: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes what was opened for features, but not the library."""
        self._opened.close()

    def registry(self, *features: str) -> Registry:
        """A registry in which all these features are installed.

        Raises:
            UsageError: a feature needs a session or an observer that the host was not given.
            InvalidArgument: there is no such feature.
            Failed: one cannot be installed here; says why.
        """
        made = [_FEATURES[feature_id(name)]() for name in dict.fromkeys(features)]
        provided: dict[ServiceKey[Any], object] = {CLOCK: Clock(self.now)}
        if self.calling_session:
            provided[CALLING_SESSION] = CallingSession(self.calling_session)
        for key in dict.fromkeys(key for each in made for key in each.descriptor.requires):
            if key is CAPTURE:
                provided[key] = self.capture
            elif key is LIBRARY:
                provided[key] = self.open_library()
            elif key is PROVIDER:
                provided[key] = self.provider
            elif key is EXTRACT_RUN:
                provided[key] = self._run_by_hand()
        registry = Registry(on_fault=self.on_fault)
        registry.install(made, Services(provided)).require_all()
        return registry

    @cached_property
    def capture(self) -> Capture:
        """The committed part of the one session, as it stood when it was first asked for."""
        if self.open_capture is None:
            raise UsageError("no session was named", hint="name one with --session")
        return self.open_capture().committed()

    @cached_property
    def provider(self) -> WorkerObservationProvider:
        """What the observer may see of this machine's sessions, and of the workspace's; looked up
        at every call."""
        if not self.observer:
            raise UsageError("no observer was named", hint="name one with --observer")
        observer = checked_name(self.observer, "observer")
        state = self._opened.enter_context(open_state(self.folder))
        local = LocalAgentObservationProvider(
            self.local_sessions(), observer=observer, grants=state
        )
        members = [
            Member("local", local, serves_local, lambda each: state.is_granted(observer, each))
        ]
        if self.open_workspace is not None:
            client = self.open_workspace()
            self._opened.callback(client.close)
            elsewhere = WorkspaceClientWorkerObservationProvider(
                client, clock=lambda: self.now().timestamp()
            )
            members.append(Member("workspace", elsewhere, serves_elsewhere()))
        return CompositeWorkerObservationProvider(members)

    def local_sessions(self) -> LocalAgentSessions:
        """The active sessions of this machine, for the host alone."""
        try:
            library = self.open_library()
        except NotFound:
            library = None
        return LocalAgentSessions(
            local_roots(self.homes, self.environ, library),
            clock=lambda: self.now().timestamp(), library=library, exclude=self.exclude,
        )  # fmt: skip

    def _run_by_hand(self) -> ExtractRun:
        """The run of whoever calls the tools one by one: one a session, which later calls go on
        with, so that nothing is staged twice. Only a process that goes on keeps it sealed."""
        staging = StagingFolder.beside(self.folder)
        run_id = f"by-hand-{hashlib.sha256(self.capture.session.encode()).hexdigest()[:16]}"
        return ExtractRun(
            self.capture, run_id=run_id, backend=staging,
            ids=RecordIds(
                now_ms=lambda: int(self.now().timestamp() * 1000), random_bytes=self.random_bytes
            ),
            adopted=staging.of_run(run_id),
            earlier=[each for each in staging.waiting().records if each.extract_run_id != run_id],
        )  # fmt: skip


def open_state(folder: Path, *, is_read: bool = False) -> State:
    """The state beside a library, made where there is none yet; so is the folder, 0700.

    Where it is only read none is made: a mistyped folder stays away, and nothing is in it. What
    cannot be written can be read.
    """
    path = folder / STATE_FILE
    if is_read and not path.exists():
        return State.open(None)
    if is_read and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)):
        return State.open_read_only(path)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return State.open(path)
