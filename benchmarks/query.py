"""How long does a warm search over 100 k entries take, and does it find what is there?

Every engine answers one page of 20. `needles` counts the planted strings that it found, of those
that are visible; only an engine that finds them all answers the same question as ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.entry_texts import entry_texts
from benchmarks.harness import History, Report, Scale, history, make_parser, measure
from benchmarks.rivals import BareTantivy, Fts5, NaiveScan, Rival
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import RefreshOptions
from sessiondex.query.request import Match, SearchRequest
from sessiondex.query.search import search

REGEXES = (
    r"req=[0-9a-f]{9}000 ", r"\bqx[a-z]+-qx[a-z]+-42\b", r"(?m)^def \w+_\w+\(\w+, \w+\):$",
    r"assert \w+\(\w+\) == 4[0-9]{3}", r"[0-9a-f]{40} (cache|index) ", r"no such thing \d+",
)  # fmt: skip


class Workload:
    """Queries by class, made from what the history's manifest names."""

    def __init__(self, made: History) -> None:
        manifest = made.manifest
        visible = [needle for needle in manifest.needles if not needle.is_hidden]
        self.needles = visible
        self.classes: dict[str, list[str]] = {
            "rare": [needle.query for needle in visible[:40]],
            "names": manifest.names[:30],
            "common words": manifest.words[:20],
            "inside words": [name[2:-2] for name in manifest.names[:30]],
            "two Chinese characters": ["缓存", "时区", "日志"],
            "nothing found": ["qxnothing", "qx_nothing_here", "zzqx--qx"],
        }


def _compare(report: Report, made: History, repeats: int) -> None:
    work = Workload(made)
    texts = [entry.text for entry in entry_texts(made.home)]

    def rows(
        what: str,
        find: Callable[[str], Sequence[object]],
        classes: dict[str, list[str]],
        *,
        found: int | None = None,
    ) -> None:
        for name, queries in classes.items():
            calls = [partial(find, query) for query in queries]
            hits = sum(len(call()) for call in calls)
            timing = measure(calls, repeats=repeats, is_warm=True)
            report.row(
                what=what, queries=name, median_ms=timing.median_ms, p95_ms=timing.p95_ms,
                hits=hits, runs=timing.runs,
                needles=None if found is None else f"{found}/{len(work.needles)}",
            )  # fmt: skip

    with Library.create(made.work / "library") as library:
        library.index(options=RefreshOptions(home=made.home, environ={}))
        snapshot = library.snapshot()

        def ours(query: str, match: Match) -> list[object]:
            return search(snapshot, SearchRequest(query=query, match=match))["hits"]

        literal = partial(ours, match="literal")
        found = sum(bool(literal(needle.query)) for needle in work.needles)
        rows("sessiondex literal", literal, work.classes, found=found)
        rows("sessiondex ranked", partial(ours, match="ranked"), work.classes)
        rows("sessiondex regex", partial(ours, match="regex"), {"regex": list(REGEXES)})

    naive = NaiveScan()
    rivals: dict[str, Rival] = {
        "naive scan": naive,
        "fts5 trigram": Fts5(made.work / "trigram.sqlite3", "trigram"),
        "fts5 unicode61": Fts5(made.work / "unicode61.sqlite3", "unicode61"),
        "bare tantivy": BareTantivy(made.work / "tantivy"),
    }
    for what, rival in rivals.items():
        rival.build(texts)

        def is_found(query: str, planted: str, rival: Rival = rival) -> bool:
            return any(planted in texts[row] for row in rival.find(query))

        found = sum(is_found(needle.query, needle.planted) for needle in work.needles)
        rows(what, rival.find, work.classes, found=found)
    rows("naive scan, regex", naive.find_regex, {"regex": list(REGEXES)})


def main() -> None:
    """The command line."""
    options = make_parser(__doc__).parse_args()
    full = Scale(3_000, 300_000_000, 100_000)
    small = Scale(300, 30_000_000, 10_000)
    with history(options, full=full, small=small) as made:
        report = Report("How long does a warm search take?", facts=made.facts())
        _compare(report, made, options.repeats)
    report.publish(options.json)


if __name__ == "__main__":
    main()
