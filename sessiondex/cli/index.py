"""`sessiondex index`: brings the library up to date, once or for as long as it is watched."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import (
    option,
    pass_invocation,
    refresh_options,
    shared_options,
)
from sessiondex.cli.texts import byte_size, count_of

if TYPE_CHECKING:
    from sessiondex.indexer.refresh import IndexReport, Progress

SHOWN_FAULTS: Final = 20
"""Failures and corrupt records that people see; `--json` has all."""

INCOMPLETE: Final = 4


@click.command("index")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@refresh_options
@option("--again", is_flag=True, help="Index also sessions that were forgotten.")
@option("--watch", is_flag=True, help="Go on and index files as they grow, until Ctrl-C.")
@option("--strict", is_flag=True, help="Exit with 4 if a file failed or a record is corrupt.")
@shared_options
@pass_invocation
def index_command(
    invocation: Invocation, paths: tuple[str, ...], again: bool, watch: bool, strict: bool
) -> int:
    """Index session files, or bring the library up to date.

    Without PATH: the sessions of the agents in your home, and every file that is known already.
    Newest files come first. What is committed stays when you stop it; the next run goes on.
    """
    output = invocation.output
    if watch:
        return _watch(invocation, paths, again)
    try:
        report = _index(invocation, paths, again)
    except KeyboardInterrupt:
        output.message("what is committed stays; the next run goes on")
        raise
    if output.is_json:
        output.json(report.to_json())
    else:
        _show(invocation, report, bool(paths))
    return INCOMPLETE if strict and (report.failures or report.corrupt_records) else 0


def _index(invocation: Invocation, paths: Sequence[str], again: bool) -> IndexReport:
    from sessiondex.indexer.refresh import index_library

    progress = None if invocation.output.is_json else ProgressLine(time.monotonic)
    options = invocation.refresh_options(again=again, progress=progress)
    try:
        return index_library(invocation.make_library(), paths, options=options)
    finally:
        if progress is not None:
            progress.end()


def _watch(invocation: Invocation, paths: Sequence[str], again: bool) -> int:
    from sessiondex.cli.watching import watch

    output = invocation.output

    def refresh() -> None:
        report = _index(invocation, paths, again)
        if report.indexed or report.failed:
            if output.is_json:
                output.json_line(report.to_json())
            else:
                output.message(_summary(report))
            sys.stdout.flush()

    output.message(f"watching; the library is {invocation.library_path}; Ctrl-C ends it")
    watch(
        invocation.make_library(),
        [Path(path) for path in paths],
        invocation.refresh_options(again=again),
        refresh=refresh,
        wait=invocation.surroundings.wait,
        report_busy=lambda error: output.message(f"{error.message}; trying again"),
    )
    return 0


def _show(invocation: Invocation, report: IndexReport, has_paths: bool) -> None:
    output = invocation.output
    output.line(_summary(report))
    for failure in report.failures[:SHOWN_FAULTS]:
        output.message(f"failed: {failure['file']}: {failure['reason']}")
    for fault in report.corrupt_records[:SHOWN_FAULTS]:
        output.message(
            f"corrupt: {fault['file']}:{fault['line']} (byte {fault['byte_offset']}):"
            f" {fault['reason']}"
        )
    more = sum(
        max(len(faults) - SHOWN_FAULTS, 0) for faults in (report.failures, report.corrupt_records)
    )
    if more:
        output.message(f"and {more} more; --json lists all")
    if not report.seen:
        place = "there" if has_paths else "in the agents' homes"
        output.message(f"no session files {place}; name files or folders: sessiondex index PATH")
    output.message(f"library: {invocation.library_path}")


def _summary(report: IndexReport) -> str:
    files = [
        f"{number:,} {word}"
        for number, word in (
            (report.indexed, "indexed"),
            (report.unchanged, "unchanged"),
            (report.skipped, "skipped"),
            (report.failed, "failed"),
        )
        if number
    ]
    parts = [count_of(report.seen, "file") + (f" ({', '.join(files)})" if files else "")]
    if report.indexed:
        parts.append(f"{count_of(report.sessions, 'session')} new or grown")
        parts.append(count_of(report.entries, "entry", "entries"))
        parts.append(f"{byte_size(report.bytes)} in {report.seconds:.1f} s")
    return ", ".join(parts)


class ProgressLine:
    """Says on stderr how far a refresh is, how fast, and how long it still takes.

    One line that is written over on a terminal; elsewhere a line now and then.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = self._shown = clock()
        self._is_terminal = sys.stderr.isatty()
        self._interval = 0.1 if self._is_terminal else 10.0
        self._is_open = False

    def __call__(self, progress: Progress) -> None:
        now = self._clock()
        if now - self._shown < self._interval:
            return
        self._shown = now
        text = progress_text(progress, now - self._began)
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._is_open = True
        else:
            sys.stderr.write(f"{text}\n")

    def end(self) -> None:
        """Takes the line away."""
        if self._is_open:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def progress_text(progress: Progress, seconds: float) -> str:
    """Files and bytes so far, the rate, and the time that is left."""
    rate = progress.bytes / seconds if seconds > 0 else 0.0
    text = (
        f"{progress.files:,}/{progress.all_files:,} files,"
        f" {byte_size(progress.bytes)} of {byte_size(progress.all_bytes)}, {byte_size(rate)}/s"
    )
    if rate:
        left = round((progress.all_bytes - progress.bytes) / rate)
        text += f", {left // 60}:{left % 60:02} left"
    return text
