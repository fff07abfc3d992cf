"""`sessiondex compact`: a summary of a session, written by a model from bounded reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sessiondex.cli.hosting import extra, report_fault
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.modeling import (
    asked_budgets,
    budget_options,
    ended_by_signals,
    live_line,
    loop_host,
    model_options,
    open_cli_model,
)
from sessiondex.cli.names import ref_in, split_word
from sessiondex.cli.options import (
    fresh_option,
    option,
    pass_invocation,
    range_options,
    shared_options,
)
from sessiondex.cli.texts import byte_size, count_of, printable

if TYPE_CHECKING:
    from sessiondex.features.compaction_result import CompactionResult


@click.command("compact")
@click.argument("session", metavar="SESSION")
@model_options
@range_options
@option("--max-bytes", type=int, metavar="N", help="Largest summary (12288; at most 49152).")
@budget_options
@fresh_option
@shared_options
@pass_invocation
def compact_command(
    invocation: Invocation,
    session: str,
    model: str | None,
    base_url: str | None,
    from_ref: str | None,
    through_ref: str | None,
    max_bytes: int | None,
    max_turns: int | None,
    max_tokens: int | None,
    max_seconds: int | None,
) -> int:
    """Summarize a session with a model, from bounded reads.

    The model sees the latest messages and may search and read the session; nothing is written.
    Exits with 0 and the summary, 4 where the run came to no end, 1 where it failed.
    """
    budgets, notes = asked_budgets(
        max_turns=max_turns, max_tokens=max_tokens, max_seconds=max_seconds
    )
    opened = open_cli_model(model, base_url)
    capture = invocation.named(split_word(session)[0]).capture
    with extra("extract"):
        from sessiondex.features.compaction import Compaction
    with live_line(invocation) as progress:
        compaction = Compaction(
            capture, opened, loop_host(progress), model_name=model or "",
            max_bytes=max_bytes, from_ref=ref_in(from_ref), through_ref=ref_in(through_ref),
            budgets=budgets, on_fault=report_fault,
        )  # fmt: skip
        with ended_by_signals(compaction.cancel):
            result = compaction.run()
    notes += [compaction.note] if compaction.note else []
    _show(invocation, result, [note.to_json() for note in notes])
    return result.exit_code


def _show(invocation: Invocation, result: CompactionResult, notes: list[dict[str, str]]) -> None:
    output, report = invocation.output, result.report
    if not output.is_for_people:
        output.json(result.to_json() | {"notes": notes})
        return
    output.notes({"notes": notes})
    if result.summary is not None:
        output.line(printable(result.summary))
    else:
        why = f"{result.reason}: {result.detail}" if result.detail else result.reason
        output.message(f"no summary: {result.outcome} ({why})")
    if report.unseen_refs:
        output.message(f"note: cited and never shown: {', '.join(report.unseen_refs[:20])}")
    output.message(
        ", ".join((
            count_of(report.turns, "turn"),
            count_of(report.calls, "call"),
            f"{byte_size(report.shown_bytes)} shown",
            count_of(report.input_tokens + report.output_tokens, "token"),
            f"{report.seconds:.1f} s",
        ))
    )  # fmt: skip
