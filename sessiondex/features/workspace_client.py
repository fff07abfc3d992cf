"""A workspace over HTTP: for the provider of its sessions, for staging, and for a runtime.

One bearer token, one workspace. What the server says is taken as data of a stranger: bounded in
bytes and time, and only a few statuses mean anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx
import orjson

from sessiondex.errors import Failed, InvalidArgument, NotFound
from sessiondex.features.staging.record import StagingRecord
from sessiondex.limits import MIB
from sessiondex.masking import mask
from sessiondex.model import clean_text
from sessiondex.query.reply import clip_text

REPLY_BYTES: Final = 64 * MIB
"""A page of a session; one record of the largest size comes alone."""

IDLE_SECONDS: Final = 10.0
"""How long a server may be silent."""

REPLY_SECONDS: Final = 60.0
"""How long one reply may take, however it trickles in."""

_SAID_BYTES: Final = 500
_REJECTIONS: Final = frozenset({400, 422})


class WorkspaceClient:
    """The routes of one workspace. Thread-safe; to be closed."""

    def __init__(
        self,
        url: str,
        *,
        workspace: str,
        token: str,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises:
        InvalidArgument: the address is no http or https URL, or the token cannot be sent.
        """
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InvalidArgument(f"the workspace address is no URL: {error}") from None
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
            raise InvalidArgument(
                "the workspace address is no plain http or https URL",
                hint="expected one like http://127.0.0.1:8080",
            )
        if not token.isascii() or not token.isprintable() or " " in token or not token:
            raise InvalidArgument("the token is malformed", hint="pass it as it was created")
        self._base = f"{str(parsed).rstrip('/')}/api/w/{quote(workspace, safe='')}/"
        self._monotonic = monotonic
        self._http = httpx.Client(
            headers={"authorization": f"Bearer {token}", "accept-encoding": "identity"},
            timeout=IDLE_SECONDS, transport=transport, trust_env=False, follow_redirects=False,
        )  # fmt: skip

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> WorkspaceClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ observation

    def list_sessions(self) -> Mapping[str, Any]:
        """Body of the list of sessions; see `WorkspaceObservationClient`."""
        return self._served(*self._ask("GET", "worker-observation/sessions"))

    def session(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Body of one page of a session; see `WorkspaceObservationClient`."""
        status, body = self._ask("POST", "worker-observation/session", request)
        if status == 404:
            raise NotFound("the workspace has no such session", hint="list the sessions again")
        return self._served(status, body)

    # ------------------------------------------------------------ runtimes

    def report_workers(
        self, workers: Iterable[Mapping[str, Any]], *, gone: Iterable[str] = ()
    ) -> None:
        """Reports the workers of the runtime that the token stands for, and those that are gone.

        A worker is `{worker_id, session, status, display_name?}`. One that is not reported again
        within two minutes counts as gone.

        Raises:
            InvalidArgument: the server refuses one of them.
            Failed: no answer, or any other one that is no success.
        """
        status, body = self._ask("POST", "workers", {"workers": list(workers), "gone": list(gone)})
        if status in _REJECTIONS:
            raise InvalidArgument(f"the workspace refused the workers: {_said(body)}")
        self._served(status, body)

    # ------------------------------------------------------------ staging

    def stage(self, record: StagingRecord) -> None:
        """Stages a record in the workspace; see `StagingBackend`."""
        status, body = self._ask(
            "POST", "memory/backend", {"operation": "stage_candidate", "record": record.to_json()}
        )
        if status in _REJECTIONS:
            raise InvalidArgument(f"the workspace refused the candidate: {_said(body)}")
        reply = self._served(status, body)
        if reply.get("ok") is False or "error" in reply or reply.get("status") == "rejected":
            raise InvalidArgument(f"the workspace refused the candidate: {_said(body)}")
        if reply.get("id") != record.id:
            raise Failed("the workspace did not say that it kept the candidate", hint="try again")

    # ------------------------------------------------------------ asking

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of a reply, whatever they are."""
        content = None if body is None else orjson.dumps(body)
        headers = {} if body is None else {"content-type": "application/json"}
        deadline = self._monotonic() + REPLY_SECONDS
        try:
            with self._http.stream(
                method, self._base + path, content=content, headers=headers
            ) as response:
                data = bytearray()
                for chunk in response.iter_bytes():
                    data += chunk
                    if len(data) > REPLY_BYTES:
                        raise Failed(f"the workspace answered with more than {REPLY_BYTES} bytes")
                    if self._monotonic() > deadline:
                        raise Failed("the workspace takes too long to answer", hint="try again")
                return response.status_code, bytes(data)
        except httpx.HTTPError as error:
            raise Failed(
                f"the workspace cannot be reached: {type(error).__name__}",
                hint="check its address, and that its server runs",
            ) from error

    def _served(self, status: int, body: bytes) -> Mapping[str, Any]:
        """The JSON object of a success."""
        if status in (401, 403):
            raise Failed("the workspace does not know the token", hint="it may have been revoked")
        if not 200 <= status < 300:
            raise Failed(f"the workspace answered with status {status}", hint="try again later")
        reply = _object(body)
        if reply is None:
            raise Failed("the workspace answered with something that is no JSON object")
        return reply


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _said(body: bytes) -> str:
    """What a server gave as the reason of a refusal, short and masked."""
    reply = _object(body) or {}
    error = reply.get("error", reply)
    parts = (
        [error.get(name) for name in ("message", "reason", "hint")]
        if isinstance(error, dict)
        else [error]
    )
    words = "; ".join(part for part in parts if isinstance(part, str) and part)
    return clip_text(mask(clean_text(words)).text, _SAID_BYTES) or "it gave no reason"
