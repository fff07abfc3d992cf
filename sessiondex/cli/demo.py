"""`sessiondex demo`: invented sessions of every format, indexed, searched and read."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from shlex import join, quote

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import option, pass_invocation, shared_options

STEPS = (
    ("index", "--home", "{home}", "{home}"),
    ("sessions",),
    ("search", "high water"),
    ("search", "utc_offset_minutes", "--literal", "--kind", "tool"),
    ("search", "満潮", "--literal"),
    ("overview", "5f0c2a7e-3d41-4b8e-9a66-1c0de7a5b001"),
    ("read", "5f0c2a7e-3d41-4b8e-9a66-1c0de7a5b001:E0"),
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
    from sessiondex.cli.demo_sessions import write_demo_sessions

    output = invocation.output
    temporary = tempfile.TemporaryDirectory(prefix="sessiondex-demo-")
    with nullcontext(folder) if folder else temporary as name:
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
            finally:
                around.close()
        if folder:
            output.line()
            output.line(f"kept: sessiondex --library {quote(str(library))} search WORDS")
