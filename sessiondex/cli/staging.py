"""`sessiondex staging`: candidates that extract workers staged, until someone closes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sessiondex.cli.evidence import print_verdicts
from sessiondex.cli.files import written_file
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import short_ref
from sessiondex.cli.options import (
    jsonl_option,
    option,
    pass_invocation,
    refresh_options,
    shared_options,
)
from sessiondex.cli.output import Column
from sessiondex.cli.texts import columns, count_of, one_line, printable
from sessiondex.errors import Incomplete

if TYPE_CHECKING:
    from sessiondex.features.staging.folder import StagingFolder
    from sessiondex.features.staging.record import StagingRecord


@click.group("staging")
def staging_command() -> None:
    """Look at staged memory candidates, export, verify and close them."""


@staging_command.command("list")
@option("--closed", is_flag=True, help="Those that were closed instead of those that wait.")
@jsonl_option
@shared_options
@pass_invocation
def list_command(invocation: Invocation, closed: bool) -> None:
    """List the candidates that wait, and the files that cannot be read as one."""
    from sessiondex.features.staging.folder import Listing

    output, staging = invocation.output, _staging(invocation)
    found = staging.closed() if closed else staging.waiting()
    records = [record.masked() for record in found.records]
    if output.is_jsonl:
        for record in records:
            output.json_line(record.to_json())
        return
    if output.is_json:
        output.json(Listing(records, found.unreadable).to_json())
        return
    output.table(
        [Column("id"), Column("kind"), Column("authority"), Column("claim", "wrap")],
        [
            (
                record.id, record.kind, str(record.extensions.get("authority", "")),
                one_line(record.claim),
            )
            for record in records
        ],
    )  # fmt: skip
    for each in found.unreadable:
        output.message(f"unreadable: {printable(each.file)}: {each.reason}")
    if not records:
        output.message("no candidate was closed" if closed else "no candidate waits")


@staging_command.command("show")
@click.argument("id", metavar="ID")
@shared_options
@pass_invocation
def show_command(invocation: Invocation, id: str) -> None:
    """Show one candidate with its evidence, waiting or closed."""
    output, record = invocation.output, _staging(invocation).show(id).masked()
    if not output.is_for_people:
        output.json(record.to_json())
        return
    resolution = record.extensions.get("resolution")
    output.line(output.styled(columns((record.id, record.kind)), "head"))
    output.line(printable(record.claim))
    output.line(f"useful: {printable(record.why_useful)}")
    if record.staleness:
        output.line(f"until: {printable(record.staleness)}")
    if isinstance(resolution, dict):
        said = f"closed: {resolution.get('outcome')}: {resolution.get('reason')}"
        output.line(printable(said))
    for ref, evidence in zip(record.source_refs, record.evidence, strict=True):
        place = f"{printable(ref.session_id)}:{short_ref(ref.evidence_id)}"
        output.line(columns((output.styled(place, "name"), one_line(ref.label))))
        output.line(f"    {one_line(evidence.excerpt or evidence.summary)}")


@staging_command.command("close")
@click.argument("id", metavar="ID")
@click.argument("outcome", metavar="OUTCOME")
@option("--reason", required=True, metavar="TEXT", help="Why.")
@shared_options
@pass_invocation
def close_command(invocation: Invocation, id: str, outcome: str, reason: str) -> None:
    """Close a candidate: it moves to the resolutions, and nothing else is written.

    OUTCOME is applied, discarded, invalid, duplicate or already_covered.
    """
    from sessiondex.query.times import format_time

    output = invocation.output
    now = int(invocation.surroundings.now().timestamp() * 1000)
    record = _staging(invocation).close(
        id,
        outcome,  # type: ignore[arg-type]
        reason,
        closed_at=format_time(now) or "",
    )
    if output.is_for_people:
        output.line(f"closed: {record.id} as {outcome}")
    else:
        output.json(record.masked().to_json())


@staging_command.command("verify")
@click.argument("ids", nargs=-1, metavar="[ID...]")
@refresh_options
@jsonl_option
@shared_options
@pass_invocation
def verify_command(invocation: Invocation, ids: tuple[str, ...]) -> int:
    """Check what candidates cite against the library and the source; all that wait, or some.

    Exits as 'verify' does: 3 if something is missing, 5 if changed.
    """
    staging = _staging(invocation)
    records: list[StagingRecord] = []
    if ids:
        records = [staging.show(id) for id in ids]
    else:
        waiting = staging.waiting()
        records = waiting.records
        for each in waiting.unreadable:
            invocation.output.message(f"unreadable: {printable(each.file)}: {each.reason}")
    return print_verdicts(invocation, [record.to_bytes() for record in records])


@staging_command.command("export")
@option("--closed", is_flag=True, help="Those that were closed instead of those that wait.")
@option("--run", "run_id", metavar="ID", help="Only what this extract run staged.")
@option("--output", "target", metavar="FILE", help="Write to this file instead of stdout.")
@shared_options
@pass_invocation
def export_command(
    invocation: Invocation, closed: bool, run_id: str | None, target: str | None
) -> int:
    """Write staging records as JSONL, each whole, in the order of staging.

    Exits with 4 if a file could not be read as a record; nothing of it is lost or written.
    """
    staging, output = _staging(invocation), invocation.output
    found = staging.closed() if closed else staging.waiting()
    records = [each for each in found.records if run_id is None or each.extract_run_id == run_id]
    with written_file(target) as file:
        for record in records:
            file.write(record.masked().to_bytes())
    for each in found.unreadable:
        output.message(f"unreadable: {printable(each.file)}: {each.reason}")
    if target is not None and output.is_for_people:
        output.message(f"{count_of(len(records), 'record')} in {target}")
    elif target is not None:
        written = {"records": len(records), "file": target}
        unreadable = [each._asdict() for each in found.unreadable]
        output.json(written | ({"unreadable": unreadable} if unreadable else {}))
    return Incomplete.exit_code if found.unreadable else 0


def _staging(invocation: Invocation) -> StagingFolder:
    from sessiondex.features.staging.folder import StagingFolder

    return StagingFolder.beside(invocation.library_path)
