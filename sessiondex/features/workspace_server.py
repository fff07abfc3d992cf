"""The workspace server: HTTP around `workspace_routes`, with tokens, rates, sizes and a log.

A request without a valid token is told 401 and nothing else. What is not there and what is not
allowed get one and the same 404. The log says who asked for what and how it went, and nothing of
what a session says.
"""

from __future__ import annotations

import asyncio
import math
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TextIO

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sessiondex.errors import InvalidArgument, NotFound, SessiondexError, Stale
from sessiondex.features.listening import bind, url_of
from sessiondex.features.rates import Rate, Rates
from sessiondex.features.tokens import Token, TokenRows
from sessiondex.features.workspace_routes import (
    ROUTES,
    WorkspaceRoute,
    WorkspaceServices,
    require_allowed,
)
from sessiondex.limits import KIB
from sessiondex.masking import mask
from sessiondex.model import clean_text
from sessiondex.query.reply import clip_text

PREFIX: Final = "/api/w/{workspace}/"

BODY_BYTES: Final = 256 * KIB
"""A staging record of the largest size, also when its text is escaped."""

BODY_SECONDS: Final = 10.0
"""How long a request may take to arrive."""

CALLER_RATE: Final = Rate(per_second=50, burst=600)
"""The pages of the largest session that a client takes come in one burst."""

STRANGER_RATE: Final = Rate(per_second=2, burst=20)
"""Requests without a valid token, of one address."""

CONNECTIONS: Final = 128

Log = Callable[[Mapping[str, Any]], None]


def json_log(stream: TextIO | None = None) -> Log:
    """A log of one JSON object a line, on standard error unless another stream is given."""

    def write(line: Mapping[str, Any]) -> None:
        print(orjson.dumps(line).decode(), file=stream or sys.stderr, flush=True)

    return write


class _Answer(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    kind: str = ""
    """Kind of the error, or the type of a fault; '' if there was none."""


def _refusal(status: int, kind: str, message: str, **headers: str) -> _Answer:
    error = {"class": "invalid_argument", "kind": kind, "message": message, "hint": ""}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return _Answer(status, orjson.dumps({"error": error}), named, kind)


_NOT_FOUND: Final = _refusal(404, "not_found", "not found")
_UNKNOWN_CALLER: Final = _refusal(401, "invalid_argument", "a valid bearer token is needed",
                                  WWW_Authenticate="Bearer")  # fmt: skip
_TOO_LARGE: Final = _refusal(413, "invalid_argument", f"the body is larger than {BODY_BYTES} bytes")
_TOO_SLOW: Final = _refusal(408, "invalid_argument", "the request took too long to arrive")
_FAULT: Final = {"error": {"class": "internal", "kind": "internal", "hint": "",
                          "message": "the workspace failed by a fault of its own"}}  # fmt: skip


def workspace_app(
    services: WorkspaceServices,
    *,
    log: Log | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> Starlette:
    """The server as an ASGI application."""
    return _Workspace(services, log=log or json_log(), monotonic=monotonic).app()


class _Workspace:
    """Answers requests: who asks, how often, what, how much, and then the route."""

    def __init__(
        self, services: WorkspaceServices, *, log: Log, monotonic: Callable[[], float]
    ) -> None:
        self._services = services
        self._tokens = TokenRows(services.state)
        self._log = log
        self._monotonic = monotonic
        self._callers = Rates(CALLER_RATE, monotonic=monotonic)
        self._strangers = Rates(STRANGER_RATE, monotonic=monotonic)

    def app(self) -> Starlette:
        routes = [
            Route(PREFIX + route.path, self._endpoint(route), methods=[route.method])
            for route in ROUTES
        ]
        unknown = self._endpoint(None)

        async def not_found(request: Request, _: Exception) -> Response:
            return await unknown(request)

        app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})
        app.router.redirect_slashes = False  # it would tell a stranger which routes there are
        return app

    def _endpoint(self, route: WorkspaceRoute | None) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            begin = self._monotonic()
            caller = await self._caller(request)
            answer = await self._answer(route, request, caller)
            self._log(
                {
                    "time": datetime.fromtimestamp(self._services.clock(), UTC).isoformat(),
                    "method": request.method if route else "",
                    "route": route.path if route else "",
                    "workspace": caller.workspace if caller else "",
                    "caller": caller.name if caller else "",
                    "role": caller.role if caller else "",
                    "status": answer.status,
                    "error": answer.kind,
                    "bytes": len(answer.body),
                    "milliseconds": round((self._monotonic() - begin) * 1000, 1),
                }
            )
            return Response(
                answer.body, answer.status, dict(answer.headers), media_type="application/json"
            )

        return endpoint

    async def _caller(self, request: Request) -> Token | None:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            return None
        return await run_in_threadpool(self._tokens.find, secret.strip())

    async def _answer(
        self, route: WorkspaceRoute | None, request: Request, caller: Token | None
    ) -> _Answer:
        if caller is None:
            address = request.client.host if request.client else ""
            wait = self._strangers.wait_seconds(address)
        else:
            wait = self._callers.wait_seconds(f"{caller.workspace}\0{caller.name}")
        if wait:
            return _refusal(429, "busy", "too many requests", Retry_After=str(math.ceil(wait)))
        if caller is None:
            return _UNKNOWN_CALLER
        if route is None:
            return _NOT_FOUND
        try:
            require_allowed(route, caller, request.path_params["workspace"])
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(request)
            if body is None:
                return _TOO_LARGE
            value = await run_in_threadpool(route.serve, self._services, caller, body)
            return _Answer(200, orjson.dumps(value))
        except (TimeoutError, ClientDisconnect):
            return _TOO_SLOW
        except SessiondexError as error:
            return _of_error(error)
        except Exception as error:  # noqa: BLE001 - the one gate: no fault leaves a request
            return _Answer(500, orjson.dumps(_FAULT), {}, type(error).__name__)


async def _body(request: Request) -> bytes | None:
    """The body of a request; None where it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            return None
    return bytes(body)


def _of_error(error: SessiondexError) -> _Answer:
    if isinstance(error, NotFound):
        return _NOT_FOUND
    if isinstance(error, InvalidArgument | Stale):
        shown = error.to_json()
        for name in ("message", "hint"):
            shown["error"][name] = clip_text(mask(clean_text(shown["error"][name])).text, 2_000)
        return _Answer(400, orjson.dumps(shown), {}, error.kind)
    # What went wrong here may name files of this machine.
    said = {"class": "failed", "kind": error.kind, "message": "the workspace could not serve this",
            "hint": "try again later"}  # fmt: skip
    return _Answer(503, orjson.dumps({"error": said}), {}, error.kind)


# ---------------------------------------------------------------- serving


def serve(app: Starlette, listening: socket.socket) -> None:
    """Serves until the process is told to stop."""
    _server(app).run(sockets=[listening])


@contextmanager
def serving(app: Starlette) -> Generator[str]:
    """Serves on loopback in a thread while the block runs; gives the address."""
    listening = bind()
    server = _server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True
        thread.join()


def _server(app: Starlette) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app, http="h11", ws="none", loop="asyncio", lifespan="off", log_config=None,
            access_log=False, server_header=False, date_header=False, proxy_headers=False,
            limit_concurrency=CONNECTIONS, timeout_keep_alive=15, timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=16 * KIB,
        )
    )  # fmt: skip
