"""`sessiondex export`: entries as files for other programs, or for reading."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sessiondex.cli.files import written_file
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    match_options,
    option,
    pass_invocation,
    reveal_option,
    shared_options,
    where_options,
)
from sessiondex.cli.texts import count_of
from sessiondex.errors import UsageError

if TYPE_CHECKING:
    from sessiondex.query.export import ExportFormat

BINARY: Final = ("arrow", "parquet")

ENDINGS: Final[dict[str, ExportFormat]] = {
    ".arrow": "arrow", ".parquet": "parquet", ".md": "markdown",
}  # fmt: skip


@click.command("export", cls=FreeWordsCommand)
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@option("--format", "form", type=click.Choice(("jsonl", "arrow", "parquet", "markdown")),
        help="jsonl by default, or what the name of --output ends in.")  # fmt: skip
@option("--output", "target", metavar="FILE", help="Write to this file instead of stdout.")
@option("--hits", metavar="QUERY", help="Only the hits of this query, as 'search' finds them.")
@match_options
@where_options
@reveal_option
@shared_options
@pass_invocation
def export_command(
    invocation: Invocation,
    sessions: tuple[str, ...],
    form: ExportFormat | None,
    target: str | None,
    hits: str | None,
    match: Any,
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
    from sessiondex.query.export import hit_rows, session_rows, write_export
    from sessiondex.query.request import SearchRequest
    from sessiondex.query.session_list import SessionFilter

    written: ExportFormat = form or _form_of(target)
    if written in BINARY and target is None and sys.stdout.isatty():
        raise UsageError(f"{written} is not for a terminal", hint="name a file with --output")
    shown = invocation.reveal(reveal)

    def rows() -> Iterator[dict[str, Any]]:
        if sessions:
            for session in sessions:
                capture = invocation.named(split_word(session)[0]).capture
                if hits is None:
                    yield from session_rows(capture, reveal=shown)
                else:
                    request = SearchRequest(query=hits, match=match)
                    yield from hit_rows(capture, request, reveal=shown)
            return
        snapshot, scope = invocation.snapshot, invocation.scope(projects, here=here)
        if hits is not None:
            request = SearchRequest(
                query=hits, match=match, agent=agents, project=scope.projects, branch=branches,
                model=models,
            )  # fmt: skip
            yield from hit_rows(snapshot, request, reveal=shown)
            return
        wanted = SessionFilter(
            agents=agents, projects=scope.projects, branches=branches, models=models
        )
        for row in snapshot.rows(newest_first=False):
            if wanted.admits(row):
                capture = snapshot.capture(row.session, live=False)
                yield from session_rows(capture, reveal=shown)

    with written_file(target) as file:
        count = write_export(rows(), file, written)
    output = invocation.output
    if target is None:
        return
    if output.is_for_people:
        output.message(f"{count_of(count, 'entry', 'entries')} in {target}")
    else:
        output.json({"entries": count, "file": target, "format": written})


def _form_of(target: str | None) -> ExportFormat:
    ending = Path(target).suffix.lower() if target else ""
    return ENDINGS.get(ending, "jsonl")
