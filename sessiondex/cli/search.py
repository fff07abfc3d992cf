"""`sessiondex search`: over the library, or one session."""

from __future__ import annotations

from typing import Any

import click

from sessiondex.cli.hits import print_all, print_page
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import ShortNames, ref_in, split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    capture_option,
    entry_options,
    match_options,
    option,
    page_options,
    pass_invocation,
    reveal_option,
    shared_options,
    where_options,
)


@click.command("search", cls=FreeWordsCommand)
@click.argument("query", metavar="QUERY")
@option("--session", metavar="S", help="Only this session: an id, the beginning of one, a file.")
@match_options
@entry_options
@where_options
@option("--copies", is_flag=True, help="Show copies in other sessions as hits of their own.")
@page_options
@capture_option
@reveal_option
@shared_options
@pass_invocation
def search_command(
    invocation: Invocation,
    query: str,
    session: str | None,
    agents: tuple[str, ...],
    projects: tuple[str, ...],
    branches: tuple[str, ...],
    models: tuple[str, ...],
    here: bool,
    copies: bool,
    everything: bool,
    reveal: bool,
    **asked: Any,
) -> None:
    """Search the library, or one session.

    Over the library QUERY is ranked: words, "phrases", prefix*, -without, OR, field:value. Inside
    one session it is literal text. A QUERY that begins with a dash is taken as it is; one that is
    also an option goes behind '--'.
    """
    from sessiondex.query.search import iterate, search

    shown = invocation.reveal(reveal)
    if session is not None:
        named = invocation.named(split_word(session)[0])
        where: Any = named.capture
        request = search_request(invocation, query=query, **asked)
        name_of = lambda _: named.name  # noqa: E731
        scope, origin = f"session {named.name}", named.origin
    else:
        where = invocation.snapshot
        place = invocation.scope(projects, here=here)
        request = search_request(
            invocation, query=query, agent=agents, project=place.projects, branch=branches,
            model=models, copies=copies, **asked,
        )  # fmt: skip
        name_of = ShortNames(where).of
        scope, origin = place.name, invocation.freshness()
    if everything:
        hits = iterate(where, request, reveal=shown)
        print_all(
            invocation, hits, field="hits", name_of=name_of, scope=scope, origin=origin, head={}
        )
        return
    page = search(where, request, reveal=shown)
    print_page(invocation, page, field="hits", name_of=name_of, scope=scope, origin=origin)


def search_request(invocation: Invocation, **asked: Any) -> Any:
    """What was asked for, with its times and refs read."""
    from sessiondex.query.request import SearchRequest

    return SearchRequest(
        kind=asked.pop("kinds"),
        tool_name=asked.pop("tool_names"),
        from_ref=ref_in(asked.pop("from_ref")),
        through_ref=ref_in(asked.pop("through_ref")),
        since=invocation.time(asked.pop("since")),
        until=invocation.time(asked.pop("until"), is_end=True),
        **asked,
    )
