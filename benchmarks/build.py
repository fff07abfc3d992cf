"""How long does it take to index a history, in how much memory, and how large does it get?

Rivals get the same visible texts, already taken out of the session files: they need not parse,
number, digest or store anything. Each runs in a process of its own, which measures itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import orjson

from benchmarks.entry_texts import entry_texts
from benchmarks.harness import Report, Scale, history, make_parser, report_as_child, run_child

OURS: Final = "sessiondex"
BASELINE: Final = "bare tantivy"
RIVALS: Final = (
    BASELINE, "bare tantivy, 1 thread", "fts5 unicode61", "fts5 trigram", "parse only",
)  # fmt: skip


def _texts(file: Path) -> Iterator[str]:
    with open(file, "rb") as lines:
        for line in lines:
            yield orjson.loads(line)


def _build_ours(home: Path, built: Path) -> None:
    from sessiondex.indexer.library import Library
    from sessiondex.indexer.refresh import RefreshOptions

    with Library.create(built) as library:
        report = library.index(options=RefreshOptions(home=home, environ={}))
    if report.failed or report.corrupt_records:
        raise SystemExit(f"not everything was indexed: {report.to_json()}")


def _build_rival(name: str, home: Path, texts: Path, built: Path) -> None:
    from benchmarks.rivals import BareTantivy, Fts5

    if name == "parse only":
        for _ in entry_texts(home):
            pass
    elif name.startswith(BASELINE):
        BareTantivy(built, threads=0 if name == BASELINE else 1).build(_texts(texts))
    else:
        built.mkdir()
        rival = Fts5(built / "entries.sqlite3", "trigram" if "trigram" in name else "unicode61")
        rival.build(_texts(texts))
        rival.close()


def child(name: str, home: Path, texts: Path, built: Path) -> None:
    """Builds one index and reports what it took."""
    if name == OURS:
        report_as_child(partial(_build_ours, home, built), built)
    else:
        report_as_child(partial(_build_rival, name, home, texts, built), built)


def main() -> None:
    """The command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, home, texts, built = options.child
        child(name, Path(home), Path(texts), Path(built))
        return
    full, small = Scale(3_000, 280_000_000), Scale(200, 19_000_000)
    with history(options, full=full, small=small) as made:
        texts = made.work / "texts.jsonl"
        text_bytes = 0
        with open(texts, "wb") as file:
            for entry in entry_texts(made.home):
                text_bytes += len(entry.text.encode())
                file.write(orjson.dumps(entry.text) + b"\n")
        report = Report("How long does indexing take, and how large does it get?")
        report.facts = made.facts() | {"text_mb": text_bytes / 1e6}
        measured = {
            name: run_child(
                "build", "--child", name, made.home, texts, made.work / name.replace(" ", "-")
            )
            for name in (OURS, *RIVALS)
        }
        for name, result in measured.items():
            report.row(
                what=name,
                seconds=result.seconds,
                cpu_s=result.cpu_seconds,
                source_mb_s=made.manifest.bytes / 1e6 / result.seconds,
                times_tantivy=result.seconds / measured[BASELINE].seconds,
                peak_mb=result.peak_bytes / 1e6,
                size_mb=result.size_bytes / 1e6,
                size_of_source=result.size_bytes / made.manifest.bytes,
            )
    report.publish(options.json)


if __name__ == "__main__":
    main()
