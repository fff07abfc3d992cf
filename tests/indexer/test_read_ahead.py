"""New files that other processes read: the same library, and no end but a clean one."""

from __future__ import annotations

import os
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from sessiondex.errors import Failed
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import IndexReport, Progress
from tests.builders import claude_path, claude_user, conversation, index, write_lines
from tests.faults.pictures import picture

QUERIES = ("turns freely", "grep -rn", "needle 3")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for number in range(12):
        records = conversation(1 + number, start=number * 7, word=f"spindle{number % 3}")
        path = write_lines(claude_path(home, f"s{number}"), records)
        os.utime(path, ns=(10**18 + number, 10**18 + number))
    return home


def ahead(library: Library, home: Path, **options: Any) -> IndexReport:
    options = {"processes": 2, "read_ahead_bytes": 0, "batch_bytes": 5_000, **options}
    return index(library, home, **options)


def told(report: IndexReport) -> dict[str, Any]:
    return report.to_json() | {"seconds": 0}


@pytest.mark.parametrize("processes", [2, 3])
def test_more_processes_make_the_same_library(home: Path, processes: int) -> None:
    long = claude_path(home, "long")
    write_lines(long, [claude_user(f"needle {n} " + "words " * 900, n) for n in range(40)])
    with open(long, "ab") as file:
        file.write(b'{"type": "user", broken\n{"type":"summary","summary":"half a tail"}')
    (home / ".claude/projects/-home-ada-lathe/notes.jsonl").write_text("no session\n")
    alone, together = Library.in_memory(), Library.in_memory()
    first = ahead(alone, home, processes=1)
    assert told(ahead(together, home, processes=processes)) == told(first)
    assert picture(together, *QUERIES) == picture(alone, *QUERIES)
    assert together.epoch().catalog.sources() == alone.epoch().catalog.sources()
    assert ahead(together, home, processes=processes).unchanged == first.indexed


def test_a_session_that_is_known_by_another_file_is_compared(home: Path) -> None:
    library = Library.in_memory()
    ahead(library, home)
    copy = home / ".claude/projects/-copy/s4.jsonl"
    copy.parent.mkdir()
    copy.write_bytes(claude_path(home, "s4").read_bytes())
    other = home / ".claude/projects/-other/s5.jsonl"
    write_lines(other, conversation(2, start=900))
    report = ahead(library, home)
    assert (report.indexed, report.failed) == (2, 0)
    assert {row.session for row in library.snapshot().rows()} == {
        *(f"s{number}" for number in range(12)), "s5~2",
    }  # fmt: skip


def test_excluded_projects_stay_out(home: Path) -> None:
    # In a folder that does not tell the project: the records do.
    elsewhere = home / ".claude/projects/-elsewhere"
    write_lines(elsewhere / "s20.jsonl", conversation(1))
    write_lines(elsewhere / "s21.jsonl", [claude_user("hello", 1, cwd="/home/eve")])
    report = ahead(Library.in_memory(), home, exclude=("/home/ada/*",))
    assert (report.indexed, report.skipped) == (1, 1)


@pytest.mark.parametrize("rest", [b"\xff", b""], ids=["in damage", "cut"])
def test_a_file_that_breaks_off_keeps_what_was_read_and_is_reported(
    home: Path, rest: bytes
) -> None:
    text = b"".join(zlib.crc32(b"%d" % n).to_bytes(4, "big").hex().encode() for n in range(60_000))
    lines = claude_path(home, "s11").read_bytes() + b'{"type":"user","text":"' + text + b'"}\n'
    packed = zstandard.ZstdCompressor().compress(lines)
    claude_path(home, "packed").with_suffix(".jsonl.zst").write_bytes(
        packed[: len(packed) * 3 // 4] + rest * (len(packed) // 4)
    )
    alone, together = Library.in_memory(), Library.in_memory()
    first = ahead(alone, home, processes=1)
    assert [Path(each["file"]).name for each in first.failures] == ["packed.jsonl.zst"]
    assert told(ahead(together, home)) == told(first)
    assert picture(together, *QUERIES) == picture(alone, *QUERIES)


def test_without_a_process_that_reads_all_is_read_here(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("/bin/false", "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", program)
        library = Library.in_memory()
        assert ahead(library, home).indexed == 12


def test_a_reader_that_dies_ends_the_run_and_keeps_what_is_committed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = tmp_path / "python"
    dying.write_text(f'#!/bin/sh\n"{sys.executable}" "$@" | head -c 30000\n')
    dying.chmod(0o700)
    library = Library.create(tmp_path / "library")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(dying))
        with pytest.raises(Failed, match="a process that reads session files ended"):
            ahead(library, home)
    assert 0 < len(list(library.snapshot().rows())) < 12
    ahead(library, home)
    whole = Library.in_memory()
    ahead(whole, home, processes=1)
    assert {row.session: row.entries for row in library.snapshot().rows()} == {
        row.session: row.entries for row in whole.snapshot().rows()
    }


def children() -> set[str]:
    """Ids of the children of this process."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found.update((task / "children").read_text().split())
    return found


def test_an_interrupt_leaves_no_process_behind(home: Path, tmp_path: Path) -> None:
    library = Library.create(tmp_path / "library")

    def interrupt(progress: Progress) -> None:
        if progress.files == 6:
            raise KeyboardInterrupt

    before = children()
    with pytest.raises(KeyboardInterrupt):
        ahead(library, home, progress=interrupt)
    assert children() == before
    assert ahead(library, home).failed == 0
    assert len(list(library.snapshot().rows())) == 12
