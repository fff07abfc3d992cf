"""`sessiondex grant`: who may observe which worker's session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from sessiondex.cli.hosting import now_ms, state_of, subject_in, subject_of_session, subject_word
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import option, pass_invocation, shared_options, together
from sessiondex.cli.output import Column
from sessiondex.cli.texts import local_time, one_line
from sessiondex.errors import UsageError

if TYPE_CHECKING:
    from sessiondex.features.state import Grant
    from sessiondex.features.subjects import Subject

ACTOR = "command line"
"""Who the audit names."""

which_options: Callable[[Any], Any] = together(
    click.argument("observer", metavar="OBSERVER"),
    click.argument("subject", required=False, metavar="[SUBJECT]"),
    option("--session", metavar="S", help="Instead of SUBJECT: a local session, by id or file."),
    option("--workspace", default="", metavar="W",
           help="In this workspace of the server; without it, on this machine."),
)  # fmt: skip


@click.group("grant")
def grant_command() -> None:
    """Let workers observe the sessions of others, and take it back."""


@grant_command.command("add")
@which_options
@shared_options
@pass_invocation
def add_command(
    invocation: Invocation, observer: str, subject: str | None, session: str | None, workspace: str
) -> None:
    """Let OBSERVER observe the session of SUBJECT.

    SUBJECT is RUNTIME/WORKER, as 'observe list' prints it, or a JSON object. It holds at once.
    """
    about, now = _named(invocation, subject, session), now_ms(invocation)
    with state_of(invocation) as state:
        grant = state.add_grant(observer, about, now=now, workspace=workspace)
        state.audit(
            "grant.add", actor=ACTOR, outcome=f"for {observer}", now=now, workspace=workspace,
            subject=about,
        )  # fmt: skip
    output = invocation.output
    if output.is_for_people:
        output.line(f"granted: {one_line(observer)} may observe {subject_word(about)}")
    else:
        output.json(_shown(grant))


@grant_command.command("list")
@option("--observer", metavar="NAME", help="Only grants of this observer.")
@option("--workspace", metavar="W", help="Only grants in this workspace.")
@option("--all", "everything", is_flag=True, help="Also those that were revoked.")
@shared_options
@pass_invocation
def list_command(
    invocation: Invocation, observer: str | None, workspace: str | None, everything: bool
) -> None:
    """List the grants in force, the newest first."""
    with state_of(invocation, is_read=True) as state:
        grants = state.grants(observer=observer, workspace=workspace, include_revoked=everything)
    output, zone = invocation.output, invocation.surroundings.zone
    if not output.is_for_people:
        output.json({"grants": [_shown(grant) for grant in grants]})
        return
    titles = [Column("observer"), Column("subject"), Column("workspace"), Column("since")]
    rows: list[tuple[str, ...]] = []
    for grant in grants:
        shown = _shown(grant)
        row = (
            one_line(grant.observer), subject_word(grant.subject), one_line(grant.workspace),
            local_time(shown["created"], zone),
        )  # fmt: skip
        rows.append((*row, local_time(shown["revoked"], zone)) if everything else row)
    output.table([*titles, Column("revoked")] if everything else titles, rows)


@grant_command.command("remove")
@which_options
@shared_options
@pass_invocation
def remove_command(
    invocation: Invocation, observer: str, subject: str | None, session: str | None, workspace: str
) -> None:
    """Revoke a grant: it is gone at the observer's next call."""
    about, now = _named(invocation, subject, session), now_ms(invocation)
    with state_of(invocation) as state:
        state.remove_grant(observer, about, now=now, workspace=workspace)
        state.audit(
            "grant.remove", actor=ACTOR, outcome=f"for {observer}", now=now, workspace=workspace,
            subject=about,
        )  # fmt: skip
    output = invocation.output
    if output.is_for_people:
        output.line(f"revoked: {one_line(observer)} may no longer observe {subject_word(about)}")
    else:
        output.json({
            "workspace": workspace, "observer": observer, "subject": about.model_dump(),
            "verb": "observe", "removed": True,
        })  # fmt: skip


def _named(invocation: Invocation, subject: str | None, session: str | None) -> Subject:
    if (subject is None) == (session is None):
        raise UsageError(
            "name one subject", hint="give SUBJECT as 'observe list' prints it, or --session"
        )
    if session is not None:
        return subject_of_session(invocation, session)
    return subject_in(subject or "")


def _shown(grant: Grant) -> dict[str, Any]:
    from sessiondex.query.times import format_time

    return {
        "workspace": grant.workspace,
        "observer": grant.observer,
        "subject": grant.subject.model_dump(),
        "verb": grant.verb,
        "created": format_time(grant.created),
        "revoked": format_time(grant.revoked),
    }
