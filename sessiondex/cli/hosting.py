"""What commands give to the tools for models: the host of this run."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import option, together

if TYPE_CHECKING:
    from sessiondex.features.local_host import LocalHost

session_option = option(
    "--session", metavar="S", help="The session that tools of one session look at."
)
observer_option = option("--observer", metavar="NAME", help="Whose grants count.")
host_options = together(session_option, observer_option)


def local_host(
    invocation: Invocation, *, session: str | None = None, observer: str | None = None, **more: Any
) -> LocalHost:
    """The host of this run; what it gives is opened when a tool needs it."""
    from sessiondex.features.local_host import LocalHost

    settings = invocation.settings
    return LocalHost(
        folder=invocation.library_path,
        open_library=lambda: invocation.library,
        open_capture=None if session is None else lambda: invocation.named(session).capture,
        observer=observer or "",
        homes=[Path(home).expanduser() for home in settings["homes"].value],
        environ=os.environ,
        exclude=tuple(settings["exclude"].value),
        now=invocation.surroundings.now,
        on_fault=report_fault,
        **more,
    )


def report_fault(tool: str, error: Exception) -> None:
    """Says on stderr that a tool has a fault; what it was about only where it is asked for."""
    sys.stderr.write(f"fault in {tool}: {type(error).__name__}\n")
    if os.environ.get("SESSIONDEX_DEBUG") == "1":
        traceback.print_exception(error)
