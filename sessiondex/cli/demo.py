"""`sessiondex demo`: invented sessions of every format, indexed, searched and read."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from shlex import join, quote
from typing import Any, Final

import click

from sessiondex.cli.demo_sessions import MAIN_ID, write_demo_sessions
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import option, pass_invocation, shared_options
from sessiondex.errors import UsageError

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
    if folder and Path(folder).exists() and any(Path(folder).iterdir()):
        raise UsageError(f"{folder} is not empty", hint="name a new folder")
    if not output.is_for_people:
        output.json(_replies(invocation, folder))
        return
    with _kept_or_temporary(folder) as name:
        home, library = Path(name) / "home", Path(name) / "library"
        paths = write_demo_sessions(home)
        output.line(f"{len(paths)} invented session files in {home}")
        for step in STEPS:
            words = [word.format(home=home) for word in step]
            output.line()
            output.line(output.styled(f"$ sessiondex {join(words)}", "head"))
            around = _run_with(invocation, library, color=invocation.color)
            try:
                call(words, around)
                sys.stdout.flush()  # what follows on stderr belongs behind it
            finally:
                around.close()
        if folder:
            output.line()
            output.line(f"kept: sessiondex --library {quote(str(library))} search WORDS")


def _run_with(invocation: Invocation, library: Path, **options: Any) -> Invocation:
    around = Invocation(invocation.surroundings)
    for name, value in (("library", str(library)), *options.items()):
        around.give(name, value, is_option=True, environment="")
    return around


def _replies(invocation: Invocation, folder: str | None) -> dict[str, Any]:
    """What each step replies, as one object."""
    from sessiondex.cli.application import call

    steps: list[dict[str, Any]] = []
    with _kept_or_temporary(folder) as name:
        home, library = Path(name) / "home", Path(name) / "library"
        count = len(write_demo_sessions(home))
        for step in STEPS:
            words = [word.format(home=home) for word in step]
            around = _run_with(invocation, library, json=True)
            try:
                with redirect_stdout(StringIO()) as printed:
                    call(words, around)
            finally:
                around.close()
            steps.append({"command": words, "reply": json.loads(printed.getvalue())})
    return {"files": count, "folder": folder, "steps": steps}


def _kept_or_temporary(folder: str | None) -> AbstractContextManager[str]:
    if folder:
        return nullcontext(folder)
    return tempfile.TemporaryDirectory(prefix="sessiondex-demo-")
