"""What commands give to the tools for models: the host of this run, its state, its subjects."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import option, together
from sessiondex.errors import Failed, UsageError

if TYPE_CHECKING:
    from sessiondex.features.local_host import LocalHost
    from sessiondex.features.state import State
    from sessiondex.features.subjects import Subject
    from sessiondex.features.workspace_client import WorkspaceClient

TOKEN_VARIABLE: Final = "SESSIONDEX_TOKEN"
"""Where the bearer token of a workspace is looked for; an option would show it to everyone."""

session_option = option(
    "--session", metavar="S", help="The session that tools of one session look at."
)
observer_options = together(
    option("--observer", metavar="NAME", help="Whose grants count."),
    option("--workspace-url", metavar="URL",
           help=f"Also observe a workspace's workers; its token is in {TOKEN_VARIABLE}."),
    option("--workspace", metavar="W", help="The workspace at that address."),
)  # fmt: skip


def local_host(
    invocation: Invocation,
    *,
    session: str | None = None,
    observer: str | None = None,
    workspace_url: str | None = None,
    workspace: str | None = None,
    **more: Any,
) -> LocalHost:
    """The host of this run; what it gives is opened when a tool needs it, and closed at its end."""
    from sessiondex.features.local_host import LocalHost

    if (workspace_url is None) != (workspace is None):
        raise UsageError(
            "--workspace-url and --workspace go together", hint="give both, or none of them"
        )

    def open_workspace() -> WorkspaceClient:
        with extra("serve"):
            from sessiondex.features.workspace_client import WorkspaceClient
        token = os.environ.get(TOKEN_VARIABLE, "")
        return WorkspaceClient(workspace_url or "", workspace=workspace or "", token=token)

    settings = invocation.settings
    host = LocalHost(
        folder=invocation.library_path,
        open_library=lambda: invocation.library,
        open_capture=None if session is None else lambda: invocation.named(session).capture,
        observer=observer or "",
        open_workspace=None if workspace_url is None else open_workspace,
        homes=[Path(home).expanduser() for home in settings["homes"].value],
        environ=os.environ,
        exclude=tuple(settings["exclude"].value),
        now=invocation.surroundings.now,
        on_fault=report_fault,
        **more,
    )
    return invocation.opened.enter_context(host)


def report_fault(tool: str, error: Exception) -> None:
    """Says on stderr that a tool has a fault; what it was about only where it is asked for."""
    sys.stderr.write(f"fault in {tool}: {type(error).__name__}\n")
    if os.environ.get("SESSIONDEX_DEBUG") == "1":
        traceback.print_exception(error)


@contextmanager
def extra(name: str) -> Generator[None]:
    """Imports of an extra; what is missing is said together with how to install it.

    Raises:
        Failed: a package of the extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sessiondex"):
            raise
        raise Failed(
            f"the package {error.name!r} is not installed",
            hint=f"pip install 'sessiondex[{name}]'",
        ) from error


def state_of(invocation: Invocation, *, is_read: bool = False) -> State:
    """The state beside the library; `is_read` where nothing is written to it."""
    from sessiondex.features.local_host import open_state

    return open_state(invocation.library_path, is_read=is_read)


def now_ms(invocation: Invocation) -> int:
    """Epoch milliseconds of this moment."""
    return int(invocation.surroundings.now().timestamp() * 1000)


# ---------------------------------------------------------------- subjects


def subject_word(subject: Subject) -> str:
    """A subject in one word, as commands print it and take it back: RUNTIME/WORKER."""
    from sessiondex.features.subjects import RuntimeWorker

    if isinstance(subject, RuntimeWorker):
        return f"{quote(subject.runtime_id, safe=':')}/{quote(subject.worker_id, safe='')}"
    return subject.model_dump_json()


def subject_in(word: str) -> Subject:
    """The subject that a word names: RUNTIME/WORKER, or a JSON object.

    Raises:
        InvalidArgument: it names none.
        UsageError: it is neither.
    """
    from sessiondex.features.subjects import parse_subject, runtime_worker

    if word.lstrip().startswith("{"):
        import orjson

        try:
            return parse_subject(orjson.loads(word))
        except orjson.JSONDecodeError as error:
            raise UsageError(f"the subject is no JSON: {error}", hint=_EXPECTED) from error
    runtime_id, slash, worker_id = word.partition("/")
    if not slash:
        raise UsageError(f"{word[:80]!r} names no subject", hint=_EXPECTED)
    return runtime_worker(unquote(runtime_id), unquote(worker_id))


_EXPECTED: Final = "give it as 'sessiondex observe list' prints it, RUNTIME/WORKER, or as JSON"


def subject_of_session(invocation: Invocation, session: str) -> Subject:
    """The subject under which a local session of an agent may be observed.

    Raises:
        NotFound: there is no such session or file.
    """
    from sessiondex.features.local_sessions import local_subject

    capture = invocation.named(session).capture
    return local_subject(capture.agent, capture.session)
