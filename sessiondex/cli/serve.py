"""`sessiondex serve`: the workspace server, its tokens and its orchestrators."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from sessiondex.cli.grant import ACTOR
from sessiondex.cli.hosting import extra, local_host, now_ms, state_of
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import (
    exclude_option,
    home_option,
    option,
    pass_invocation,
    shared_options,
)
from sessiondex.cli.output import Column
from sessiondex.cli.texts import local_time, one_line

if TYPE_CHECKING:
    from sessiondex.features.tokens import Token

TOKEN_BYTES = 32

workspace_option = option("--workspace", required=True, metavar="W", help="Name of the workspace.")


@click.group("serve", invoke_without_command=True)
@option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where to listen (127.0.0.1).")
@option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT",
        help="Port to listen at; 0, the default, takes a free one.")  # fmt: skip
@home_option
@exclude_option
@shared_options
@click.pass_context
def serve_command(ctx: click.Context, host: str, port: int) -> None:
    """Serve workspaces: observation under grants, and staging.

    Its address is the first line on standard output; the log, on standard error, is one JSON
    object a request and holds nothing that a session says.
    """
    if ctx.invoked_subcommand is None:
        _serve(ctx.ensure_object(Invocation), host, port)


def _serve(invocation: Invocation, host: str, port: int) -> None:
    with extra("serve"):
        from sessiondex.features.workspace_server import serve, workspace_app
    from sessiondex.features.listening import bind, url_of
    from sessiondex.features.reachable_sessions import ReachableSessions
    from sessiondex.features.staging.folder import StagingFolder
    from sessiondex.features.workspace_routes import WorkspaceServices

    def clock() -> float:
        return invocation.surroundings.now().timestamp()

    library = invocation.library
    sessions = ReachableSessions(
        library, clock=clock, local=local_host(invocation).local_sessions()
    )
    with state_of(invocation) as state, bind(host=host, port=port) as listening:
        services = WorkspaceServices(
            state=state, reach=sessions.capture,
            staging=StagingFolder.beside(invocation.library_path), clock=clock,
        )  # fmt: skip
        output, url = invocation.output, url_of(listening)
        if output.is_for_people:
            output.line(url)
        else:
            output.json_line({"url": url})
        if not _is_loopback(listening.getsockname()[0]):
            output.message("this is no loopback address: put a proxy with TLS before it, or tokens"
                           " cross the network for all to read")  # fmt: skip
        sys.stdout.flush()
        serve(workspace_app(services), listening)


def _is_loopback(address: str) -> bool:
    from ipaddress import ip_address

    return ip_address(address.partition("%")[0]).is_loopback


# ---------------------------------------------------------------- tokens


@serve_command.group("token")
def token_command() -> None:
    """Make and revoke the bearer tokens of a workspace."""


@token_command.command("create")
@click.argument("name", metavar="NAME")
@workspace_option
@option("--role", type=click.Choice(("user", "runtime")), default="user",
        help="user: observes and stages; runtime: reports its workers.")  # fmt: skip
@shared_options
@pass_invocation
def create_command(invocation: Invocation, name: str, workspace: str, role: Any) -> None:
    """Make a token for NAME, an observer or a runtime, and print it; it is shown only now."""
    from secrets import token_urlsafe

    from sessiondex.features.tokens import TokenRows

    secret, now = token_urlsafe(TOKEN_BYTES), now_ms(invocation)
    with state_of(invocation) as state:
        token = TokenRows(state).add(secret, name=name, role=role, workspace=workspace, now=now)
        state.audit("token.create", actor=ACTOR, outcome=name, now=now, workspace=workspace)
    output = invocation.output
    if output.is_for_people:
        output.line(secret)
        output.message("keep it: only its digest is stored")
    else:
        output.json({"token": secret, **_shown(token)})


@token_command.command("list")
@option("--workspace", metavar="W", help="Only tokens of this workspace.")
@option("--all", "everything", is_flag=True, help="Also those that were revoked.")
@shared_options
@pass_invocation
def list_command(invocation: Invocation, workspace: str | None, everything: bool) -> None:
    """List the tokens in force, the newest first; the tokens themselves are not kept."""
    from sessiondex.features.tokens import TokenRows

    with state_of(invocation, is_read=True) as state:
        tokens = TokenRows(state).all(workspace=workspace, include_revoked=everything)
    output, zone = invocation.output, invocation.surroundings.zone
    shown = [_shown(token) for token in tokens]
    if not output.is_for_people:
        output.json({"tokens": shown})
        return
    titles = [Column(title) for title in ("name", "workspace", "role", "since")]
    output.table(
        [*titles, Column("revoked")] if everything else titles,
        [
            (
                one_line(each["name"]), one_line(each["workspace"]), each["role"],
                local_time(each["created"], zone),
                *((local_time(each["revoked"], zone),) if everything else ()),
            )
            for each in shown
        ],
    )  # fmt: skip


@token_command.command("revoke")
@click.argument("name", metavar="NAME")
@workspace_option
@shared_options
@pass_invocation
def revoke_command(invocation: Invocation, name: str, workspace: str) -> None:
    """Revoke the token of NAME: the next request with it is refused."""
    from sessiondex.features.tokens import TokenRows

    now = now_ms(invocation)
    with state_of(invocation) as state:
        TokenRows(state).revoke(name, workspace=workspace, now=now)
        state.audit("token.revoke", actor=ACTOR, outcome=name, now=now, workspace=workspace)
    output = invocation.output
    if output.is_for_people:
        output.line(f"revoked: the token of {one_line(name)} in workspace {one_line(workspace)}")
    else:
        output.json({"name": name, "workspace": workspace, "revoked": True})


def _shown(token: Token) -> dict[str, Any]:
    from sessiondex.query.times import format_time

    return {
        "name": token.name,
        "workspace": token.workspace,
        "role": token.role,
        "created": format_time(token.created),
        "revoked": format_time(token.revoked),
    }


# ---------------------------------------------------------------- orchestrators


@serve_command.command("orchestrator")
@click.argument("name", required=False, metavar="[NAME]")
@workspace_option
@option("--none", "nobody", is_flag=True, help="Nobody is from now on.")
@shared_options
@pass_invocation
def orchestrator_command(
    invocation: Invocation, name: str | None, workspace: str, nobody: bool
) -> None:
    """Show, or set, who is the orchestrator of a workspace: it may observe every worker there."""
    from sessiondex.errors import UsageError
    from sessiondex.features.worker_rows import WorkerRows

    if nobody and name is not None:
        raise UsageError("NAME and --none were both given", hint="give one of them")
    now, is_set = now_ms(invocation), nobody or name is not None
    with state_of(invocation, is_read=not is_set) as state:
        rows = WorkerRows(state)
        if is_set:
            rows.set_orchestrator(workspace, name)
            state.audit(
                "orchestrator.set", actor=ACTOR, outcome=name or "nobody", now=now,
                workspace=workspace,
            )  # fmt: skip
        current = rows.orchestrator(workspace)
    output = invocation.output
    if output.is_for_people:
        output.line(one_line(current or "nobody"))
    else:
        output.json({"workspace": workspace, "orchestrator": current})
