"""The benchmark harness: what it measures, prints and writes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.entry_texts import entry_texts
from benchmarks.harness import (
    History,
    Report,
    Scale,
    history,
    make_parser,
    measure,
    run_child,
    summarise,
)
from benchmarks.rivals import BareTantivy, Fts5, NaiveScan, Rival

TINY = Scale(files=6, size=80_000)


def options(*words: str) -> argparse.Namespace:
    return make_parser("a benchmark").parse_args(words)


def test_summary_gives_median_and_p95_in_milliseconds() -> None:
    timing = summarise([number / 1000 for number in range(100, -1, -1)])
    assert timing == (pytest.approx(50), pytest.approx(95), 101)


def test_measure_does_not_count_the_warming_call() -> None:
    calls: list[int] = []
    timing = measure([lambda: calls.append(1), lambda: calls.append(2)], repeats=3)
    assert timing.runs == 6
    assert calls == [1, 2] * 4


def test_table_aligns_columns_and_the_json_names_machine_and_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("How fast?", facts={"files": 1234})
    report.row(what="ours", seconds=1.5, hits=None)
    report.row(what="a rival", seconds=1234.0, hits=3)
    report.publish(tmp_path / "figures.json")
    assert capsys.readouterr().out == (
        "How fast?\nfiles 1,234\n\n"
        "what     seconds  hits\n"
        "ours        1.50     –\n"
        "a rival    1,234     3\n\n"
    )
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["rows"] == report.rows
    assert figures["facts"] == {"files": 1234}
    assert {"cores", "python", "versions"} <= figures["machine"].keys()
    assert "commit" in figures


def test_a_history_is_generated_at_the_scale_and_removed_afterwards() -> None:
    with history(options("--small", "--seed", "9"), full=Scale(9, 1), small=TINY) as made:
        assert made.manifest.files == TINY.files
        assert made.manifest.seed == 9
        assert made.work.is_dir()
    assert not made.home.exists()


def test_given_entries_override_the_scale() -> None:
    with history(options("--entries", "300", "--files", "5"), full=TINY, small=TINY) as made:
        assert made.manifest.files == 5
        assert made.manifest.entry_count >= 300


@pytest.fixture(scope="module")
def tiny() -> Iterator[History]:
    with history(options(), full=TINY, small=TINY) as made:
        yield made


def test_a_child_reports_its_own_time_memory_and_size(tiny: History) -> None:
    texts = tiny.work / "texts.jsonl"
    with open(texts, "w", encoding="utf-8") as file:
        for entry in entry_texts(tiny.home):
            file.write(json.dumps(entry.text) + "\n")
    built = tiny.work / "built"
    result = run_child("build", "--child", "fts5 unicode61", tiny.home, texts, built)
    assert result.seconds > 0
    assert result.peak_bytes > 1_000_000
    assert result.size_bytes == sum(path.stat().st_size for path in built.iterdir())


def test_every_rival_finds_a_word_and_only_scanners_find_its_middle(tiny: History) -> None:
    texts = ["the cache is stale", "readFooBar failed"]
    rivals: dict[str, Rival] = {
        "scan": NaiveScan(),
        "trigram": Fts5(tiny.work / "trigram.sqlite3", "trigram"),
        "words": Fts5(tiny.work / "words.sqlite3", "unicode61"),
        "tantivy": BareTantivy(tiny.work / "tantivy"),
    }
    for rival in rivals.values():
        rival.build(texts)
    for name, rival in rivals.items():
        assert rival.find("Cache") == [0], name
    middle = {name: rival.find("oobar") for name, rival in rivals.items()}
    assert middle == {"scan": [1], "trigram": [1], "words": [], "tantivy": []}
