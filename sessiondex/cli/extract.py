"""`sessiondex extract`: memory candidates from sessions, by a model that explores them."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from sessiondex.cli.hosting import extra, report_fault, state_of
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
    all_option,
    fresh_option,
    option,
    pass_invocation,
    range_options,
    shared_options,
)
from sessiondex.cli.output import Column
from sessiondex.cli.texts import byte_size, columns, count_of, local_time, printable
from sessiondex.errors import Busy, InvalidArgument, SessiondexError, UsageError

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from sessiondex.features.extract.local import LocalExtractor, SessionStatus
    from sessiondex.features.extract.report import ExtractResult
    from sessiondex.features.loop.budget import Budgets
    from sessiondex.features.services import RunRange
    from sessiondex.indexer.capture import Capture

_RUN: Final = "run"


class ExtractGroup(click.Group):
    """`extract SESSION` is `extract run SESSION`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


@click.group("extract", cls=ExtractGroup)
def extract_command() -> None:
    """Stage memory candidates from sessions, and see how far that is.

    'extract SESSION' is short for 'extract run SESSION', whose --help shows the options.
    """


@extract_command.command(_RUN)
@click.argument("session", required=False, metavar="[SESSION]")
@option("--due", is_flag=True, help="Every session of the library that is due.")
@option("--threshold", type=int, metavar="N",
        help="Tokens of growth that make a session due (50000); 0 turns it off.")  # fmt: skip
@option("--limit", type=int, metavar="N", help="Of those that are due at most so many (all).")
@model_options
@range_options
@budget_options
@option("--dry-run", is_flag=True, help="Show what would be sent; ask no model, write nothing.")
@fresh_option
@shared_options
@pass_invocation
def run_command(
    invocation: Invocation,
    session: str | None,
    due: bool,
    threshold: int | None,
    limit: int | None,
    from_ref: str | None,
    through_ref: str | None,
    dry_run: bool,
    **options: Any,
) -> int:
    """Let a model explore a session and stage candidates with their evidence.

    From where extraction came to, or from a range. Exits with 0 for staged and no_candidates, 4
    for incomplete, 1 for failed.
    """
    if due and session is not None:
        raise UsageError("SESSION and --due exclude each other", hint="leave one of them out")
    if not due and session is None:
        raise UsageError("one of SESSION and --due is needed", hint="name a session, or --due")
    if dry_run and invocation.option("fresh"):
        raise UsageError("--fresh writes the library", hint="leave it out of a dry run")
    if session is not None:
        if threshold is not None or limit is not None:
            raise UsageError("--threshold and --limit go with --due", hint="leave them out")
        return _run_one(invocation, session, from_ref, through_ref, dry_run, options)
    if from_ref is not None or through_ref is not None:
        raise UsageError("--from and --through go with SESSION", hint="leave them out")
    if limit is not None and limit < 1:
        raise InvalidArgument(f"limit is {limit}", hint="expected a whole number above 0")
    return _run_due(invocation, threshold, limit, dry_run, options)


# ---------------------------------------------------------------- one session


def _run_one(
    invocation: Invocation,
    session: str,
    from_ref: str | None,
    through_ref: str | None,
    dry_run: bool,
    options: dict[str, Any],
) -> int:
    from sessiondex.features.extract.local import range_of

    extractor = _extractor(invocation, is_read=dry_run)
    capture = extractor.capture(split_word(session)[0])
    asked = range_of(capture, extractor.ledger, ref_in(from_ref), ref_in(through_ref))
    if dry_run:
        _show_request(invocation, extractor, capture, asked)
        return 0
    output, worker = invocation.output, _Worker.of(**options)
    result = _extract(invocation, extractor, capture, asked, worker).result
    if output.is_for_people:
        output.notes({"notes": worker.notes})
        _print_result(invocation, result)
    else:
        output.json(result.to_json() | {"notes": worker.notes})
    return result.exit_code


def _extractor(invocation: Invocation, *, is_read: bool = False) -> LocalExtractor:
    """The extractor of the library; its state is closed at the end of the run."""
    if invocation.option("fresh"):
        invocation.refresh()
    library = invocation.library  # before its folder is written to: there must be one
    with extra("extract"):
        from sessiondex.features.extract.local import LocalExtractor
    return LocalExtractor(
        folder=invocation.library_path,
        library=library,
        state=invocation.opened.enter_context(state_of(invocation, is_read=is_read)),
        now=invocation.surroundings.now,
        loop=loop_host(),
        on_fault=report_fault,
    )


class _Worker(NamedTuple):
    """Which model works within which budgets; checked before the first run."""

    model: Model
    name: str
    budgets: Budgets
    notes: list[dict[str, str]]

    @classmethod
    def of(cls, model: str | None, base_url: str | None, **budgets: int | None) -> _Worker:
        """Raises: as `open_cli_model` and `asked_budgets`."""
        served, notes = asked_budgets(**budgets)
        with extra("extract"):
            opened = open_cli_model(model, base_url)
        return cls(opened, model or "", served, [note.to_json() for note in notes])


class _Extracted(NamedTuple):
    result: ExtractResult
    is_stopped: bool
    """Somebody ended the run."""


def _extract(
    invocation: Invocation,
    extractor: LocalExtractor,
    capture: Capture,
    asked_range: RunRange | None,
    worker: _Worker,
) -> _Extracted:
    """One run; Ctrl-C and SIGTERM end it as cancelled."""
    is_stopped = False
    with live_line(invocation) as progress:
        extraction = extractor.extraction(
            capture, worker.model, model_name=worker.name, run_range=asked_range,
            budgets=worker.budgets, on_progress=progress,
        )  # fmt: skip

        def stop() -> None:
            nonlocal is_stopped
            is_stopped = True
            extraction.cancel()

        with ended_by_signals(stop):
            return _Extracted(extraction.run(), is_stopped)


def _show_request(
    invocation: Invocation, extractor: LocalExtractor, capture: Capture, asked: RunRange | None
) -> None:
    """What a run would begin with."""
    from sessiondex.features.extract.first_message import first_message
    from sessiondex.features.extract.prompt import extract_prompt
    from sessiondex.features.extract.runner import checked_range
    from sessiondex.features.extract.shown import TOOLS

    output, prompt = invocation.output, extract_prompt()
    run_range = checked_range(capture, extractor.ledger.done_records(capture), asked)
    message = first_message(capture, run_range)
    lease = extractor.ledger.lease(capture.session)
    if lease is not None:
        output.message(f"run {lease.run_id} has not ended well: a run would go on with its records")
    if not output.is_for_people:
        output.json({
            "session": capture.session,
            "capture": capture.token,
            "range": list(run_range),
            "tools": [tool.name for tool in TOOLS],
            "prompt_digest": prompt.digest,
            "first_message": message.text,
            "first_message_bytes": len(message.text.encode()),
        })  # fmt: skip
        return
    output.line(printable(message.text))
    output.message(
        f"dry run: records {run_range.first} to {run_range.last},"
        f" {byte_size(len(message.text.encode()))} in the first message,"
        f" prompt {prompt.digest}, {len(TOOLS)} tools; no model was asked"
    )


def _print_result(invocation: Invocation, result: ExtractResult) -> None:
    output, report = invocation.output, result.report
    said = result.outcome if result.outcome != "incomplete" else f"incomplete({result.reason})"
    output.line(output.styled(said, "head"))
    if result.outcome in ("no_candidates", "failed") and result.reason:
        output.line(printable(result.reason))
    if result.detail:
        output.line(printable(result.detail))
    rows = [
        ("staged", str(len(result.staged))),
        ("records", f"{report.range[0]} to {report.range[1]}"),
        ("extracted up to", f"{report.pointer_records} ({report.pointer_reason})"),
        ("model", printable(report.model)),
        ("prompt", report.prompt_digest),
        ("turns", str(report.turns)),
        ("calls", f"{report.calls}, {report.refused_calls} of them refused"),
        ("shown", byte_size(report.shown_bytes)),
        ("user messages shown", f"{report.shown_user_entries} of {report.user_entries}"),
        ("tokens", f"{report.input_tokens} in, {report.output_tokens} out"),
        ("seconds", f"{report.seconds:.1f}"),
        ("run", report.run_id + (" (taken over)" if report.is_adopted else "")),
    ]
    if report.unseen_refs:
        rows.append(("staged unseen", ", ".join(report.unseen_refs)))
    output.table([Column("what"), Column("value", "wrap")], rows)
    for id in result.staged:
        output.line(id)
    if result.staged:
        output.message("see 'sessiondex staging list'")


# ---------------------------------------------------------------- what is due


def _run_due(
    invocation: Invocation,
    threshold: int | None,
    limit: int | None,
    dry_run: bool,
    options: dict[str, Any],
) -> int:
    from sessiondex.features.extract.policy import ExtractPolicy

    policy = ExtractPolicy() if threshold is None else ExtractPolicy(threshold_tokens=threshold)
    extractor = _extractor(invocation, is_read=dry_run)
    worker = None if dry_run else _Worker.of(**options)
    tally = _Tally(invocation)
    try:
        for each in extractor.due(policy, keep=not dry_run):
            if each.capture is None or each.decision is None:
                tally.fail(each.session, each.error)
            elif not each.decision.is_due:
                tally.skipped[each.decision.reason] += 1
            elif limit is not None and len(tally.runs) >= limit:
                tally.skipped["limit"] += 1
            elif worker is None:
                tally.would_run(each.session, each.decision.growth_tokens)
            elif not _run_if_due(invocation, extractor, each.capture, worker, tally):
                break
    except SessiondexError as error:
        tally.fail("", error)  # nothing can be decided any more; what was done is told
    tally.print(worker.notes if worker else [])
    return tally.code


def _run_if_due(
    invocation: Invocation,
    extractor: LocalExtractor,
    capture: Capture,
    worker: _Worker,
    tally: _Tally,
) -> bool:
    """Extracts from one session; False where no further one is to be tried."""
    try:
        extracted = _extract(invocation, extractor, capture, None, worker)
    except Busy:
        tally.skipped["leased"] += 1
    except InvalidArgument:
        tally.skipped["no_growth"] += 1  # another process was faster
    except SessiondexError as error:
        tally.fail(capture.session, error)
    else:
        tally.add(capture.session, extracted.result)
        return not extracted.is_stopped and not extracted.result.is_hopeless
    return True


class _Tally:
    """What became of the sessions that were looked at."""

    def __init__(self, invocation: Invocation) -> None:
        self._output = invocation.output
        self.runs: list[dict[str, Any]] = []
        self.skipped: Counter[str] = Counter()
        self.errors: list[dict[str, Any]] = []
        self.code = 0

    def add(self, session: str, result: ExtractResult) -> None:
        """Notes the end of a run."""
        self.runs.append({"session": session} | result.to_json())
        self.code = _worse(self.code, result.exit_code)
        said = result.outcome + (f"({result.reason})" if result.outcome == "incomplete" else "")
        self._line(session, said, f"{len(result.staged)} staged", result.detail)

    def would_run(self, session: str, tokens: int) -> None:
        """Notes a session that is due where nothing is to be run."""
        self.runs.append({"session": session, "outcome": "due", "growth_tokens": tokens})
        self._line(session, f"due: {count_of(tokens, 'token')}")

    def fail(self, session: str, error: SessiondexError | None) -> None:
        """Notes what could not be looked at; '' is the rest of the library."""
        if error is None:
            return
        self.errors.append({"session": session, **error.to_json()})
        self.code = _worse(self.code, 1)
        self._output.message(printable(f"{session}: {error}" if session else str(error)))

    def print(self, notes: list[dict[str, str]]) -> None:
        """The sum for people, everything for programs."""
        skipped = dict(sorted(self.skipped.items()))
        if self._output.is_for_people:
            self._output.notes({"notes": notes})
            why = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
            self._output.message(f"{count_of(len(self.runs), 'session')}; skipped: {why or 'none'}")
        else:
            self._output.json(
                {"runs": self.runs, "skipped": skipped, "errors": self.errors, "notes": notes}
            )

    def _line(self, *parts: str) -> None:
        if self._output.is_for_people:
            self._output.line(columns([printable(part) for part in parts if part]))


def _worse(code: int, other: int) -> int:
    """Failed before incomplete before a normal end."""
    return max((code, other), key=(0, 4, 1).index)


# ---------------------------------------------------------------- status


@extract_command.command("status")
@click.argument("session", required=False, metavar="[SESSION]")
@option("--limit", type=int, default=20, metavar="N", help="Most sessions to show (20).")
@all_option
@shared_options
@pass_invocation
def status_command(
    invocation: Invocation, session: str | None, limit: int, everything: bool
) -> None:
    """Show how far each session is extracted, how the last run ended, and why none runs.

    Of one session, or of the sessions of the library, the newest first.
    """
    output = invocation.output
    if limit < 1:
        raise InvalidArgument(f"limit is {limit}", hint="expected a whole number above 0")
    extractor = _extractor(invocation, is_read=True)
    now = extractor.now_ms()
    if session is not None:
        found, has_more = [extractor.status(split_word(session)[0])], False
    else:
        statuses = extractor.statuses()
        found = list(statuses if everything else islice(statuses, limit))
        has_more = next(statuses, None) is not None
    if not output.is_for_people:
        shown = [each.to_json(now=now) for each in found]
        output.json({"sessions": shown, "has_more": has_more})
        return
    zone = invocation.surroundings.zone

    def when(moment: int) -> str:
        from sessiondex.query.times import format_time

        return local_time(format_time(moment), zone)

    output.table(
        [
            Column("session"), Column("extracted"), Column("last run"), Column("staged"),
            Column("when"), Column("why none runs", "wrap"),
        ],
        [
            (
                printable(each.session),
                _extracted(each),
                _last_outcome(each),
                str(each.last_run.staged_count) if each.last_run else "",
                when(each.last_run.ended) if each.last_run else "",
                _why(each, now),
            )
            for each in found
        ],
    )  # fmt: skip
    if has_more:
        output.message("more sessions follow: --limit, or --all")


def _extracted(status: SessionStatus) -> str:
    if status.done is None:
        return "not in the library"
    return f"{status.done.records} of {status.record_count} records"


def _last_outcome(status: SessionStatus) -> str:
    run = status.last_run
    if run is None:
        return "never"
    return f"{run.outcome}({run.reason})" if run.reason else run.outcome


def _why(status: SessionStatus, now: int) -> str:
    if status.lease is not None and status.lease.is_live(now):
        return f"run {status.lease.run_id} of {status.lease.holder} works on it"
    if status.decision is None:
        return ""
    if status.decision.is_due:
        return "it is due: see 'extract --due'"
    return status.decision.sentence
