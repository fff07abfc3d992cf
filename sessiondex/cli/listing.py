"""`sessiondex list`: the entries of a session, one line each."""

from __future__ import annotations

from typing import Any

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    capture_option,
    copies_option,
    entry_options,
    page_options,
    pass_invocation,
    reveal_option,
    shared_options,
    where_options,
)
from sessiondex.cli.search import print_session_hits


@click.command("list", cls=FreeWordsCommand)
@click.argument("session", metavar="SESSION")
@entry_options
@where_options
@copies_option
@page_options
@capture_option
@reveal_option
@shared_options
@pass_invocation
def list_command(invocation: Invocation, session: str, **asked: Any) -> None:
    """List the entries of a session, one line each.

    With the filters of 'search'.
    """
    named = invocation.named(split_word(session)[0])
    print_session_hits(invocation, named, field="lines", **asked)
