"""What does the item store cost: writing an entry of 1 KB, reading a batch, 20 entries, a text?

The rival is one SQLite table with a row for each entry, its text in it, in one transaction.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.harness import Report, folder_size, make_parser, measure, summarise
from benchmarks.texts import Project, Writer
from benchmarks.words import make_words
from sessiondex.indexer.item_store import Flushed, ItemStore, entry_rows, text_head
from sessiondex.model import Entry, EntryRef, Record

TEXT_BYTES: Final = 1000
ENTRIES: Final = 100_000
SMALL_ENTRIES: Final = 10_000


class Row(NamedTuple):
    """One entry with its text and its record."""

    entry: Entry
    data: bytes
    record: Record


def make_rows(count: int, seed: int) -> list[Row]:
    """Entries as a coding agent leaves them; half are the call and half the output of a tool."""
    rng = random.Random(seed)
    writer = Writer(rng, Project(rng, make_words(rng, 6000)), "")
    forms = (writer.prose, writer.code, writer.log, writer.grep)
    texts = [rng.choice(forms)(TEXT_BYTES + 60).encode()[:TEXT_BYTES] for _ in range(4000)]
    texts = [text.decode(errors="ignore").encode() for text in texts]
    cwd, call_id = "/home/dev/code/cargo", ""
    rows: list[Row] = []
    for ordinal in range(count):
        is_output = ordinal % 2 == 1
        call_id = call_id if is_output else f"toolu_{rng.randrange(1 << 96):024x}"
        data = rng.choice(texts)
        entry = Entry(
            ordinal, EntryRef(ordinal, 0), "tool", "output" if is_output else "input",
            rng.choice(("Bash", "Read", "Edit")), call_id, False if is_output else None, "", 0,
            1_700_000_000_000 + ordinal * 3100, ordinal // 40, 0, cwd, "main", "model-1",
            len(data), "", [], False, rng.randrange(1 << 64), False, "", "/message/content/0",
        )  # fmt: skip
        digest = rng.randbytes(8)
        rows.append(Row(entry, data, Record(ordinal, ordinal * 3000, 2999, ordinal + 1, digest)))
    return rows


def write_store(store: ItemStore, rows: list[Row]) -> Flushed:
    """Writes all rows and waits for the disk."""
    writer = store.writer({})
    for text_id, (entry, data, record) in enumerate(rows):
        writer.add_text(text_id, data)
        writer.add_entry(1, entry, text_id, text_head(data))
        writer.add_record(1, record, 1)
    return writer.flush()


def write_sqlite(path: Path, rows: list[Row]) -> None:
    """The rival: every field and the text as columns of one row."""
    database = sqlite3.connect(path)
    names = ",".join(f"f{number}" for number in range(26))
    database.execute(f"CREATE TABLE entries ({names})")
    places = ",".join("?" * 26)
    database.executemany(
        f"INSERT INTO entries VALUES ({places})",
        (
            (e.ordinal, e.ref.record, e.ref.block, e.kind, e.tool_part, e.tool_name, e.call_id,
             e.error, e.sub_kind, e.flags, e.timestamp, e.turn, e.step, e.cwd, e.branch, e.model,
             e.total_bytes, e.summary, e.is_anchor, str(e.identity), e.pointer, data,
             record.byte_offset, record.byte_length, record.line, record.digest)
            for e, data, record in rows
        ),
    )  # fmt: skip
    database.commit()
    database.close()


def main() -> None:
    """The command line."""
    options = make_parser(__doc__).parse_args()
    rows = make_rows(options.entries or (SMALL_ENTRIES if options.small else ENTRIES), options.seed)
    text_mb = sum(len(row.data) for row in rows) / 1e6
    report = Report("What does the item store cost?")
    report.facts = {"entries": len(rows), "text_mb": text_mb, "seed": options.seed}
    with tempfile.TemporaryDirectory(prefix="sessiondex-bench-") as folder:
        seconds: dict[str, list[float]] = {"write, disk": [], "write, memory": [], "sqlite": []}
        for turn in range(options.repeats):
            place = Path(folder, str(turn))
            database = Path(folder, f"{turn}.sqlite3")
            calls: dict[str, Callable[[], object]] = {
                "write, disk": lambda place=place: write_store(ItemStore.create(place), rows),
                "write, memory": lambda: write_store(ItemStore.create(None), rows),
                "sqlite": lambda database=database: write_sqlite(database, rows),
            }
            for name, call in calls.items():
                began = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - began)
        sizes = {"write, disk": folder_size(place), "sqlite": folder_size(database)}
        for name, times in seconds.items():
            timing = summarise(times)
            report.row(
                what=name,
                us_per_entry=timing.median_ms * 1000 / len(rows),
                mb_per_second=text_mb / timing.median_ms * 1000,
                p95_us=None,
                size_to_text=sizes[name] / text_mb / 1e6 if name in sizes else None,
            )
        store = ItemStore.create(Path(folder, "read"))
        for name, calls_ in reads(store, write_store(store, rows), options.seed).items():
            timing = measure(calls_, repeats=options.repeats)
            report.row(
                what=name, us_per_entry=timing.median_ms * 1000, mb_per_second=None,
                p95_us=timing.p95_ms * 1000, size_to_text=None,
            )  # fmt: skip
    report.publish(options.json)


def reads(store: ItemStore, flushed: Flushed, seed: int) -> dict[str, list[Callable[[], object]]]:
    """Reads at random places, by what is read."""
    rng = random.Random(seed)
    entry_runs = rng.choices([run for run in flushed.entry_runs if run.rows > 20], k=100)
    text_runs = rng.choices(flushed.text_runs, k=100)
    batches = flushed.batches
    return {
        "read batch, all columns": [
            lambda run=run: store.read(batches[run.batch_index]) for run in entry_runs
        ],
        "read batch, 3 columns": [
            lambda run=run: store.read(batches[run.batch_index], ("ordinal", "text_id", "flags"))
            for run in entry_runs
        ],
        "read 20 entries": [
            lambda run=run: entry_rows(
                store.read(batches[run.batch_index]), run.row0, run.row0 + 20
            )
            for run in entry_runs
        ],
        "read 1 text": [
            lambda run=run: store.text((batches[run.batch_index],), run.last_text_id)
            for run in text_runs
        ],
    }


if __name__ == "__main__":
    main()
