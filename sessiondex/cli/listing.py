"""`sessiondex list`: the entries of a session, one line each."""

from __future__ import annotations

from typing import Any

import click

from sessiondex.cli.hits import print_all, print_page
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    capture_option,
    entry_options,
    fresh_option,
    page_options,
    pass_invocation,
    reveal_option,
    shared_options,
)
from sessiondex.cli.search import search_request


@click.command("list", cls=FreeWordsCommand)
@click.argument("session", metavar="SESSION")
@entry_options
@fresh_option
@page_options
@capture_option
@reveal_option
@shared_options
@pass_invocation
def list_command(
    invocation: Invocation, session: str, everything: bool, reveal: bool, **asked: Any
) -> None:
    """List the entries of a session, one line each.

    With the filters of 'search'.
    """
    from sessiondex.query.search import iterate, search

    named = invocation.named(split_word(session)[0])
    request = search_request(invocation, **asked)
    shown = invocation.reveal(reveal)
    known: dict[str, Any] = {
        "field": "lines", "name_of": lambda _: named.name, "scope": f"session {named.name}",
        "origin": named.origin,
    }  # fmt: skip
    if everything:
        head = {"session": named.capture.session, "capture": named.capture.token}
        hits = iterate(named.capture, request, reveal=shown)
        print_all(invocation, hits, head=head, **known)
    else:
        print_page(invocation, search(named.capture, request, reveal=shown), **known)
