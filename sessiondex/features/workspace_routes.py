"""What a workspace server answers to a caller that it knows; nothing here is about HTTP.

    GET  worker-observation/sessions   user      the sessions that the caller may observe
    POST worker-observation/session    user      what follows in one of them
    POST workers                       runtime   the workers of the caller, as they are now
    POST memory/backend                both      stages a candidate

Who may see what is decided at each call from the state as it is then. What is not there and what
is not allowed are one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sessiondex.errors import InvalidArgument, NotFound
from sessiondex.features.staging.backend import StagingBackend
from sessiondex.features.staging.record import parse_record
from sessiondex.features.state import State, subject_not_found
from sessiondex.features.subjects import (
    LOCAL_RUNTIME,
    ListedSubject,
    Part,
    RuntimeWorker,
    runtime_worker,
)
from sessiondex.features.tokens import Token, TokenRole
from sessiondex.features.worker_rows import WorkerRow, WorkerRows, WorkerStatus
from sessiondex.features.workspace_wire import SessionRequest, session_reply, sessions_reply
from sessiondex.indexer.capture import Capture
from sessiondex.limits import SUBJECTS

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceServices:
    """What a workspace server works with."""

    state: State
    reach: Callable[[str], Capture]
    """Session id → its committed entries; raises NotFound where there is none."""
    staging: StagingBackend
    clock: Callable[[], float]
    """Epoch seconds."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return int(self.clock() * 1000)


Serve = Callable[[WorkspaceServices, Token, bytes], Mapping[str, Any]]


class WorkspaceRoute(NamedTuple):
    """One thing that a server does, for callers of some roles."""

    method: Literal["GET", "POST"]
    path: str
    """Below `/api/w/{workspace}/`."""
    roles: tuple[TokenRole, ...]
    serve: Serve


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ReportedWorker(_Request):
    """A worker as its runtime reports it; the runtime is the caller."""

    worker_id: Part
    session: Annotated[str, Field(min_length=1, max_length=200)]
    status: WorkerStatus
    display_name: Annotated[str, Field(max_length=200)] = ""


class WorkersReport(_Request):
    """The workers of a runtime that are there now, and those that are gone."""

    workers: Annotated[list[ReportedWorker], Field(max_length=SUBJECTS.maximum)] = []
    gone: Annotated[list[Part], Field(max_length=SUBJECTS.maximum)] = []


class BackendRequest(_Request):
    """One operation of the staging interface."""

    operation: Literal["stage_candidate"]
    record: dict[str, Any]


# ---------------------------------------------------------------- observation


def _sessions(services: WorkspaceServices, caller: Token, body: bytes) -> Mapping[str, Any]:
    rows = WorkerRows(services.state).observable(
        caller.workspace, caller.name, now=services.now_ms(), limit=SUBJECTS.maximum + 1
    )
    return sessions_reply([_listed(row) for row in rows], has_more=False)


def _listed(row: WorkerRow) -> ListedSubject:
    return ListedSubject(
        subject=row.subject, display_name=row.display_name or row.subject.worker_id,
        relation="workspace", status=row.status, last_seen=row.last_seen,
    )  # fmt: skip


def _session(services: WorkspaceServices, caller: Token, body: bytes) -> Mapping[str, Any]:
    request = _parsed(SessionRequest, body)
    row = _observable(services, caller, request)
    capture = services.reach(row.session)
    # What was revoked while the entries were fetched is revoked, and a worker may have moved on.
    if _observable(services, caller, request).session != row.session:
        raise subject_not_found()
    return session_reply(capture, request)


def _observable(services: WorkspaceServices, caller: Token, request: SessionRequest) -> WorkerRow:
    if not isinstance(request.subject, RuntimeWorker):
        raise subject_not_found()
    return WorkerRows(services.state).observable_one(
        caller.workspace, caller.name, request.subject, now=services.now_ms()
    )


# ---------------------------------------------------------------- runtimes


def _workers(services: WorkspaceServices, caller: Token, body: bytes) -> Mapping[str, Any]:
    report = _parsed(WorkersReport, body)
    if caller.name.startswith(LOCAL_RUNTIME):
        raise InvalidArgument(
            f"a runtime may not be named {LOCAL_RUNTIME}…", hint="use another name for its token"
        )
    rows, now = WorkerRows(services.state), services.now_ms()
    for each in report.workers:
        subject = runtime_worker(caller.name, each.worker_id)
        rows.put(
            WorkerRow(caller.workspace, subject, each.session, each.status, now, each.display_name)
        )
    for worker_id in report.gone:
        rows.remove(caller.workspace, runtime_worker(caller.name, worker_id))
    return {"runtime_id": caller.name, "reported": len(report.workers), "gone": len(report.gone)}


# ---------------------------------------------------------------- staging


def _backend(services: WorkspaceServices, caller: Token, body: bytes) -> Mapping[str, Any]:
    request = _parsed(BackendRequest, body)
    record = parse_record(orjson.dumps(request.record)).masked()
    reply = {"operation": request.operation, "id": record.id}
    try:
        services.staging.stage(record)
    except InvalidArgument as error:
        return {"ok": False, **reply, **error.to_json()}
    return {"ok": True, **reply}


ROUTES: Final = (
    WorkspaceRoute("GET", "worker-observation/sessions", ("user",), _sessions),
    WorkspaceRoute("POST", "worker-observation/session", ("user",), _session),
    WorkspaceRoute("POST", "workers", ("runtime",), _workers),
    WorkspaceRoute("POST", "memory/backend", ("user", "runtime"), _backend),
)


def require_allowed(route: WorkspaceRoute, caller: Token, workspace: str) -> None:
    """Raises:
    NotFound: the caller's token is of another workspace, or for something else.
    """
    if caller.workspace != workspace or caller.role not in route.roles:
        raise NotFound("nothing of that name")


def _parsed(model: type[Body], body: bytes) -> Body:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise InvalidArgument(
            f"malformed request: {where[:200]}: {first['msg']}",
            hint=f"expected {', '.join(model.model_fields)}",
        ) from None
