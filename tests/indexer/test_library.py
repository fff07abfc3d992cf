"""A library on disk: what a refresh reads, what it keeps, and what captures go on answering."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import zstandard

from sessiondex.errors import Busy, Damaged, Failed, HiddenEntry, NotFound, PastEnd, Stale
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.check import check_library, repair_library
from sessiondex.indexer.forget import forget_sessions
from sessiondex.indexer.library import Epoch, Library
from sessiondex.indexer.lock import writer_lock
from sessiondex.indexer.refresh import RefreshOptions, index_library
from sessiondex.indexer.sources.base import SourceFile
from sessiondex.indexer.term_index import TermWriter
from sessiondex.model import EntryRef, Item, flag_names
from tests.builders import (
    Clock,
    claude_assistant,
    claude_path,
    claude_user,
    conversation,
    index,
    write_lines,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(params=["disk", "memory"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Library:
    return Library.create(tmp_path / "lib") if request.param == "disk" else Library.in_memory()


def everything(capture: Capture) -> list[object]:
    """All that a capture says, in a form that compares."""
    entries = capture.entries(0, capture.entry_count)
    return [
        capture.token,
        capture.record_count,
        capture.anchor_ordinals(0, capture.anchor_count),
        [capture.counts(n) for n in range(capture.entry_count + 1)],
        [(e, capture.text(e), capture.flags(e), capture.is_final(e)) for e in entries],
    ]


def test_refs_count_every_record_and_texts_are_whole(library: Library, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(3))
    report = index(library, home)
    assert (report.seen, report.indexed, report.entries) == (1, 1, 12)
    capture = library.capture("one")
    refs = [str(entry.ref) for entry in capture.entries(0, 99)]
    assert refs[:5] == ["E00000000", "E00000002", "E00000003", "E00000004", "E00000005"]
    assert capture.record_count == 15
    call = capture.entry(1)
    assert capture.text(call) == b"Bash\ncommand: grep -rn spindle_0 src/"
    result = capture.entry(2)
    assert (result.tool_name, result.call_id, result.error) == ("Bash", "call-0", False)
    assert capture.text(result, 4, 8) == b"a.py"


def test_a_hidden_an_unknown_and_a_late_ref_are_told_apart(library: Library, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(1))
    index(library, home)
    capture = library.capture("one")
    with pytest.raises(HiddenEntry):
        capture.ordinal(EntryRef(1))
    with pytest.raises(PastEnd):
        capture.ordinal(EntryRef(5))
    with pytest.raises(NotFound) as unknown:
        capture.ordinal(EntryRef(0, 3))
    assert unknown.value.kind == "not_found"
    assert capture.ordinal(EntryRef(3)) == 2


def test_turns_steps_and_final_answers(library: Library, home: Path) -> None:
    records = conversation(2)
    records.insert(4, claude_assistant("Looking closer.", 90))
    write_lines(claude_path(home, "one"), records)
    index(library, home)
    capture = library.capture("one")
    spoken = [e for e in capture.entries(0, 99) if e.kind == "assistant"]
    assert [(e.turn, e.step, capture.is_final(e)) for e in spoken] == [
        (1, 1, False), (1, 2, True), (2, 1, True),
    ]  # fmt: skip


def test_an_unchanged_file_is_not_read_again(library: Library, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    again = index(library, home)
    assert (again.seen, again.unchanged, again.indexed, again.bytes) == (1, 1, 0, 0)


def test_an_append_keeps_generation_and_refs(library: Library, home: Path) -> None:
    path = write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    before = library.capture("one")
    told = everything(before)
    write_lines(path, conversation(1, start=10), append=True)
    report = index(library, home)
    assert report.entries == 4
    after = library.capture("one")
    assert after.generation == before.generation == 1
    assert after.entries(0, 8) == before.entries(0, 8)
    assert (after.entry_count, after.entry(8).turn) == (12, 3)
    assert everything(before) == told


def test_reading_in_pieces_gives_what_reading_at_once_gives(tmp_path: Path) -> None:
    records = conversation(4)
    home, other = tmp_path / "a", tmp_path / "b"
    grown = Library.create(tmp_path / "grown")
    for n in range(len(records)):
        write_lines(claude_path(home, "one"), records[n : n + 1], append=True)
        index(grown, home)
    write_lines(claude_path(other, "one"), records)
    whole = Library.in_memory()
    index(whole, other)
    assert everything(grown.capture("one")) == everything(whole.capture("one"))


def test_a_rewrite_is_a_new_generation_that_knows_what_it_shares(
    library: Library, home: Path
) -> None:
    path = write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    old = library.capture("one")
    told = everything(old)
    records = conversation(2)
    records[7] = claude_assistant("Something else.", 7)
    write_lines(path, records)
    index(library, home)
    new = library.capture("one")
    assert (new.generation, new.row.shared) == (2, [7])
    new.admit(old.token, [EntryRef(6)])
    with pytest.raises(Stale):
        new.admit(old.token, [EntryRef(7)])
    assert everything(old) == told
    assert [row.session for row in library.snapshot().rows()] == ["one"]


def test_a_truncated_file_is_a_new_generation(library: Library, home: Path) -> None:
    path = write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    write_lines(path, conversation(1))
    index(library, home)
    capture = library.capture("one")
    assert (capture.generation, capture.entry_count, capture.row.shared) == (2, 4, [5])


def test_a_capture_answers_the_same_whatever_happens_later(tmp_path: Path, home: Path) -> None:
    library = Library.create(tmp_path / "lib")
    path = write_lines(claude_path(home, "one"), conversation(3))
    write_lines(claude_path(home, "two"), conversation(2, word="chuck"))
    index(library, home)
    capture = library.capture("one")
    told = everything(capture)
    for n in range(30):
        write_lines(path, conversation(1, start=100 + 5 * n), append=True)
        index(library, home)
    write_lines(path, conversation(1, word="gear"))
    index(library, home)
    forget_sessions(library, ["two"])
    forget_sessions(library, ["one"])
    repair_library(tmp_path / "lib")
    assert everything(capture) == told


def test_a_tail_without_newline_is_provisional_until_the_file_is_quiet(
    library: Library, home: Path
) -> None:
    path = write_lines(claude_path(home, "one"), conversation(1))
    with open(path, "a") as file:
        file.write(json.dumps(claude_user("still typing", 9)))
    written = path.stat().st_mtime
    clock = Clock(written + 10)
    index(library, home, clock=clock)
    live = library.capture("one", now=clock.now)
    assert live.entry_count == 5
    assert flag_names(live.entry(4).flags) == ["provisional"]
    assert live.committed().entry_count == 4
    assert live.token == live.committed().token
    clock.now = written + 301
    index(library, home, clock=clock)
    settled = library.capture("one", now=clock.now)
    assert (settled.entry_count, settled.entry(4).flags) == (5, 0)


def test_a_live_capture_shows_new_bytes_with_the_refs_they_will_have(
    library: Library, home: Path
) -> None:
    path = write_lines(claude_path(home, "one"), conversation(1))
    index(library, home)
    write_lines(path, conversation(1, start=5), append=True)
    live = library.capture("one")
    assert (live.entry_count, live.tail_first) == (8, 4)
    index(library, home)
    later = library.capture("one")
    assert later.tail_first == 8
    assert everything(live) == everything(later)


def test_a_live_capture_of_a_rewritten_file_is_of_the_next_generation(
    library: Library, home: Path
) -> None:
    path = write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    old = library.capture("one")
    write_lines(path, conversation(1) + conversation(2, word="gear", start=5))
    live = library.capture("one")
    assert live.generation == 2
    with pytest.raises(Stale):
        live.admit(old.token, [EntryRef(5)])
    live.admit(old.token, [EntryRef(4)])


def test_a_vanished_source_keeps_its_session(library: Library, home: Path) -> None:
    path = write_lines(claude_path(home, "one"), conversation(1))
    index(library, home)
    path.unlink()
    index(library, home)
    capture = library.capture("one")
    assert capture.entry_count == 4
    assert not capture.source_file().exists


def test_identical_texts_are_stored_once(library: Library, home: Path) -> None:
    long = "the same long tool output " * 400
    records = [claude_user(long, 0)]
    write_lines(claude_path(home, "one"), records)
    index(library, home)
    once = sum(info.size for info in library.epoch().store.files() if info.stream == "texts")
    for n in range(1, 6):
        write_lines(claude_path(home, f"s{n}"), [claude_user(long, n * 10)])
    index(library, home)
    files = library.epoch().store.files()
    assert sum(info.size for info in files if info.stream == "texts") == once
    assert library.capture("s5").text(library.capture("s5").entry(0)).decode() == long


def test_the_same_session_in_a_second_file_is_not_doubled(library: Library, home: Path) -> None:
    path = write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    copy = home / ".claude" / "projects" / "-backup" / "one.jsonl"
    write_lines(copy, conversation(2))
    index(library, home)
    assert [row.session for row in library.snapshot().rows()] == ["one"]
    write_lines(copy, conversation(1, start=10), append=True)
    index(library, home)
    capture = library.capture("one")
    assert (capture.generation, capture.entry_count, capture.source) == (1, 12, str(copy))
    path.unlink()


def test_another_session_of_the_same_id_gets_a_number(library: Library, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    other = home / ".claude" / "projects" / "-other" / "one.jsonl"
    write_lines(other, conversation(2, word="gear"))
    index(library, home)
    index(library, home)
    assert sorted(row.session for row in library.snapshot().rows()) == ["one", "one~2"]
    write_lines(other, conversation(1, word="gear", start=10), append=True)
    index(library, home)
    assert library.capture("one~2").entry_count == 12


def test_a_corrupt_line_is_numbered_and_reported(library: Library, home: Path) -> None:
    path = write_lines(claude_path(home, "one"), conversation(1))
    with open(path, "a") as file:
        file.write('{"type":"user","message":{"content":"torn\n')
    write_lines(path, conversation(1, start=5), append=True)
    report = index(library, home)
    (fault,) = report.corrupt_records
    assert (fault["file"], fault["line"]) == (str(path), 6)
    assert path.read_bytes()[fault["byte_offset"] :].startswith(b'{"type":"user","message"')
    capture = library.capture("one")
    assert str(capture.entry(4).ref) == "E00000006"
    with pytest.raises(HiddenEntry, match="corrupt"):
        capture.ordinal(EntryRef(5))


def test_forgetting_leaves_no_trace_and_index_skips_the_source(tmp_path: Path, home: Path) -> None:
    library = Library.create(tmp_path / "lib")
    write_lines(claude_path(home, "one"), conversation(2, word="quillwort"))
    write_lines(claude_path(home, "two"), conversation(2))
    index(library, home)
    forget_sessions(library, ["one"])
    library.close()
    for path in (tmp_path / "lib").rglob("*"):
        if path.is_file():
            assert b"quillwort" not in path.read_bytes(), path
    library = Library.open(tmp_path / "lib")
    with pytest.raises(NotFound):
        library.capture("one")
    assert library.capture("two").entry_count == 8
    report = index(library, home)
    assert (report.skipped, report.indexed) == (1, 0)
    index(library, home, again=True)
    assert library.capture("one").entry_count == 8
    assert check_library(tmp_path / "lib", sources=True).to_json()["problems"] == []


def test_forgetting_that_leaves_files_behind_says_so_and_the_library_goes_on(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    library = Library.create(tmp_path / "lib")
    write_lines(claude_path(home, "one"), conversation(1))
    write_lines(claude_path(home, "two"), conversation(1))
    index(library, home)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        with pytest.raises(Failed, match="remove an old part"):
            forget_sessions(library, ["one"])
    assert [row.session for row in library.snapshot().rows()] == ["two"]
    index(library, home)
    assert not list((tmp_path / "lib").glob("*-1*"))


def test_a_closed_library_says_that_it_was_closed(library: Library, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(1))
    index(library, home)
    capture = library.capture("one")
    library.close()
    for use in (library.snapshot, lambda: capture.entry(0), lambda: index(library, home)):
        with pytest.raises(Failed, match="was closed; open it again") as told:
            use()
        assert told.value.kind == "failed"


def test_a_run_that_fails_as_it_begins_leaves_room_for_the_next_while_its_error_is_kept(
    library: Library, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Failed("the disk refuses")

    write_lines(claude_path(home, "one"), conversation(1))
    with monkeypatch.context() as patch:
        patch.setattr(TermWriter, "delete_seq_from", refuse)
        with pytest.raises(Failed, match="refuses") as kept:
            index(library, home)
    assert index(library, home).entries == 4
    assert kept.value.__traceback__ is not None


def test_a_second_writer_is_told_who_holds_the_library(tmp_path: Path, home: Path) -> None:
    library = Library.create(tmp_path / "lib")
    write_lines(claude_path(home, "one"), conversation(1))
    with (
        writer_lock(tmp_path / "lib" / "writer.lock", wait_seconds=0),
        pytest.raises(Busy, match=f"pid {os.getpid()}"),
    ):
        index(library, home, wait_seconds=0)
    assert index(library, home).indexed == 1


def test_folder_and_files_are_private(tmp_path: Path, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(1))
    old = os.umask(0)
    try:
        index(Library.create(tmp_path / "lib"), home)
    finally:
        os.umask(old)
    for path in [tmp_path / "lib", *(tmp_path / "lib").rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        if path.is_dir():
            assert mode == 0o700, path
        else:
            assert mode & 0o077 == 0, (path, oct(mode))


def test_no_library_says_which_command_makes_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="sessiondex index"):
        Library.open(tmp_path / "nothing")


def test_a_folder_with_other_files_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(Failed, match="thesis"):
        Library.create(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex"]


def test_a_failed_file_does_not_stop_the_others(library: Library, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(1))
    broken = home / "broken.json"
    broken.write_text('{"schema_version": "ATIF-v1.2", "steps": [')
    report = index_library(
        library, [broken, claude_path(home, "one")], options=RefreshOptions(clock=Clock())
    )
    assert report.indexed == 1
    assert report.failed + report.skipped == 1


def test_a_compressed_file_that_was_cut_keeps_its_readable_records_and_is_reported(
    library: Library, home: Path
) -> None:
    path = claude_path(home, "one").with_suffix(".jsonl.zst")
    path.parent.mkdir(parents=True)
    lines = "".join(f"{json.dumps(record)}\n" for record in conversation(2_000)).encode()
    packed = zstandard.ZstdCompressor().compress(lines)
    path.write_bytes(packed[: len(packed) // 2])
    for _ in range(2):  # until it is whole
        report = index(library, home)
        assert report.failures == [
            {"file": str(path), "reason": "damaged compression (the file was cut)"}
        ]
        assert (report.indexed, report.failed) == (0, 1)
        assert 0 < library.capture("one").entry_count < 8_000
    path.write_bytes(packed)
    assert index(library, home).failures == []
    capture = library.capture("one")
    assert (capture.generation, capture.entry_count) == (1, 8_000)


def test_a_list_of_items_is_a_capture_whose_refs_are_its_positions() -> None:
    capture = Capture.from_items(
        [
            Item(0, "user", "hello"),
            Item(0, "reasoning"),
            {"type": "tool_call", "call_id": "c", "name": "Read", "arguments": '{"path": "a"}'},
            {"type": "tool_result", "call_id": "c", "summary": "ok", "content": "text"},
            Item(0, "assistant", "done"),
        ]
    )
    assert [str(e.ref) for e in capture.entries(0, 9)] == [
        "E00000000", "E00000002", "E00000003", "E00000004",
    ]  # fmt: skip
    assert capture.entry(2).tool_name == "Read"
    with pytest.raises(HiddenEntry):
        capture.ordinal(EntryRef(1))


def test_excluded_projects_are_never_indexed(library: Library, home: Path) -> None:
    write_lines(claude_path(home, "one"), conversation(1))
    report = index(library, home, exclude=("/home/ada/*",))
    assert report.entries == 0
    assert list(library.snapshot().rows()) == []


def test_a_file_that_could_not_be_read_is_read_when_it_can(
    library: Library, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(claude_path(home, "one"), conversation(1))

    def refused(self: SourceFile, offset: int = 0) -> BinaryIO:
        raise PermissionError(13, "Permission denied", str(self.path))

    for turns in (0, 1):
        write_lines(path, conversation(turns, start=5), append=True)
        with monkeypatch.context() as patched:
            patched.setattr(SourceFile, "open", refused)
            for _ in range(2):
                report = index(library, home)
                assert report.failures == [
                    {"file": str(path), "reason": "unreadable: Permission denied"}
                ]
                assert (report.failed, report.skipped) == (1, 0)
        assert index_library(library, options=RefreshOptions(home=home, clock=Clock())).indexed == 1
        assert library.capture("one").record_count == 5 + 5 * turns
        assert index(library, home).unchanged == 1


def test_a_known_file_that_was_broken_for_a_while_stays_known(
    library: Library, tmp_path: Path
) -> None:
    chat = tmp_path / "elsewhere" / "chat.json"
    chat.parent.mkdir()
    messages = [{"role": "user", "content": "where is the pump?"}]
    chat.write_text(json.dumps(messages))
    empty = RefreshOptions(home=tmp_path / "nobody", clock=Clock())
    assert index_library(library, [chat], options=empty).indexed == 1
    (session,) = [row.session for row in library.snapshot().rows()]
    messages.append({"role": "assistant", "content": "below the third deck"})
    whole = json.dumps(messages)
    for broken in (whole[: len(whole) // 2], "no session at all", ""):
        chat.write_text(broken)  # read while it is being written
        assert index_library(library, options=empty).indexed == 0
        assert library.capture(session, live=False).entry_count == 1
    chat.write_text(whole)
    assert index_library(library, options=empty).indexed == 1
    assert library.capture(session).entry_count == 2


def test_a_look_at_an_epoch_that_is_taken_away_meanwhile_is_of_the_next_one(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        write_lines(claude_path(home, name), conversation(1))
    folder = tmp_path / "shared"
    with Library.create(folder) as reader, Library.open(folder) as other:
        index(other, home)
        whole, looks = Epoch.searcher, []

        def searcher(epoch: Epoch, commit: int) -> Any:
            looks.append(epoch.number)
            if len(looks) == 1:
                monkeypatch.setattr(Epoch, "searcher", whole)
                forget_sessions(other, ["one"])
                raise Damaged("cannot read the term index: no such file")
            return whole(epoch, commit)

        reader.epoch()
        monkeypatch.setattr(Epoch, "searcher", searcher)
        assert [row.session for row in reader.snapshot().rows()] == ["two"]


def test_what_is_damaged_in_an_epoch_that_stays_is_told(
    library: Library, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(claude_path(home, "one"), conversation(1))
    index(library, home)

    def searcher(epoch: Epoch, commit: int) -> Any:
        raise Damaged("cannot read the term index: no such file")

    monkeypatch.setattr(Epoch, "searcher", searcher)
    with pytest.raises(Damaged, match="term index"):
        library.snapshot()
