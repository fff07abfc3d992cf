"""`sessiondex export`: entries as files for other programs, or for reading."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    option,
    pass_invocation,
    reveal_option,
    shared_options,
    where_options,
)
from sessiondex.cli.texts import count_of
from sessiondex.errors import Failed, UsageError

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture

BINARY = ("arrow", "parquet")


@click.command("export", cls=FreeWordsCommand)
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@option("--format", "form", type=click.Choice(("jsonl", "arrow", "parquet", "markdown")),
        help="jsonl by default, or what the name of --output ends in.")  # fmt: skip
@option("--output", "target", metavar="FILE", help="Write to this file instead of stdout.")
@option("--hits", metavar="QUERY", help="Only entries in which this literal text stands.")
@where_options
@reveal_option
@shared_options
@pass_invocation
def export_command(
    invocation: Invocation,
    sessions: tuple[str, ...],
    form: str | None,
    target: str | None,
    hits: str | None,
    agents: tuple[str, ...],
    projects: tuple[str, ...],
    branches: tuple[str, ...],
    models: tuple[str, ...],
    here: bool,
    reveal: bool,
) -> None:
    """Write entries as JSONL, Arrow, Parquet or Markdown.

    Of the named sessions, or of all that the filters let through; each with its whole text.
    """
    from sessiondex.query.export import export_hits, session_rows, write_export
    from sessiondex.query.session_list import SessionFilter

    form = form or _form_of(target)
    if form in BINARY and target is None and sys.stdout.isatty():
        raise UsageError(f"{form} is not for a terminal", hint="name a file with --output")
    shown = invocation.reveal(reveal)

    def captures() -> Iterator[Capture]:
        if sessions:
            for session in sessions:
                yield invocation.named(split_word(session)[0]).capture
            return
        scope = invocation.scope(projects, here=here)
        wanted = SessionFilter(
            agents=agents, projects=scope.projects, branches=branches, models=models
        )
        snapshot = invocation.snapshot
        for row in snapshot.rows(newest_first=False):
            if wanted.admits(row):
                yield snapshot.capture(row.session, live=False)

    def rows() -> Iterator[dict[str, Any]]:
        for capture in captures():
            if hits is None:
                yield from session_rows(capture, reveal=shown)
            else:
                yield from export_hits(capture, hits, reveal=shown)

    with _opened(target) as file:
        count = write_export(rows(), file, form)
    output = invocation.output
    if target is None:
        return
    if output.is_for_people:
        output.message(f"{count_of(count, 'entry', 'entries')} in {target}")
    else:
        output.json({"entries": count, "file": target, "format": form})


def _form_of(target: str | None) -> Any:
    ending = Path(target).suffix.lower() if target else ""
    return {".arrow": "arrow", ".parquet": "parquet", ".md": "markdown"}.get(ending, "jsonl")


@contextmanager
def _opened(target: str | None) -> Iterator[IO[bytes]]:
    """Standard output, or a new private file that takes its name only when it is whole."""
    if target is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = f"{target}.unfinished"
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise Failed(f"{target} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(unfinished, target)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
