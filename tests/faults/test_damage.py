"""Damage is named: in the item store when it is read, anywhere else by `check`; and repaired.

A flipped bit never makes the interpreter fail, nor an answer wrong that `check` calls sound.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sessiondex.errors import Damaged
from sessiondex.indexer.catalog import Catalog
from sessiondex.indexer.check import check_library, repair_library
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import index_library
from tests.builders import claude_path, conversation, index, write_lines
from tests.faults.children import Children, fast_folder
from tests.faults.histories import picture_of, write_grown, write_old
from tests.faults.pictures import QUERIES, texts

NAMED = re.compile(r"-\d{6}\.arrow at offset \d+: .* \((crc32|length|schema|presence) check\)")


class Whole(NamedTuple):
    """A sound library, its sources, and all that it answers."""

    library: Path
    home: Path
    picture: dict[str, Any]


@pytest.fixture(scope="module")
def whole(server: Children) -> Generator[Whole]:
    with fast_folder() as folder:
        home, library = folder / "home", folder / "library"
        write_old(home)
        server.run("index", library=library, home=home)
        write_grown(home)
        server.run("index", library=library, home=home)
        for turn in (500, 600):
            write_lines(claude_path(home, "three"), conversation(1, start=turn), append=True)
            server.run("index", library=library, home=home)
        yield Whole(library, home, picture_of(library))


@pytest.fixture
def damaged(whole: Whole, place: Path) -> Path:
    """A copy of the library, to be damaged."""
    return Path(shutil.copytree(whole.library, place / "library"))


def places(library: Path, stream: str) -> list[tuple[int, int]]:
    """Offset and length of the batches of a stream."""
    catalog = Catalog.open(library / "catalog-1.sqlite3", read_only=True)
    found = catalog.rows("SELECT offset,length FROM batches WHERE stream=? ORDER BY 1", (stream,))
    catalog.close()
    return found


# ---------------------------------------------------------------- the item store


@pytest.mark.parametrize("stream", ["entries", "records", "sessions", "texts"])
def test_an_item_file_cut_anywhere_is_named_and_repaired(
    whole: Whole, place: Path, stream: str
) -> None:
    batches = places(whole.library, stream)
    assert len(batches) >= 3
    more = write_lines(place / "more.jsonl", conversation(1, start=900))
    cuts = {0, 1, *(o for o, _ in batches), *(o + n // 2 for o, n in batches)}
    for cut in sorted(cuts):
        library = Path(shutil.copytree(whole.library, place / f"cut-{cut}"))
        name = f"{stream}-000001.arrow"
        with open(library / "items-1" / name, "r+b") as file:
            file.truncate(cut)
        _assert_named_when_read(library, whole.picture, name)
        assert any(name in problem["problem"] for problem in check_library(library).problems)
        with Library.open(library) as opened, pytest.raises(Damaged, match=name):
            index_library(opened, [more])
        repair_library(library)
        assert check_library(library).problems == []
        with Library.open(library) as opened:
            index(opened, whole.home)
        assert check_library(library).problems == []
        assert texts(picture_of(library)) == texts(whole.picture)
        shutil.rmtree(library)


def _assert_named_when_read(library: Path, whole: dict[str, Any], name: str) -> None:
    """Each session answers as before, or with an error that names file, offset and check."""
    with Library.open(library) as opened:
        for session, told in whole.items():
            if session == "found":
                continue
            capture = opened.capture(session, live=False)
            for entry, text, _, _ in told[4]:
                try:
                    assert capture.text(capture.entry(entry.ordinal)) == text
                except Damaged as error:
                    assert name in error.message
                    assert NAMED.search(error.message), error.message


def test_a_text_that_was_lost_comes_back_from_its_source(whole: Whole, damaged: Path) -> None:
    offset, length = places(damaged, "texts")[0]
    path = damaged / "items-1" / "texts-000001.arrow"
    data = bytearray(path.read_bytes())
    data[offset + length // 2] ^= 1
    path.write_bytes(data)
    report = repair_library(damaged)
    assert all("texts-000001.arrow" in problem["problem"] for problem in report.problems[:1])
    assert texts(picture_of(damaged)).keys() == texts(whole.picture).keys()
    with Library.open(damaged) as opened:
        index(opened, whole.home)
    assert texts(picture_of(damaged)) == texts(whole.picture)


# ---------------------------------------------------------------- flipped bits


def flips(path: Path, count: int) -> list[tuple[int, int]]:
    """Bits of a file, chosen by its kind, so that each run takes the same."""
    rng = random.Random(path.suffix or path.name)
    size = path.stat().st_size
    return [(rng.randrange(size), rng.randrange(8)) for _ in range(count)]


def files_like(library: Path, pattern: str) -> list[str]:
    names = (str(path.relative_to(library)) for path in library.rglob("*") if path.is_file())
    return sorted(name for name in names if re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (r"items-1/.*", 20),
        (r"index-1/[0-9a-f]{32}.*", 5),
        (r"index-1/lexicon.*", 12),
        (r"index-1/\.managed\.json", 30),
        (r"library\.json", 80),
    ],
)
def test_any_flipped_bit_is_reported(
    damaged: Path, server: Children, pattern: str, count: int
) -> None:
    names = files_like(damaged, pattern)
    assert names
    for name in names:
        ended = server.run(
            "flips", library=damaged, file=name, flips=flips(damaged / name, count),
            queries=list(QUERIES),
        )  # fmt: skip
        assert ended.code == 0, (name, ended)
        assert "result" in ended.told, (name, ended.told.get("raw"))
        for flip, (is_reported, came) in zip(
            flips(damaged / name, count), ended.told["result"], strict=True
        ):
            assert is_reported, (name, flip, came)
            # In the item store it is found by who reads.
            assert came != "other" or not name.startswith("items-1"), (name, flip)


@pytest.mark.parametrize(("name", "count"), [("catalog-1.sqlite3", 150), ("index-1/meta.json", 60)])
def test_a_flipped_bit_is_reported_or_means_nothing(
    damaged: Path, server: Children, name: str, count: int
) -> None:
    chosen = flips(damaged / name, count)
    ended = server.run(
        "flips", library=damaged, file=name, flips=chosen, queries=list(QUERIES)
    )  # fmt: skip
    assert ended.code == 0, ended
    assert "result" in ended.told, ended.told.get("raw")
    told = ended.told["result"]
    for flip, (is_reported, came) in zip(chosen, told, strict=True):
        # What is between the rows of a database belongs to nobody.
        assert is_reported or came == "same", (flip, came)
    assert sum(is_reported for is_reported, _ in told) > count // 20


def test_a_flipped_bit_in_the_log_of_a_killed_writer_is_reported(
    whole: Whole, damaged: Path, server: Children
) -> None:
    grown = damaged.parent / "home"
    shutil.copytree(whole.home, grown)
    write_lines(claude_path(grown, "five"), conversation(1, start=700))
    control = Path(shutil.copytree(damaged, damaged.parent / "control"))
    calls = server.run("index", {"kill_at": 0}, library=control, home=grown).told["calls"]
    last = len(calls) - calls[::-1].index("commit")
    assert server.run("index", {"kill_at": last}, library=damaged, home=grown).was_killed
    name = "catalog-1.sqlite3-wal"
    size = (damaged / name).stat().st_size
    assert size
    assert check_library(damaged).problems == []
    for position, bit in flips(damaged / name, 60):
        data = bytearray((damaged / name).read_bytes())
        data[position] ^= 1 << bit
        (damaged / name).write_bytes(data)
        problems = check_library(damaged).problems
        assert any("write-ahead log" in each["problem"] for each in problems), (position, bit)
        data[position] ^= 1 << bit
        (damaged / name).write_bytes(data)
    assert "five" in picture_of(damaged)


# ---------------------------------------------------------------- what is lost as a whole


@pytest.mark.parametrize(
    "lost",
    ["library.json", "catalog-1.sqlite3", "index-1", "index-1/meta.json", "index-1/.managed.json",
     "index-1/lexicon-1.terms"],
)  # fmt: skip
@pytest.mark.parametrize("how", ["missing", "empty", "garbage"])
def test_repair_restores_what_the_item_store_tells(
    whole: Whole, damaged: Path, lost: str, how: str
) -> None:
    path = damaged / lost
    if path.is_dir():
        shutil.rmtree(path)
    elif how == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if how == "empty" else b"\xf0\x9f\xa6\x80 garbage" * 9)
    if path.exists() or lost != "library.json":
        assert check_library(damaged).problems
    repair_library(damaged)
    assert check_library(damaged).problems == []
    assert picture_of(damaged) == whole.picture
    with Library.open(damaged) as opened:
        index(opened, whole.home)
    assert picture_of(damaged) == whole.picture


def test_a_lost_manifest_is_no_reason_to_begin_anew(whole: Whole, damaged: Path) -> None:
    (damaged / "library.json").unlink()
    with pytest.raises(Damaged, match=r"library\.json"):
        Library.create(damaged)
    repair_library(damaged)
    assert picture_of(damaged) == whole.picture


def test_repair_keeps_what_was_forgotten(whole: Whole, damaged: Path, server: Children) -> None:
    server.run("forget", library=damaged, sessions=["one"])
    (damaged / "catalog-2.sqlite3").write_bytes(b"garbage")
    repair_library(damaged)
    assert check_library(damaged).problems == []
    with Library.open(damaged) as opened:
        index(opened, whole.home)
        assert "one" not in {row.session for row in opened.snapshot().rows()}
        index(opened, whole.home, again=True)
        assert "one" in {row.session for row in opened.snapshot().rows()}
