"""`sessiondex sessions`: the sessions of the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import ShortNames
from sessiondex.cli.options import (
    page_options,
    pass_invocation,
    reveal_option,
    shared_options,
    time_options,
    where_options,
)
from sessiondex.cli.output import Column
from sessiondex.cli.texts import columns, count_of, local_time, one_line


@click.command("sessions")
@click.argument("words", nargs=-1, metavar="[WORDS]...")
@where_options
@time_options
@page_options
@reveal_option
@shared_options
@pass_invocation
def sessions_command(
    invocation: Invocation,
    words: tuple[str, ...],
    agents: Sequence[str],
    projects: Sequence[str],
    branches: Sequence[str],
    models: Sequence[str],
    here: bool,
    since: str | None,
    until: str | None,
    limit: int | None,
    cursor: str | None,
    everything: bool,
    reveal: bool,
) -> None:
    """List the sessions of the library.

    Newest first; with WORDS those whose title, id, project, branch, agent or model has all words.
    """
    from sessiondex.query.session_list import SessionFilter, iterate_sessions, list_sessions

    output, snapshot = invocation.output, invocation.snapshot
    scope = invocation.scope(projects, here=here)
    wanted = SessionFilter(
        words=" ".join(words), agents=agents, projects=scope.projects, branches=branches,
        models=models, since=invocation.time(since), until=invocation.time(until, is_end=True),
    )  # fmt: skip
    reveal = invocation.reveal(reveal)
    if everything:
        found = iterate_sessions(snapshot, wanted, reveal=reveal)
        if output.is_json and not output.is_jsonl:
            tail = {"has_more": False, "next_cursor": None, "notes": []}
            output.json_stream({}, "sessions", found, tail)
        elif output.is_jsonl:
            for view in found:
                output.json_line(view)
        else:
            _show(invocation, found)
        return
    reply = list_sessions(snapshot, wanted, limit=limit, cursor=cursor, reveal=reveal)
    if output.is_jsonl:
        for view in reply["sessions"]:
            output.json_line(view)
    elif output.is_json:
        output.json(reply)
    else:
        _show(invocation, reply["sessions"])
        output.notes(reply)
        parts = [count_of(reply["returned"], "session"), scope.name, invocation.freshness()]
        if reply["has_more"]:
            parts.append(f"more with --cursor {reply['next_cursor']} or --all")
        output.message(", ".join(part for part in parts if part))


def _show(invocation: Invocation, views: Any) -> None:
    output = invocation.output
    names = ShortNames(invocation.snapshot)
    zone = invocation.surroundings.zone

    def cells(view: dict[str, Any]) -> list[str]:
        return [
            names.of(view["session"]),
            local_time(view["ended"], zone),
            view["agent"],
            one_line(view["project"] or ""),
            one_line(view["branch"] or ""),
            str(view["turns"]),
            f"{sum(view['entries'].values()):,}",
            one_line(view["title"] or ""),
        ]

    with output.paged():
        if output.is_terminal:
            shown = [
                Column("session"), Column("ended"), Column("agent"), Column("project", "cut"),
                Column("turns", is_number=True), Column("entries", is_number=True),
                Column("title", "cut"),
            ]  # fmt: skip
            rows = ((a, b, c, d.rpartition("/")[2], *f) for a, b, c, d, _, *f in map(cells, views))
            output.table(shown, rows)
            return
        for view in views:
            name, ended, agent, project, branch, turns, entries, title = cells(view)
            output.line(columns((
                name, ended, agent, project, branch, f"turns {turns}", f"entries {entries}", title,
            )))  # fmt: skip
