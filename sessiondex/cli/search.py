"""`sessiondex search`: over the library, or one session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sessiondex.cli.hits import print_all, print_page
from sessiondex.cli.invocation import Invocation, Named, Scope
from sessiondex.cli.names import ShortNames, ref_in, split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    capture_option,
    copies_option,
    entry_options,
    match_options,
    option,
    page_options,
    pass_invocation,
    reveal_option,
    shared_options,
    where_options,
)

if TYPE_CHECKING:
    from sessiondex.query.request import SearchRequest


@click.command("search", cls=FreeWordsCommand)
@click.argument("query", metavar="QUERY")
@option("--session", metavar="S", help="Only this session: an id, the beginning of one, a file.")
@match_options
@entry_options
@where_options
@copies_option
@page_options
@capture_option
@reveal_option
@shared_options
@pass_invocation
def search_command(
    invocation: Invocation,
    query: str,
    session: str | None,
    everything: bool,
    reveal: bool,
    **asked: Any,
) -> None:
    """Search the library, or one session.

    Over the library QUERY is ranked: words, "phrases", prefix*, -without, OR, field:value. Inside
    one session it is literal text. A QUERY that begins with a dash is taken as it is; one that is
    also an option goes behind '--'.
    """
    if session is None:
        print_library_hits(invocation, query, everything=everything, reveal=reveal, **asked)
        return
    named = invocation.named(split_word(session)[0])
    print_session_hits(
        invocation, named, field="hits", query=query, everything=everything, reveal=reveal, **asked
    )


def print_library_hits(
    invocation: Invocation, query: str, *, everything: bool, reveal: bool, **asked: Any
) -> None:
    """Searches the library and prints a page of hits, or all."""
    from sessiondex.query.search import iterate, search

    snapshot = invocation.snapshot
    request, scope = search_request(invocation, query=query, **asked)
    shown: dict[str, Any] = {
        "field": "hits", "name_of": ShortNames(snapshot).of, "scope": scope.name,
        "origin": invocation.freshness(),
    }  # fmt: skip
    reveal = invocation.reveal(reveal)
    if everything:
        hits = iterate(snapshot, request, reveal=reveal)
        is_ranked = request.order == "relevance" or (
            request.order is None and request.match in (None, "ranked")
        )
        print_all(invocation, hits, head={}, is_ranked=is_ranked, **shown)
    else:
        print_page(invocation, search(snapshot, request, reveal=reveal), **shown)


def print_session_hits(
    invocation: Invocation, named: Named, *, field: str, everything: bool, reveal: bool,
    **asked: Any,
) -> None:  # fmt: skip
    """Searches or lists one session and prints a page, or all."""
    from sessiondex.query.search import iterate, search

    capture = named.capture
    request, _ = search_request(invocation, **asked)
    shown: dict[str, Any] = {
        "field": field, "name_of": lambda _: named.name, "scope": f"session {named.name}",
        "origin": named.origin,
    }  # fmt: skip
    reveal = invocation.reveal(reveal)
    if everything:
        head = {"session": capture.session, "capture": capture.token}
        print_all(invocation, iterate(capture, request, reveal=reveal), head=head, **shown)
    else:
        print_page(invocation, search(capture, request, reveal=reveal), **shown)


def search_request(
    invocation: Invocation, *, projects: Sequence[str], here: bool, **asked: Any
) -> tuple[SearchRequest, Scope]:
    """What was asked for, with its times, refs and folders read, and where."""
    from sessiondex.query.request import SearchRequest

    scope = invocation.scope(projects, here=here)
    request = SearchRequest(
        project=scope.projects,
        kind=asked.pop("kinds"),
        tool_name=asked.pop("tool_names"),
        agent=asked.pop("agents"),
        branch=asked.pop("branches"),
        model=asked.pop("models"),
        from_ref=ref_in(asked.pop("from_ref")),
        through_ref=ref_in(asked.pop("through_ref")),
        since=invocation.time(asked.pop("since")),
        until=invocation.time(asked.pop("until"), is_end=True),
        **asked,
    )
    return request, scope
