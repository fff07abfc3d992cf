"""`sessiondex mcp`: the tools for models over MCP."""

from __future__ import annotations

import signal
import sys
from typing import Any

import click

from sessiondex.cli.hosting import extra, local_host, observer_options, session_option
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import (
    exclude_option,
    home_option,
    option,
    pass_invocation,
    shared_options,
)
from sessiondex.errors import UsageError

DEFAULT_FEATURE = "library"

UNSERVED = {
    "builtin:memory-extract": "an extract worker gets it from its own host",
    "builtin:sub-worker": "a server has no children",
}
"""Features that no MCP client is given, and why."""


@click.command("mcp")
@option("--feature", "features", multiple=True, metavar="F",
        help="library (default), session-explore, session-log or worker-observation.")  # fmt: skip
@session_option
@observer_options
@option("--calling-session", metavar="ID",
        help="The session that calls: left out of searches and lists.")  # fmt: skip
@option("--http", "port", type=click.IntRange(0, 65535), metavar="PORT",
        help="Serve HTTP on 127.0.0.1 instead of stdio; 0 takes a free port.")  # fmt: skip
@home_option
@exclude_option
@shared_options
@pass_invocation
def mcp_command(
    invocation: Invocation,
    features: tuple[str, ...],
    session: str | None,
    observer: str | None,
    calling_session: str | None,
    port: int | None,
    **workspace: Any,
) -> None:
    """Serve tools for models over MCP.

    Without --feature it serves search and reading of the library, and nothing else. Features,
    session and observer are fixed at start. It never writes to the library and locks nothing.
    """
    from sessiondex.features.local_host import feature_id

    wanted = [feature_id(name) for name in features or (DEFAULT_FEATURE,)]
    for each in wanted:
        if each in UNSERVED:
            raise UsageError(f"feature {each!r} is not served over MCP", hint=UNSERVED[each])
    for needed, name, value in (
        ({"builtin:session-explore", "builtin:session-log"}, "session", session),
        ({"builtin:worker-observation"}, "observer", observer),
    ):
        users = [each for each in wanted if each in needed]
        if users and not value:
            raise UsageError(f"feature {users[0]!r} needs --{name}", hint=f"give --{name}")
        if value and not users:
            raise UsageError(
                f"--{name} was given, and no feature that uses it",
                hint=f"name it with --feature: {', '.join(sorted(needed))}",
            )
    with extra("mcp"):
        from sessiondex.features.mcp_server import mcp_server, serve_http, serve_stdio
    host = local_host(
        invocation, session=session, observer=observer, calling_session=calling_session or "",
        **workspace,
    )  # fmt: skip
    registry = host.registry(*wanted)
    server = mcp_server(registry, session=host.capture.session if session else "")
    if port is not None:
        serve_http(server, port=port, announce=_announce)
        return
    # The thread that reads stdin cannot be interrupted; there is nothing to put in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve_stdio(server)


def _announce(address: str) -> None:
    sys.stderr.write(f"serving MCP at {address}\n")
    sys.stderr.flush()
