"""How long does a refresh take when nothing changed, and when some sessions grew?

Walking and stating the same files is the least that any refresh must do; reading them all is what
a tool without memory does. The appended texts go into FTS5 and bare tantivy as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson

from benchmarks.entry_texts import entry_texts
from benchmarks.harness import History, Report, Scale, history, make_parser, summarise
from benchmarks.rivals import BareTantivy, Fts5
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import RefreshOptions

APPENDED_TEXT = (
    "The answer went on: checked the cache, found the entry, and closed the branch. " * 4
)


def append_turn(files: list[Path], series: int, turn: int) -> None:
    """Appends one user message to each Claude Code file, a new one for each series and turn."""
    for number, path in enumerate(files):
        record = {
            "parentUuid": None, "isSidechain": False, "userType": "external", "cwd": "/home/dev",
            "sessionId": path.stem, "version": "2.1.42", "gitBranch": "main", "type": "user",
            "message": {"role": "user", "content": f"{turn} {number} {APPENDED_TEXT}"},
            "uuid": f"{number:08x}-{series:04x}-4000-a000-{turn:012x}",
            "timestamp": "2026-06-20T12:00:00.000Z",
        }  # fmt: skip
        with open(path, "ab") as file:
            file.write(orjson.dumps(record) + b"\n")


def _walk(home: Path) -> int:
    return sum(
        os.stat(os.path.join(folder, name)).st_size
        for folder, _, names in os.walk(home)
        for name in names
    )


def _read_all(home: Path) -> int:
    return sum(len(path.read_bytes()) for path in home.rglob("*.jsonl"))


def _compare(report: Report, made: History, repeats: int) -> None:
    def row(what: str, call: Callable[[], object], prepare: Callable[[int], object]) -> None:
        seconds: list[float] = []
        for turn in range(repeats):
            prepare(turn)
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        timing = summarise(seconds)
        report.row(what=what, median_ms=timing.median_ms, p95_ms=timing.p95_ms, runs=timing.runs)

    def leave(turn: int) -> None:
        """Changes nothing."""

    options = RefreshOptions(home=made.home, environ={})
    files = sorted(made.home.glob(".claude/projects/*/*.jsonl"))
    texts = [entry.text for entry in entry_texts(made.home)]
    counts = [min(count, len(files)) for count in (1, 10, 100)]
    with Library.create(made.work / "library") as library:
        library.index(options=options)

        def refresh(expected: int) -> None:
            indexed = library.index(options=options).indexed
            if indexed != expected:
                raise SystemExit(f"{expected} files changed, but {indexed} were indexed")

        refresh(0)
        row("nothing changed: sessiondex", partial(refresh, 0), leave)
        row("nothing changed: walk and stat", partial(_walk, made.home), leave)
        row("nothing changed: read all files", partial(_read_all, made.home), leave)
        for count in counts:
            grow = partial(append_turn, files[:count], count)
            row(f"{count} sessions grew: sessiondex", partial(refresh, count), grow)
    fts5 = Fts5(made.work / "entries.sqlite3", "unicode61")
    bare = BareTantivy(made.work / "tantivy")
    for name, rival in (("fts5 unicode61", fts5), ("bare tantivy", bare)):
        rival.build(texts)
        for count in counts:
            new = [f"{number} {APPENDED_TEXT}" for number in range(count)]
            row(f"{count} new texts: {name}", partial(rival.build, new), leave)


def main() -> None:
    """The command line."""
    options = make_parser(__doc__).parse_args()
    full, small = Scale(3_000, 280_000_000), Scale(200, 19_000_000)
    with history(options, full=full, small=small) as made:
        report = Report("How long does a refresh take?", facts=made.facts())
        _compare(report, made, options.repeats)
    report.publish(options.json)


if __name__ == "__main__":
    main()
