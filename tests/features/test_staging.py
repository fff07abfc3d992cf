from __future__ import annotations

import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex.errors import Failed, InvalidArgument, NotFound
from sessiondex.features.staging.backend import StagingBackend
from sessiondex.features.staging.folder import OUTCOMES, StagingFolder
from sessiondex.features.staging.ids import RecordIds, is_record_id
from sessiondex.features.staging.record import StagingRecord, parse_record
from sessiondex.indexer.library import Library
from tests.features.extract_runs import Host, record_ids
from tests.query.made_sessions import SECRET

WHEN = "2026-05-04T00:00:00.000Z"


def records(count: int = 1, **options: Any) -> list[StagingRecord]:
    host = Host(**options)
    for n in range(count):
        host.stage(f"Claim number {n} is true.")
    return list(host.shelf.records.values())


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# ---------------------------------------------------------------- ids


@given(st.integers(0, (1 << 48) - 1), st.binary(min_size=10, max_size=10))
def test_an_id_is_a_uuid7_of_its_clock(now: int, random: bytes) -> None:
    id = RecordIds(now_ms=lambda: now, random_bytes=lambda n: random)()
    assert is_record_id(id)
    if now or any(random):
        assert int(id.replace("-", "")[:12], 16) in (now, now + 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "../x",
        "019e7044-8800-4000-8000-000000000001",
        "019E7044-8800-7000-8000-00000000000A",
        "019e7044-8800-7000-8000-000000000001\n",
    ],
)
def test_what_is_no_uuid7_is_no_id(text: str) -> None:
    assert not is_record_id(text)


# ---------------------------------------------------------------- the record


def test_a_record_reads_back_as_what_was_written() -> None:
    (record,) = records()
    assert parse_record(record.to_bytes()).is_same(record)
    assert record.to_bytes().count(b"\n") == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 1}, "schema_version"),
        ({"schema_version": "2"}, "schema_version"),
        ({"id": "1"}, "id"),
        ({"id": "../../../etc/passwd"}, "id"),
        ({"kind": "fact"}, "kind"),
        ({"claim": " "}, "claim"),
        ({"extra": 1}, "extra"),
        ({"evidence": []}, "record"),
        ({"source_refs": []}, "record"),
        ({"source": {"segment_id": "s1", "range": [4, 3]}}, "source.range"),
        ({"source": {"segment_id": "s1", "range": [4]}}, "source.range"),
        ({"source": {"segment_id": "s1", "range": [True, 3]}}, "source.range"),
        ({"extensions": []}, "extensions"),
    ],
)
def test_what_is_no_record_of_version_2_is_refused_with_the_field(
    change: dict[str, Any], said: str
) -> None:
    (record,) = records()
    with pytest.raises(InvalidArgument, match=said):
        parse_record(orjson.dumps(record.to_json() | change))


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b'"\\ud800"', b"[" * 5_000])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        parse_record(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        parse_record(data)


def test_a_record_over_its_bound_is_refused_unread() -> None:
    with pytest.raises(InvalidArgument, match="65536"):
        parse_record(b" " * 65_537)


def test_a_foreign_record_is_masked_like_ours() -> None:
    (record,) = records()
    foreign = parse_record(orjson.dumps(record.to_json() | {"claim": f"use {SECRET}"}))
    assert foreign.masked().claim == "use [REDACTED:github_token]"
    assert foreign.masked().masked().is_same(foreign.masked())
    assert record.masked() is record


# ---------------------------------------------------------------- the folder


def test_a_staged_record_is_one_private_file(tmp_path: Path) -> None:
    folder = StagingFolder.beside(tmp_path)
    (record,) = records()
    folder.stage(record)
    assert isinstance(folder, StagingBackend)
    path = tmp_path / "staging" / f"{record.id}.json"
    assert files(tmp_path) == [f"staging/{record.id}.json"]
    assert json.loads(path.read_bytes()) == record.to_json()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_same_record_once_more_changes_nothing(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path)
    (record,) = records()
    folder.stage(record)
    before = os.stat(tmp_path / f"{record.id}.json")
    folder.stage(parse_record(record.to_bytes()))
    assert os.stat(tmp_path / f"{record.id}.json").st_ino == before.st_ino
    with pytest.raises(InvalidArgument, match="another record has the id"):
        folder.stage(record.model_copy(update={"claim": "Something else."}))
    assert folder.show(record.id).is_same(record)


def test_a_run_over_a_folder_leaves_one_file_a_candidate(tmp_path: Path) -> None:
    host = Host(backend=StagingFolder(tmp_path))
    ids = [host.stage(f"Claim number {n} is true.")["id"] for n in range(3)]
    host.stage("Claim number 1 is true.")
    assert files(tmp_path) == sorted(f"{id}.json" for id in ids)


def test_staging_lives_beside_a_library(tmp_path: Path) -> None:
    folder = StagingFolder.beside(tmp_path / "library")
    (record,) = records()
    folder.stage(record)
    Library.create(tmp_path / "library").close()
    assert [each.id for each in folder.waiting().records] == [record.id]


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_failure_leaves_nothing_or_the_whole_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    folder = StagingFolder(tmp_path)
    (record,) = records()
    real = getattr(os, call)
    for nth in range(2 if call == "fsync" else 1):
        calls = iter(range(10))

        def fail(*arguments: Any, nth: int = nth, calls: Any = calls) -> Any:
            if next(calls) == nth:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments)

        monkeypatch.setattr(os, call, fail)
        with pytest.raises(Failed, match="No space left"):
            folder.stage(record)
        monkeypatch.setattr(os, call, real)
        assert files(tmp_path) in ([], [f"{record.id}.json"])
    folder.stage(record)
    assert folder.show(record.id).is_same(record)
    assert files(tmp_path) == [f"{record.id}.json"]


def test_a_folder_that_cannot_be_made_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "staging").write_text("a file")
    with pytest.raises(Failed):
        StagingFolder(tmp_path / "staging").stage(records()[0])


# ---------------------------------------------------------------- listing


def test_listing_names_what_it_cannot_read_and_deletes_nothing(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path)
    known = records(2)
    for record in reversed(known):
        folder.stage(record)
    old = tmp_path / "batch-1.json"
    old.write_text(json.dumps({"schema_version": 1, "candidates": []}))
    (tmp_path / "notes.txt").write_text("not mine")
    (tmp_path / "copy.json").write_bytes(known[0].to_bytes())
    (tmp_path / "large.json").write_bytes(b"{" * 70_000)
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to(old)
    (tmp_path / ".unfinished").write_text("{")
    before = files(tmp_path)

    listing = folder.waiting()
    assert [record.id for record in listing.records] == [record.id for record in known]
    assert [each.file for each in listing.unreadable] == [
        "batch-1.json", "copy.json", "folder.json", "large.json", "link.json", "notes.txt",
        "pipe.json",
    ]  # fmt: skip
    assert all(each.reason for each in listing.unreadable)
    assert listing.to_json()["unreadable"][0]["file"] == "batch-1.json"
    assert files(tmp_path) == before


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert StagingFolder(tmp_path / "none").waiting().to_json() == {"records": [], "unreadable": []}
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("id", ["x", "../x", "019e7044-8800-7000-8000-00000000dead"])
def test_an_unknown_id_is_not_found(tmp_path: Path, id: str) -> None:
    folder = StagingFolder(tmp_path)
    with pytest.raises(NotFound):
        folder.show(id)
    with pytest.raises(NotFound):
        folder.close(id, "applied", "it is in the handbook now", closed_at=WHEN)


# ---------------------------------------------------------------- closing


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_closing_moves_a_record_to_the_resolutions_and_writes_nothing_else(
    tmp_path: Path, outcome: Any
) -> None:
    folder = StagingFolder(tmp_path)
    first, second = records(2)
    for record in (first, second):
        folder.stage(record)
    closed = folder.close(first.id, outcome, "  it is in the handbook now ", closed_at=WHEN)
    assert files(tmp_path) == sorted([f"{second.id}.json", f"resolutions/{first.id}.json"])
    assert closed.extensions["resolution"] == {
        "outcome": outcome, "reason": "it is in the handbook now", "closed_at": WHEN,
    }  # fmt: skip
    without = {**closed.extensions}
    del without["resolution"]
    assert closed.model_copy(update={"extensions": without}).is_same(first)
    assert [each.id for each in folder.waiting().records] == [second.id]
    assert folder.closed().records[0].is_same(closed)
    assert folder.show(first.id).is_same(closed)
    path = tmp_path / "resolutions" / f"{first.id}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_closing_once_more_the_same_way_changes_nothing_and_another_way_is_refused(
    tmp_path: Path,
) -> None:
    folder = StagingFolder(tmp_path)
    (record,) = records()
    folder.stage(record)
    closed = folder.close(record.id, "duplicate", "as before", closed_at=WHEN)
    again = folder.close(record.id, "duplicate", "as before", closed_at="2027-01-01T00:00:00.000Z")
    assert again.is_same(closed)
    for outcome, reason in (("applied", "as before"), ("duplicate", "for another reason")):
        with pytest.raises(InvalidArgument, match="closed as 'duplicate'"):
            folder.close(record.id, outcome, reason, closed_at=WHEN)  # type: ignore[arg-type]


def test_a_crash_between_the_two_steps_is_mended_by_closing_again(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path)
    (record,) = records()
    folder.stage(record)
    data = (tmp_path / f"{record.id}.json").read_bytes()
    folder.close(record.id, "applied", "done", closed_at=WHEN)
    (tmp_path / f"{record.id}.json").write_bytes(data)
    folder.close(record.id, "applied", "done", closed_at=WHEN)
    assert files(tmp_path) == [f"resolutions/{record.id}.json"]


def test_a_closed_record_is_not_staged_again(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path)
    (record,) = records()
    folder.stage(record)
    folder.close(record.id, "discarded", "not true", closed_at=WHEN)
    folder.stage(record)
    assert files(tmp_path) == [f"resolutions/{record.id}.json"]


@pytest.mark.parametrize(
    ("outcome", "reason"), [("done", "x"), ("applied", " "), ("applied", "x" * 2_001)]
)
def test_closing_needs_a_known_outcome_and_a_reason(
    tmp_path: Path, outcome: Any, reason: str
) -> None:
    folder = StagingFolder(tmp_path)
    (record,) = records()
    folder.stage(record)
    with pytest.raises(InvalidArgument):
        folder.close(record.id, outcome, reason, closed_at=WHEN)
    assert files(tmp_path) == [f"{record.id}.json"]


def test_a_reason_is_masked(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path)
    (record,) = records()
    folder.stage(record)
    folder.close(record.id, "invalid", f"it names {SECRET}", closed_at=WHEN)
    assert SECRET not in (tmp_path / "resolutions" / f"{record.id}.json").read_text()


def test_a_damaged_record_can_not_be_closed_and_is_named(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path)
    (record,) = records()
    folder.stage(record)
    (tmp_path / f"{record.id}.json").write_bytes(b"{")
    with pytest.raises(Failed, match=record.id):
        folder.close(record.id, "applied", "done", closed_at=WHEN)
    assert files(tmp_path) == [f"{record.id}.json"]


def test_a_run_finds_what_it_staged_also_when_it_was_closed(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path)
    host = Host(backend=folder)
    first, second = (host.stage(f"Claim number {n} is true.")["id"] for n in range(2))
    folder.close(first, "applied", "done", closed_at=WHEN)
    assert [each.id for each in folder.of_run("run-1")] == [first, second]
    assert list(folder.of_run("run-2")) == []
    again = Host(backend=folder, adopted=folder.of_run("run-1"), ids=record_ids(1_790_000_000_000))
    assert again.stage("Claim number 0 is true.")["already_staged"] is True
    assert again.stage("Claim number 2 is true.")["staged_count"] == 3


def test_several_runs_stage_into_one_folder_at_once(tmp_path: Path) -> None:
    folder = StagingFolder(tmp_path)
    barrier = threading.Barrier(4)
    failures: list[object] = []

    def run(number: int) -> None:
        host = Host(backend=folder, ids=record_ids(1_780_000_000_000 + number))
        barrier.wait(10)
        for n in range(5):
            reply = host.stage(f"Claim number {n} is true.")
            if "error" in reply:
                failures.append(reply)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert len(folder.waiting().records) == 20 and folder.waiting().unreadable == []
