"""`WorkerRuntime`: spawns and restores workers in this process, and binds what they may observe.

What a worker may observe is resolved by the host for each spawn and each restore; nothing of it
is kept by the runtime beyond that, and every grant is looked up in the grant book at every call.
The runtime holds its workers by weak reference: they live as long as the host keeps them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from sessiondex.errors import InvalidArgument
from sessiondex.features.composite_provider import (
    CompositeWorkerObservationProvider,
    Member,
    serves_children,
    serves_runtime,
)
from sessiondex.features.observation import (
    GrantBook,
    ObservableWorker,
    WorkerObservationProvider,
)
from sessiondex.features.providers import (
    RuntimeGrantedWorkerObservationProvider,
    SpawnedSubWorkerObservationProvider,
)
from sessiondex.features.sub_worker import SubWorkerRegistry
from sessiondex.features.subjects import (
    Part,
    RuntimeWorker,
    Subject,
    parse_runtime_worker,
    runtime_worker,
)
from sessiondex.features.turns import Worker, WorkerTurns
from sessiondex.limits import SUBJECTS


class WorkerSpawnRequest(BaseModel):
    """What is asked of a runtime. Its fields may come from a client; unknown ones are refused.

    What the worker may observe is the host's alone: it is no field, stands in no schema and no
    serialization, and is set by `with_resolved_observation`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    worker_id: Part
    workspace: Part
    display_name: str = Field(default="", max_length=200)
    has_sub_workers: bool = False
    """The worker may have children of its own."""

    _enabled: bool = PrivateAttr(default=False)
    _grants: tuple[RuntimeWorker, ...] = PrivateAttr(default=())

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> WorkerSpawnRequest:
        """A request from a client's JSON.

        Raises:
            InvalidArgument: for whatever it may not hold, the fields of the host among it.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "request"
            raise InvalidArgument(
                f"malformed spawn request: {where}: {first['msg']}",
                hint=f"expected {', '.join(cls.model_fields)}",
            ) from None

    def with_resolved_observation(
        self, *, enabled: bool, grants: Iterable[RuntimeWorker] = ()
    ) -> WorkerSpawnRequest:
        """This request with what the host resolved for it.

        Raises:
            InvalidArgument: more than 100 grants, or one that names no worker of a runtime.
        """
        resolved = tuple(dict.fromkeys(parse_runtime_worker(grant) for grant in grants))
        if len(resolved) > SUBJECTS.maximum:
            raise InvalidArgument(
                f"{len(resolved)} grants were resolved", hint=f"expected at most {SUBJECTS.maximum}"
            )
        copy = self.model_copy()
        copy._enabled, copy._grants = enabled, resolved
        return copy

    @property
    def resolved_worker_observation_enabled(self) -> bool:
        """Host-only: whether the worker may observe others."""
        return self._enabled

    @property
    def resolved_worker_observation_grants(self) -> tuple[RuntimeWorker, ...]:
        """Host-only: whom, as the host resolved it for this spawn or restore."""
        return self._grants


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWorkerRequest:
    """What the runtime hands to whoever makes the worker."""

    runtime_id: str
    worker_id: str
    workspace: str
    display_name: str
    has_sub_workers: bool
    is_restore: bool
    worker_observation_enabled: bool
    worker_observation_grants: tuple[RuntimeWorker, ...]

    @property
    def observer(self) -> str:
        """The name under which the worker's grants stand in the grant book."""
        return observer_name(self.runtime_id, self.worker_id)


def observer_name(runtime_id: str, worker_id: str) -> str:
    """The observer that a worker of a runtime is; no two workers have the same."""
    return f"{quote(runtime_id, safe=':')}/{quote(worker_id, safe='')}"


@dataclass(slots=True, weakref_slot=True)
class WorkerHandle:
    """A worker of this runtime, as the host holds it; dropping it ends what others see of it."""

    request: CreateWorkerRequest
    provider: WorkerObservationProvider | None
    """All that the worker may observe; None: the tools are not installed."""
    children: SubWorkerRegistry | None
    turns: WorkerTurns = field(init=False)

    @property
    def subject(self) -> RuntimeWorker:
        """The reference under which others may observe it."""
        return runtime_worker(self.request.runtime_id, self.request.worker_id)


class MakeWorker(Protocol):
    """Makes a worker, or makes it again from its committed session (`request.is_restore`)."""

    def __call__(
        self,
        request: CreateWorkerRequest,
        provider: WorkerObservationProvider | None,
        children: SubWorkerRegistry | None,
    ) -> Worker:
        """The worker; it gets its provider and its children and holds nothing else of the host."""
        ...


class WorkerRuntime:
    """The workers of this process. Thread-safe."""

    def __init__(
        self,
        runtime_id: str,
        *,
        make: MakeWorker,
        grants: GrantBook,
        clock: Callable[[], float],
        more_members: Callable[[CreateWorkerRequest, GrantBook], Iterable[Member]] = (
            lambda request, grants: ()
        ),
    ) -> None:
        """`more_members` gives an enabled worker further providers: local sessions, a workspace."""
        self.runtime_id = runtime_worker(runtime_id, "any").runtime_id
        self._make = make
        self._grants = grants
        self._clock = clock
        self._more_members = more_members
        self._lock = threading.RLock()
        self._handles: weakref.WeakValueDictionary[str, WorkerHandle] = (
            weakref.WeakValueDictionary()
        )
        self._bindings: dict[str, object] = {}
        """Worker id → the binding in force; a restore puts another in its place."""

    def spawn(self, request: WorkerSpawnRequest) -> WorkerHandle:
        """Makes a new worker.

        Raises:
            InvalidArgument: a live worker of that id is there.
        """
        return self._begin(request, is_restore=False)

    def restore(self, request: WorkerSpawnRequest) -> WorkerHandle:
        """Makes a worker again after its process or handle was lost.

        What an earlier handle of it could observe ends here.

        Raises:
            InvalidArgument: a worker of that id is still running a turn.
        """
        return self._begin(request, is_restore=True)

    def stop(self, worker_id: str) -> None:
        """Stops a worker for good; nothing happens where there is none."""
        with self._lock:
            handle = self._handles.pop(worker_id, None)
            self._bindings.pop(worker_id, None)
        if handle is not None:
            handle.turns.stop()

    def find_peer(self, workspace: str, worker_id: str) -> ObservableWorker | None:
        """A live worker of a workspace; None for all others."""
        handle = self._handles.get(worker_id)
        if handle is None or handle.request.workspace != workspace:
            return None
        turns = handle.turns
        if turns.status == "stopped":
            return None
        name = handle.request.display_name or worker_id
        return ObservableWorker(worker_id, name, turns.status, turns.last_seen, turns.worker)

    # ------------------------------------------------------------ making and binding

    def _begin(self, request: WorkerSpawnRequest, *, is_restore: bool) -> WorkerHandle:
        create = CreateWorkerRequest(
            runtime_id=self.runtime_id,
            worker_id=request.worker_id,
            workspace=request.workspace,
            display_name=request.display_name,
            has_sub_workers=request.has_sub_workers,
            is_restore=is_restore,
            worker_observation_enabled=request.resolved_worker_observation_enabled,
            worker_observation_grants=request.resolved_worker_observation_grants,
        )
        with self._lock:
            known = self._handles.get(create.worker_id)
            if known is not None and known.turns.status != "stopped":
                if not is_restore:
                    raise InvalidArgument(
                        f"a worker {create.worker_id!r} is there already",
                        hint="stop it first, or choose another id",
                    )
                if known.turns.status in ("running", "stopping"):
                    raise InvalidArgument(
                        f"worker {create.worker_id!r} is {known.turns.status}",
                        hint="stop it before it is restored",
                    )
            children = SubWorkerRegistry(clock=self._clock) if create.has_sub_workers else None
            provider = self.bind_worker_observation_provider(create, children)
            worker = self._make(create, provider, children)
            handle = WorkerHandle(create, provider, children)
            handle.turns = WorkerTurns(worker, name=create.worker_id, clock=self._clock)
            self._handles[create.worker_id] = handle
        return handle

    def bind_worker_observation_provider(
        self, request: CreateWorkerRequest, children: SubWorkerRegistry | None
    ) -> WorkerObservationProvider | None:
        """What a worker may observe: its children, and where it is enabled, what was granted.

        The same on spawn and on restore; a binding made before no longer answers.
        """
        binding = object()
        with self._lock:
            self._bindings[request.worker_id] = binding
        book = _BoundGrants(self._grants, lambda: self._is_bound(request.worker_id, binding))
        members: list[Member] = []
        if children is not None:
            members.append(
                Member("children", SpawnedSubWorkerObservationProvider(children), serves_children)
            )
        if request.worker_observation_enabled:
            peers = RuntimeGrantedWorkerObservationProvider(
                observer=request.observer,
                workspace=request.workspace,
                runtime_id=self.runtime_id,
                granted=request.worker_observation_grants,
                grants=book,
                find_peer=self.find_peer,
            )
            members.append(
                Member(
                    "runtime", peers, serves_runtime(self.runtime_id),
                    lambda subject: book.is_granted(
                        request.observer, subject, workspace=request.workspace
                    ),
                )
            )  # fmt: skip
            members += self._more_members(request, book)
        return CompositeWorkerObservationProvider(members) if members else None

    def _is_bound(self, worker_id: str, binding: object) -> bool:
        return self._bindings.get(worker_id) is binding


class _BoundGrants:
    """The grant book for one binding: empty once the worker was stopped or restored."""

    def __init__(self, grants: GrantBook, is_bound: Callable[[], bool]) -> None:
        self._grants = grants
        self._is_bound = is_bound

    def is_granted(self, observer: str, subject: Subject, *, workspace: str = "") -> bool:
        return self._is_bound() and self._grants.is_granted(observer, subject, workspace=workspace)

    def granted_subjects(self, observer: str, *, workspace: str = "") -> Sequence[Subject]:
        if not self._is_bound():
            return ()
        return self._grants.granted_subjects(observer, workspace=workspace)
