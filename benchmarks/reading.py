"""How long do listing, reading and an overview take on a warm library?

The naive reader parses the session's file and takes what it wants from it; SQLite gives the same
texts by row number, and knows nothing of refs, budgets and labels.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.entry_texts import claude_texts, entry_texts
from benchmarks.harness import History, Report, Scale, history, make_parser, measure
from benchmarks.rivals import Fts5
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import RefreshOptions
from sessiondex.query.overview import overview
from sessiondex.query.reading import ReadRequest, read
from sessiondex.query.request import SearchRequest
from sessiondex.query.search import search

SESSIONS = 20
"""The largest Claude Code sessions are looked at."""


def _compare(report: Report, made: History, repeats: int) -> None:
    def row(what: str, calls: Sequence[Callable[[], object]]) -> None:
        timing = measure(calls, repeats=repeats)
        report.row(what=what, median_ms=timing.median_ms, p95_ms=timing.p95_ms, runs=timing.runs)

    rng = random.Random(made.manifest.seed)
    files = sorted(
        made.home.glob(".claude/projects/*/*.jsonl"), key=lambda path: path.stat().st_size
    )[-SESSIONS:]
    sessions = [path.stem for path in files]
    with Library.create(made.work / "library") as library:
        library.index(options=RefreshOptions(home=made.home, environ={}))
        snapshot = library.snapshot()
        captures = [snapshot.capture(session, live=False) for session in sessions]

        def references(capture: Capture, count: int) -> list[str]:
            first = rng.randrange(max(1, capture.entry_count - count))
            entries = capture.entries(first, min(first + count, capture.entry_count))
            return [str(entry.ref) for entry in entries]

        row("capture a session", [partial(library.capture, name) for name in sessions])
        for count in (1, 10):
            requests = [
                ReadRequest(entry_refs=references(capture, count), max_items=count)
                for capture in captures
            ]
            calls = [partial(read, *pair) for pair in zip(captures, requests, strict=True)]
            row(f"read {count} entries: sessiondex", calls)
        listing = SearchRequest()
        row("list, first page: sessiondex", [partial(search, each, listing) for each in captures])
        cursors = [search(each, listing).get("next_cursor") for each in captures]
        later = [
            partial(search, each, SearchRequest(cursor=cursor))
            for each, cursor in zip(captures, cursors, strict=True)
            if cursor is not None
        ]
        row("list, next page: sessiondex", later)
        row("overview: sessiondex", [partial(overview, capture) for capture in captures])

    row("read the file: naive", [lambda path=path: list(claude_texts(path)) for path in files])
    rows = Fts5(made.work / "entries.sqlite3", "unicode61")
    rows.build(entry.text for entry in entry_texts(made.home))
    picked = rng.sample(range(made.manifest.entry_count), min(SESSIONS, 10))
    row("one text by number: SQLite", [partial(rows.text, number) for number in picked])
    rows.close()


def main() -> None:
    """The command line."""
    options = make_parser(__doc__).parse_args()
    full = Scale(3_000, 300_000_000, 100_000)
    small = Scale(300, 30_000_000, 10_000)
    with history(options, full=full, small=small) as made:
        report = Report("How long does it take to read in a session?", facts=made.facts())
        _compare(report, made, options.repeats)
    report.publish(options.json)


if __name__ == "__main__":
    main()
