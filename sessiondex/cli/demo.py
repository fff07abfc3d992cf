"""`sessiondex demo`: invented sessions of every format, indexed, searched and read."""

from __future__ import annotations

import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shlex import join, quote
from typing import Final

import click

from sessiondex.cli.demo_sessions import MAIN_ID, write_demo_sessions
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import option, pass_invocation, shared_options

STEPS: Final = (
    ("index", "--home", "{home}", "{home}"),
    ("sessions",),
    ("search", "high water"),
    ("search", "utc_offset_minutes", "--literal", "--kind", "tool"),
    ("search", "満潮", "--literal"),
    ("overview", MAIN_ID[:4]),
    ("read", f"{MAIN_ID[:4]}:E9", "--context", "1"),
    ("stats",),
)


@click.command("demo")
@option("--folder", metavar="DIR", help="Keep sessions and library in this new folder.")
@shared_options
@pass_invocation
def demo_command(invocation: Invocation, folder: str | None) -> None:
    """Index, search and read a few invented sessions.

    Touches neither your sessions nor your library; everything is removed at the end, unless
    --folder says where to keep it.
    """
    from sessiondex.cli.application import call

    output = invocation.output
    with _kept_or_temporary(folder) as name:
        home, library = Path(name) / "home", Path(name) / "library"
        paths = write_demo_sessions(home)
        output.line(f"{len(paths)} invented session files in {home}")
        for step in STEPS:
            words = [word.format(home=home) for word in step]
            output.line()
            output.line(output.styled(f"$ sessiondex {join(words)}", "head"))
            around = Invocation(invocation.surroundings)
            around.give("library", str(library), is_option=True, environment="")
            around.give("color", invocation.color, is_option=True, environment="")
            try:
                call(words, around)
                sys.stdout.flush()  # what follows on stderr belongs behind it
            finally:
                around.close()
        if folder:
            output.line()
            output.line(f"kept: sessiondex --library {quote(str(library))} search WORDS")


def _kept_or_temporary(folder: str | None) -> AbstractContextManager[str]:
    if folder:
        return nullcontext(folder)
    return tempfile.TemporaryDirectory(prefix="sessiondex-demo-")
