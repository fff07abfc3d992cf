"""`sessiondex observe`: the sessions of other workers, as one observer may see them.

Every command is a call of a tool of worker-observation, page by page: grants count as they stand
at each of them, and people see what a model would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from sessiondex.cli.hits import print_all, print_page
from sessiondex.cli.hosting import local_host, observer_options, subject_in, subject_word
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import place_of, ref_in, split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    all_option,
    capture_option,
    entry_options,
    jsonl_option,
    match_options,
    option,
    page_options,
    pass_invocation,
    range_options,
    shared_options,
)
from sessiondex.cli.output import Column
from sessiondex.cli.overview import print_overview
from sessiondex.cli.reading import print_entries
from sessiondex.cli.texts import one_line
from sessiondex.errors import InternalError, SessiondexError, UsageError

if TYPE_CHECKING:
    from sessiondex.features.subjects import Subject

Call = Callable[..., dict[str, Any]]
"""Tool name and arguments → its reply."""


@click.group("observe")
def observe_command() -> None:
    """Observe sessions of other workers under the grants of an observer."""


@observe_command.command("list")
@observer_options
@option("--limit", type=int, metavar="N", help="Most to show (20; at most 100).")
@shared_options
@pass_invocation
def list_command(
    invocation: Invocation, observer: str | None, limit: int | None, **workspace: Any
) -> None:
    """List the workers whose sessions the observer may read now.

    Without --observer: every active session of an agent on this machine, to choose from for
    'grant add'.
    """
    output = invocation.output
    if observer is None:
        reply = _active_sessions(invocation, limit)
    else:
        reply = _caller(invocation, observer, workspace)("ListWorkerSessions", limit=limit)
    if not output.is_for_people:
        output.json(reply)
        return
    output.table(
        [Column("subject"), Column("relation"), Column("status"), Column("name", "cut")],
        [
            (
                subject_word(_subject(each["subject"])), each["relation"], each["status"],
                one_line(each["display_name"]),
            )
            for each in reply["subjects"]
        ],
    )  # fmt: skip
    output.notes(reply)
    if reply["has_more"]:
        output.message("there are more; --limit shows up to 100")


@observe_command.command("overview", cls=FreeWordsCommand)
@click.argument("subject", metavar="SUBJECT")
@observer_options
@option("--stride", type=int, metavar="N", help="Show every N-th anchor (8).")
@range_options
@option("--limit", type=int, metavar="N", help="Most anchors to show (20; at most 100).")
@option("--cursor", metavar="C", help="Go on where the page with this 'next_cursor' ended.")
@all_option
@jsonl_option
@capture_option
@shared_options
@pass_invocation
def overview_command(
    invocation: Invocation,
    subject: str,
    stride: int | None,
    from_ref: str | None,
    through_ref: str | None,
    limit: int | None,
    cursor: str | None,
    everything: bool,
    capture: str | None,
    observer: str | None,
    **workspace: Any,
) -> None:
    """Show the table of contents of a worker's session as it stands now."""
    call, word = _caller(invocation, observer, workspace), split_word(subject)[0]
    about = subject_in(word).model_dump()

    def page(at: str | None, size: int | None) -> dict[str, Any]:
        return call(
            "ViewSessionOverview", subject=about, stride=stride, limit=size, cursor=at,
            capture=capture, **_range(from_ref, through_ref),
        )  # fmt: skip

    print_overview(
        invocation, page, cursor=cursor, limit=limit, everything=everything, name=word, facts=(),
        origin=_origin(observer),
    )  # fmt: skip


@observe_command.command("search", cls=FreeWordsCommand)
@click.argument("subject", metavar="SUBJECT")
@click.argument("query", default="", metavar="[QUERY]")
@observer_options
@match_options
@entry_options
@page_options
@capture_option
@shared_options
@pass_invocation
def search_command(
    invocation: Invocation,
    subject: str,
    query: str,
    kinds: tuple[str, ...],
    tool_names: tuple[str, ...],
    flags: tuple[str, ...],
    from_ref: str | None,
    through_ref: str | None,
    limit: int | None,
    cursor: str | None,
    everything: bool,
    observer: str | None,
    workspace_url: str | None,
    workspace: str | None,
    **asked: Any,
) -> None:
    """Search a worker's session as it stands now; without QUERY its entries are listed."""
    given = {"workspace_url": workspace_url, "workspace": workspace}
    call, word = _caller(invocation, observer, given), split_word(subject)[0]
    about = subject_in(word).model_dump()

    def page(at: str | None, size: int | None) -> dict[str, Any]:
        return call(
            "SearchSessionEntries", subject=about, query=query or None, kind=list(kinds) or None,
            tool_name=list(tool_names) or None, flags=list(flags) or None, limit=size, cursor=at,
            **_range(from_ref, through_ref), **asked,
        )  # fmt: skip

    def hits(reply: dict[str, Any]) -> Any:
        yield from reply["hits"]
        while reply["has_more"]:
            reply = page(reply["next_cursor"], 100)
            yield from reply["hits"]

    shown: dict[str, Any] = {
        "field": "hits", "name_of": lambda _: word, "scope": f"session of {word}",
        "origin": _origin(observer),
    }  # fmt: skip
    reply = page(cursor, 100 if everything else limit)
    if everything:
        head = {name: reply[name] for name in ("subject", "capture")}
        print_all(invocation, hits(reply), head=head, **shown)
    else:
        print_page(invocation, reply, **shown)


@observe_command.command("read", cls=FreeWordsCommand)
@click.argument("words", nargs=-1, required=True, metavar="SUBJECT REF...")
@observer_options
@option("--through", "through_ref", metavar="REF", help="Read from REF through this one.")
@option("--kind", "kinds", multiple=True, metavar="K", help="Only these kinds in a range.")
@option("--tool-part", metavar="P", help="Of tool entries only the input, the output, or both.")
@option("--mode", metavar="M", help="full, or compact: without arguments and results.")
@option("--include-tools/--no-tools", default=True, help="With or without tool entries.")
@option("--context", type=int, metavar="N", help="Also N neighbours on both sides.")
@option("--max-items", type=int, metavar="N", help="Most entries (10; at most 80).")
@option("--max-bytes", type=int, metavar="N", help="Most bytes (16384; at most 49152).")
@option("--max-tokens", type=int, metavar="N", help="Most tokens, taken as 4 bytes each.")
@option("--from-byte", type=int, metavar="N", help="Go on inside the first entry.")
@jsonl_option
@capture_option
@shared_options
@pass_invocation
def read_command(
    invocation: Invocation,
    words: tuple[str, ...],
    through_ref: str | None,
    kinds: tuple[str, ...],
    observer: str | None,
    workspace_url: str | None,
    workspace: str | None,
    **asked: Any,
) -> None:
    """Read entries of a worker's session as it stands now.

    SUBJECT REF… or SUBJECT:REF, as a search or an overview prints it.
    """
    place = place_of(words)
    refs: dict[str, Any] = {"entry_ref": place.refs[0]}
    if through_ref is not None:
        if len(place.refs) > 1:
            raise UsageError("--through goes with one REF", hint="give the first ref of the range")
        refs = _range(place.refs[0], through_ref)
    elif len(place.refs) > 1:
        refs = {"entry_refs": place.refs}
    given = {"workspace_url": workspace_url, "workspace": workspace}
    reply = _caller(invocation, observer, given)(
        "ReadSessionEntry", subject=subject_in(place.session).model_dump(),
        kind=list(kinds) or None, **refs, **asked,
    )  # fmt: skip
    print_entries(invocation, reply, name=place.session, origin=_origin(observer))


# ---------------------------------------------------------------- calling


def _caller(invocation: Invocation, observer: str | None, workspace: dict[str, Any]) -> Call:
    """Calls tools of worker-observation; an error object is raised as what it stands for."""
    if not observer:
        raise UsageError("no observer was named", hint="name one with --observer")
    host = local_host(invocation, observer=observer, **workspace)
    registry = host.registry("worker-observation")

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        reply = registry.call(name, arguments)
        if reply.is_error:
            raise _error(reply.value["error"])
        return dict(reply.value)

    return call


def _error(said: dict[str, str]) -> SessiondexError:
    """The error that an error object stands for."""
    pending: list[type[SessiondexError]] = [SessiondexError]
    for each in pending:
        if each.kind == said["kind"] and each is not SessiondexError:
            return each(said["message"], hint=said["hint"])
        pending += each.__subclasses__()
    return InternalError(said["message"], hint=said["hint"])


def _active_sessions(invocation: Invocation, limit: int | None) -> dict[str, Any]:
    """The active local sessions in the form of a list of subjects, for the host alone."""
    from sessiondex.features.local_sessions import LocalAgentObservationProvider
    from sessiondex.limits import SUBJECTS
    from sessiondex.query.entry_view import shown_field
    from sessiondex.query.reply import clamp

    class Everyone:
        """The grants of one who may see everything on this machine: the host."""

        def is_granted(self, observer: str, subject: Subject, *, workspace: str = "") -> bool:
            return True

        def granted_subjects(self, observer: str, *, workspace: str = "") -> list[Subject]:
            return [each.subject for each in sessions.active()]

    sessions = local_host(invocation).local_sessions()
    listed = LocalAgentObservationProvider(
        sessions, observer="host", grants=Everyone()
    ).list_sessions()
    most = clamp(SUBJECTS, limit).value
    found = list(listed.subjects)
    shown = [
        {
            "subject": each.subject.model_dump(),
            "display_name": shown_field(each.display_name),
            "relation": each.relation,
            "status": each.status,
        }
        for each in found[:most]
    ]
    return {
        "subjects": shown, "returned": len(shown),
        "has_more": listed.has_more or len(found) > most, "unavailable": [], "notes": [],
    }  # fmt: skip


def _subject(value: dict[str, Any]) -> Subject:
    from sessiondex.features.subjects import parse_subject

    return parse_subject(value)


def _range(from_ref: str | None, through_ref: str | None) -> dict[str, Any]:
    return {"from": ref_in(from_ref), "through": ref_in(through_ref)}


def _origin(observer: str | None) -> str:
    return f"as {observer} may see it now"
