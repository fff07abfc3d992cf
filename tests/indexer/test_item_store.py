"""The item store: what is written comes back, or `Damaged` names what is wrong."""

from __future__ import annotations

import os
import resource
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from sessiondex.errors import Damaged, Failed
from sessiondex.indexer.item_store import (
    STREAMS,
    BatchInfo,
    Committed,
    Flushed,
    ItemStore,
    StoreWriter,
    entry_rows,
    entry_runs,
    record_rows,
    record_runs,
    text_head,
    text_run,
    text_slice,
)
from sessiondex.indexer.store_files import MemoryFolder, StoredFile
from sessiondex.model import Attachment, Entry, EntryRef, Record


def entry(ordinal: int, **changes: object) -> Entry:
    values: dict[str, object] = {
        "ordinal": ordinal,
        "ref": EntryRef(ordinal * 2, 1),
        "kind": "tool",
        "tool_part": "output",
        "tool_name": "Bash",
        "call_id": f"call-{ordinal}",
        "error": False,
        "sub_kind": "",
        "flags": 5,
        "timestamp": 1_700_000_000_000 + ordinal,
        "turn": 3,
        "step": 0,
        "cwd": "/srv/cargo",
        "branch": "main",
        "model": "model-1",
        "total_bytes": 12,
        "summary": "",
        "attachments": [],
        "is_anchor": False,
        "identity": ordinal * 7,
        "replayed": False,
        "plan": "",
        "pointer": "",
    }
    return Entry(**(values | changes))  # type: ignore[arg-type]


def record(number: int) -> Record:
    return Record(number, number * 100, 99, number + 1, number.to_bytes(8, "big"))


def fill(writer: StoreWriter, session: int, entries: int, text: bytes = b"hello world ") -> Flushed:
    for ordinal in range(entries):
        text_id = session * 10_000 + ordinal
        writer.add_text(text_id, b"%d " % ordinal + text)
        writer.add_entry(session, entry(ordinal), text_id, text_head(text))
        writer.add_record(session, record(ordinal), 1)
    writer.add_session(f'{{"session": {session}}}')
    return writer.flush()


def of(stream: str, flushed: Flushed) -> list[BatchInfo]:
    return [info for info in flushed.batches if info.stream == stream]


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ItemStore:
    return ItemStore.create(None if request.param == "memory" else tmp_path / "items")


# ---------------------------------------------------------------- round trips

NATURALS = st.integers(0, 2**32 - 1)
LARGE = st.integers(0, 2**64 - 1)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KINDS = st.sampled_from(
    [("user", None), ("assistant", None), ("system", None), ("tool", "input"), ("tool", "output")]
)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    kind, part = draw(KINDS)
    return Entry(
        draw(NATURALS),
        EntryRef(draw(st.integers(0, 10**12 - 1)), draw(NATURALS)),
        kind,
        part,
        draw(WORDS),
        draw(WORDS),
        draw(st.sampled_from([None, True, False])),
        draw(WORDS),
        draw(NATURALS),
        draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        draw(NATURALS),
        draw(NATURALS),
        draw(WORDS),
        draw(WORDS),
        draw(WORDS),
        draw(LARGE),
        draw(WORDS),
        draw(st.lists(st.builds(Attachment, WORDS, LARGE), max_size=2)),
        draw(st.booleans()),
        draw(LARGE),
        draw(st.booleans()),
        draw(WORDS),
        draw(WORDS),
    )


RECORDS = st.builds(
    Record,
    LARGE,
    LARGE,
    LARGE,
    LARGE,
    st.binary(min_size=8, max_size=8),
    blocks=NATURALS,
    pointer=WORDS,
    corrupt=WORDS,
    oversized=st.booleans(),
)
TEXTS = st.builds(
    lambda text, times: (text * times).encode(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from([1, 1, 1, 200, 9_000]),
)
FLUSH = st.none()


class Wrote(NamedTuple):
    flushes: list[Flushed]
    entries: list[tuple[int, Entry, int, bytes | None]]
    records: list[tuple[int, Record, int]]
    texts: list[bytes]


def write(writer: StoreWriter, operations: list[tuple[str, object] | None]) -> Wrote:
    wrote = Wrote([], [], [], [])
    for operation in operations:
        if operation is None:
            wrote.flushes.append(writer.flush())
            continue
        what, value = operation
        if isinstance(value, bytes):
            writer.add_text(len(wrote.texts), value)
            wrote.texts.append(value)
        elif isinstance(value, Entry):
            head = value.cwd.encode() or None
            writer.add_entry(int(what), value, value.turn, head)
            wrote.entries.append((int(what), value, value.turn, head))
        elif isinstance(value, Record):
            writer.add_record(int(what), value, value.blocks)
            wrote.records.append((int(what), value, value.blocks))
    wrote.flushes.append(writer.flush())
    return wrote


def check_holds(store: ItemStore, wrote: Wrote) -> None:
    stored_entries: list[tuple[int, Entry, int, bytes | None]] = []
    stored_records: list[tuple[int, Record, int]] = []
    texts: list[BatchInfo] = []
    for flushed in wrote.flushes:
        for run in flushed.entry_runs:
            batch = store.read(flushed.batches[run.batch_index])
            rows = entry_rows(batch, run.row0, run.row0 + run.rows)
            stored_entries += [(run.session, *row) for row in rows]
            numbers = [row.entry.ordinal for row in rows]
            assert numbers == list(range(run.first_ordinal, run.first_ordinal + run.rows))
            assert (run.first_record, run.last_record) == (
                rows[0].entry.ref.record,
                rows[-1].entry.ref.record,
            )
        for run in flushed.record_runs:
            batch = store.read(flushed.batches[run.batch_index])
            rows = record_rows(batch, run.row0, run.row0 + run.rows)
            stored_records += [(run.session, *row) for row in rows]
            assert rows[0].record.number == run.first_record
        texts += of("texts", flushed)
    assert stored_entries == wrote.entries
    assert stored_records == wrote.records
    for text_id, text in enumerate(wrote.texts):
        assert store.text(texts, text_id) == text
        assert store.text(texts, text_id, len(text) // 3, len(text)) == text[len(text) // 3 :]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.none()
        | st.tuples(st.sampled_from("123"), entries())
        | st.tuples(st.sampled_from("123"), RECORDS)
        | st.tuples(st.just(""), TEXTS),
        max_size=40,
    )
)
def test_what_is_written_is_read_in_memory_and_on_disk_alike(
    operations: list[tuple[str, object] | None],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        in_memory, on_disk = ItemStore.create(None), ItemStore.create(Path(folder) / "items")
        wrote = write(in_memory.writer({}), operations)
        assert write(on_disk.writer({}), operations) == wrote
        check_holds(in_memory, wrote)
        check_holds(ItemStore.open(Path(folder) / "items"), wrote)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3_000)), min_size=1, max_size=12),
    st.data(),
)
def test_a_slice_of_a_text_equals_the_slice_of_its_bytes(
    shapes: list[tuple[int, int]], data: st.DataObject
) -> None:
    texts = [("aß語🦀x"[:width] * times * 9).encode() for width, times in shapes]
    store = ItemStore.create(None)
    writer = store.writer({})
    for text_id, text in enumerate(texts):
        writer.add_text(text_id, text)
    flushed = writer.flush()
    text_id = data.draw(st.integers(0, len(texts) - 1))
    size = len(texts[text_id])
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    # What a library does: from the last batch that begins at or before the wanted byte.
    first = max(
        run.batch_index
        for run in flushed.text_runs
        if (run.first_text_id, run.first_start) <= (text_id, start)
    )
    infos = iter(flushed.batches[first:])
    assert store.text(infos, text_id, start, stop) == texts[text_id][start:stop]
    if start < stop:
        needed = sum(
            first <= run.batch_index and (run.first_text_id, run.first_start) < (text_id, stop)
            for run in flushed.text_runs
        )
        assert len(flushed.batches) - first - len(list(infos)) <= needed


def test_chunks_of_a_long_text_are_whole_code_points_of_at_most_64_kib(store: ItemStore) -> None:
    text = ("x" + "語" * 100_000).encode()
    writer = store.writer({})
    writer.add_text(7, text)
    flushed = writer.flush()
    assert store.text(flushed.batches, 7, 200_000, 200_010) == text[200_000:200_010]
    chunks = [
        chunk
        for info in flushed.batches
        for chunk in store.read(info).column("text").cast(pa.binary()).to_pylist()
    ]
    assert b"".join(chunks) == text
    assert max(map(len, chunks)) <= 64 * 1024
    assert all(chunk.decode() for chunk in chunks)


def test_texts_may_be_added_in_any_order_of_ids(store: ItemStore) -> None:
    writer = store.writer({})
    for text_id in (9, 3, 5, 1):
        writer.add_text(text_id, b"text %d" % text_id)
    flushed = writer.flush()
    assert [run[:2] for run in flushed.text_runs] == [(9, 9), (3, 5), (1, 1)]
    assert store.text(flushed.batches, 5) == b"text 5"
    assert store.text(flushed.batches, 5, 3, 6) == b"t 5"


def test_a_head_is_the_first_kib_of_a_text_above_two_and_ends_between_code_points() -> None:
    assert text_head(b"x" * 2048) is None
    assert text_head(b"x" * 2049) == b"x" * 1024
    assert text_head(("x" + "語" * 1000).encode()) == ("x" + "語" * 341).encode()
    assert text_head(b"\x80" * 3000) == b"\x80" * 1024  # no UTF-8: cut where it stands


def test_missing_bytes_of_a_text_are_damage(store: ItemStore) -> None:
    writer = store.writer({})
    writer.add_text(1, b"a" * 300_000)
    infos = writer.flush().batches
    with pytest.raises(Damaged, match="text 2 lacks bytes 0"):
        store.text(infos, 2)
    with pytest.raises(Damaged, match="text 1 lacks bytes 0 to 65536"):
        store.text(infos[1:], 1)
    with pytest.raises(Damaged, match="text 1 lacks bytes"):
        store.text(infos[:2], 1, 0, 300_000)
    assert text_slice([], 1, 5, 5) == b""


def test_lone_surrogates_of_a_name_are_stored_as_replacement_characters(store: ItemStore) -> None:
    writer = store.writer({})
    writer.add_entry(1, entry(0, cwd="/a\ud800", call_id="\udfff"), 1)
    writer.add_entry(1, entry(1, cwd="/a", call_id="\udfff"), 1)
    rows = entry_rows(store.read(writer.flush().batches[0]), 0, 2)
    assert [(row.entry.cwd, row.entry.call_id) for row in rows] == [("/a�", "�"), ("/a", "�")]


# ---------------------------------------------------------------- batches and files


def test_many_small_sessions_share_batches(store: ItemStore) -> None:
    writer = store.writer({})
    for session in range(300):
        for ordinal in range(3):
            writer.add_entry(session, entry(ordinal), 0)
            writer.add_record(session, record(ordinal), 1)
        writer.add_session("{}")
    flushed = writer.flush()
    assert len(of("entries", flushed)) < 5
    assert len(of("records", flushed)) == len(of("sessions", flushed)) == 1
    pieces = [(run.session, run.rows) for run in flushed.entry_runs]
    assert sum(rows for _, rows in pieces) == 900
    assert sorted({session for session, _ in pieces}) == list(range(300))
    assert len(flushed.record_runs) == 300


def test_full_batches_reach_the_file_before_a_flush(tmp_path: Path) -> None:
    store = ItemStore.create(tmp_path)
    writer = store.writer({})
    for text_id in range(100):
        writer.add_text(text_id, os.urandom(5_000).hex().encode())
    (texts,) = store.files()
    assert texts.size > 300_000


def test_a_stream_goes_on_in_a_new_file_beyond_the_limit(tmp_path: Path) -> None:
    store = ItemStore.create(tmp_path, max_file_bytes=100_000)
    writer = store.writer({})
    texts = [os.urandom(20_000).hex().encode() for _ in range(30)]
    for text_id, text in enumerate(texts):
        writer.add_text(text_id, text)
    flushed = writer.flush()
    files = [info for info in store.files() if info.stream == "texts"]
    assert [info.number for info in files] == list(range(1, len(files) + 1))
    assert len(files) > 5
    assert max(info.size for info in files) <= 100_000
    assert flushed.lengths["texts"] == (files[-1].number, files[-1].size)
    assert [store.text(flushed.batches, text_id) for text_id in range(30)] == texts
    assert [info for info, _ in store.scan("texts")] == flushed.batches


def test_folder_and_files_are_private_and_plain_arrow_streams(tmp_path: Path) -> None:
    store = ItemStore.create(tmp_path / "items")
    fill(store.writer({}), 1, 500)
    assert stat.S_IMODE(os.stat(tmp_path / "items").st_mode) == 0o700
    names = sorted(os.listdir(tmp_path / "items"))
    assert names == [f"{stream}-000001.arrow" for stream in sorted(STREAMS)]
    for name in names:
        assert stat.S_IMODE(os.stat(tmp_path / "items" / name).st_mode) == 0o600
    with ipc.open_stream(str(tmp_path / "items" / "entries-000001.arrow")) as stream:
        assert stream.read_all().num_rows == 500


def test_reading_some_columns_gives_just_those(store: ItemStore) -> None:
    (info,) = of("entries", fill(store.writer({}), 1, 20))
    batch = store.read(info, ["ordinal", "text_id"])
    assert batch.to_pydict() == {
        "ordinal": list(range(20)),
        "text_id": list(range(10_000, 10_020)),
    }


def test_large_session_descriptions_take_several_batches(store: ItemStore) -> None:
    writer = store.writer({})
    descriptions = [f'{{"title": "{"x" * 30_000}", "number": {number}}}' for number in range(10)]
    for description in descriptions:
        writer.add_session(description)
    infos = writer.flush().batches
    assert len(infos) == 4
    found = [row["json"] for info in infos for row in store.read(info).to_pylist()]
    assert found == descriptions


def test_an_empty_flush_touches_nothing(store: ItemStore) -> None:
    flushed = store.writer({}).flush()
    assert flushed == ([], [], [], [], {stream: Committed(1, 0) for stream in STREAMS})
    assert store.files() == []


# ---------------------------------------------------------------- writers that died


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 400), st.booleans())
def test_a_writer_drops_what_a_dead_one_left_and_goes_on(
    committed: int, left: int, added: int, is_flushed: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = ItemStore.create(Path(folder), max_file_bytes=20_000)
        first = fill(store.writer({}), 1, committed)
        dead = store.writer(first.lengths)
        for ordinal in range(left):
            dead.add_text(20_000 + ordinal, os.urandom(300).hex().encode())
        if is_flushed:
            assert all(store.read(info) for info in dead.flush().batches)
        again = ItemStore.open(Path(folder), max_file_bytes=20_000)
        second = fill(again.writer(first.lengths), 2, added)
        for reader in (store, again):
            infos = [*first.batches, *second.batches]
            for stream in STREAMS:
                expected = [info for info in infos if info.stream == stream]
                assert [info for info, _ in reader.scan(stream)] == expected
            for info in infos:
                reader.read(info)
            last = [info for info in reader.files() if info.stream == "texts"][-1]
            assert second.lengths["texts"] == (last.number, last.size)


def test_a_writer_refuses_a_file_below_its_committed_length_and_changes_nothing(
    tmp_path: Path,
) -> None:
    store = ItemStore.create(tmp_path)
    lengths = fill(store.writer({}), 1, 10).lengths
    entries_file = tmp_path / "entries-000001.arrow"
    with open(tmp_path / "texts-000001.arrow", "ab") as file:
        file.write(b"left by a dead writer")
    os.truncate(entries_file, lengths["entries"].length - 1)
    before = store.files()
    with pytest.raises(Damaged, match=r"entries-000001\.arrow ends at \d+, committed are \d+"):
        store.writer(lengths)
    entries_file.unlink()
    with pytest.raises(Damaged, match=r"entries-000001\.arrow is missing"):
        store.writer(lengths)
    assert store.files() == [info for info in before if info.stream != "entries"]


def test_a_failed_writer_refuses_everything_that_follows(store: ItemStore) -> None:
    writer = store.writer({})
    with pytest.raises(OverflowError):
        writer.add_entry(-1, entry(0), 1)
        writer.flush()
    for call in (
        lambda: writer.add_text(1, b""),
        lambda: writer.add_entry(1, entry(0), 1),
        lambda: writer.add_record(1, record(0), 1),
        lambda: writer.add_session("{}"),
        writer.flush,
    ):
        with pytest.raises(Failed, match="failed before"):
            call()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda writer: writer.add_text("x", b"") or writer.add_text(1, b""),
        lambda writer: writer.add_entry(1, None, 1),
        lambda writer: writer.add_record(1, None, 1),
        lambda writer: writer.add_session(None),
    ],
)
def test_a_writer_is_dead_after_an_exception_in_any_call(spoil) -> None:  # type: ignore[no-untyped-def]
    writer = ItemStore.create(None).writer({})
    with pytest.raises((TypeError, AttributeError)):
        spoil(writer)
    with pytest.raises(Failed):
        writer.flush()


def test_a_disk_that_refuses_is_a_failure_that_names_the_file(tmp_path: Path) -> None:
    store = ItemStore.create(tmp_path)
    lengths = fill(store.writer({}), 1, 10).lengths
    writer = store.writer({**lengths, "texts": (5, 0)})
    (tmp_path / "texts-000005.arrow").mkdir()
    writer.add_text(1, b"text")
    with pytest.raises(Failed, match=r"cannot create .*texts-000005\.arrow"):
        writer.flush()


def test_files_with_columns_of_another_release_are_kept_and_get_no_new_rows(
    tmp_path: Path,
) -> None:
    store = ItemStore.create(tmp_path)
    first = fill(store.writer({}), 1, 10)
    path = tmp_path / "sessions-000001.arrow"
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    second = fill(store.writer(first.lengths), 2, 10)
    assert second.lengths["sessions"].file == 2
    assert store.read(of("sessions", second)[0]).to_pylist() == [{"json": '{"session": 2}'}]


# ---------------------------------------------------------------- readers


def test_a_pinned_reader_reads_files_that_are_removed_and_replaced(store: ItemStore) -> None:
    first = fill(store.writer({}), 1, 50)
    before = [store.read(info) for info in first.batches]
    pinned = store.pinned()
    store.remove_files([info.name for info in store.files()])
    assert store.files() == []
    with pytest.raises(Damaged, match="missing"):
        store.read(first.batches[0])
    second = fill(store.writer({}), 2, 70)
    assert [pinned.read(info) for info in first.batches] == before
    assert [store.read(info).num_rows for info in second.batches] == [
        info.rows for info in second.batches
    ]


def test_a_reader_follows_a_file_that_a_later_writer_made_under_the_same_name(
    store: ItemStore,
) -> None:
    left = fill(store.writer({}), 1, 50)
    reader = store.pinned()
    assert reader.read(left.batches[0]).num_rows == 50
    flushed = fill(store.writer({}), 2, 70)
    with pytest.raises(Damaged, match="crc32 check"):
        reader.read(flushed.batches[0]._replace(crc=1))
    assert [reader.read(info).num_rows for info in flushed.batches] == [70, 70, 70, 1]


def test_a_reader_sees_batches_that_were_appended_after_it_opened_the_file(
    store: ItemStore,
) -> None:
    first = fill(store.writer({}), 1, 5)
    reader = store.pinned()
    second = fill(store.writer(first.lengths), 2, 6)
    assert [reader.read(info).num_rows for info in second.batches] == [6, 6, 6, 1]


def test_many_threads_read_while_a_writer_appends(store: ItemStore) -> None:
    first = fill(store.writer({}), 1, 700)
    right = [store.read(info) for info in first.batches]
    reader = store.pinned()

    def read_all() -> bool:
        return [reader.read(info) for info in first.batches] == right

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(read_all) for _ in range(40)]
        lengths = first.lengths
        for session in range(2, 8):
            lengths = fill(store.writer(lengths), session, 200).lengths
        assert all(answer.result() for answer in answers)


def test_opening_a_store_that_is_not_there_is_damage(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="missing"):
        ItemStore.open(tmp_path / "nowhere")


def test_runs_can_be_made_from_a_scan(store: ItemStore) -> None:
    flushed = fill(store.writer({}), 1, 3_000)
    scanned = {stream: [batch for _, batch in store.scan(stream)] for stream in STREAMS}
    order = [info for stream in STREAMS for info in of(stream, flushed)]
    index = [flushed.batches.index(info) for info in order]
    batches = [batch for stream in STREAMS for batch in scanned[stream]]
    runs = {"entries": [], "records": [], "texts": []}
    for info, batch_index, batch in zip(order, index, batches, strict=True):
        if info.stream == "entries":
            runs["entries"] += entry_runs(batch, batch_index)
        elif info.stream == "records":
            runs["records"] += record_runs(batch, batch_index)
        elif info.stream == "texts":
            runs["texts"].append(text_run(batch, batch_index))
    assert runs == {
        "entries": flushed.entry_runs,
        "records": flushed.record_runs,
        "texts": flushed.text_runs,
    }


# ---------------------------------------------------------------- disks that fail


def test_a_full_disk_fails_the_writer_and_keeps_what_was_committed(tmp_path: Path) -> None:
    store = ItemStore.create(tmp_path)
    first = fill(store.writer({}), 1, 50)
    writer = store.writer(first.lengths)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(Failed, match=r"cannot write .*texts-000001\.arrow: File too large"):
            for text_id in range(100):
                writer.add_text(50_000 + text_id, os.urandom(5_000).hex().encode())
            writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    second = fill(store.writer(first.lengths), 2, 50)
    assert [info for info, _ in store.scan("texts")] == of("texts", first) + of("texts", second)


class GhostFolder(MemoryFolder):
    """Lists a file that is gone when it is looked at."""

    def names(self) -> list[str]:
        return [*super().names(), "texts-000009.arrow", "notes.txt", "texts-1.arrow"]


def test_a_file_that_vanishes_after_it_was_listed_is_passed_over() -> None:
    store = ItemStore(GhostFolder())
    flushed = fill(store.writer({}), 1, 5)
    assert [info for info, _ in store.scan("texts")] == of("texts", flushed)
    assert len(store.files()) == 4
    assert store.pinned().read(flushed.batches[0]).num_rows == 5


class FaultyFile:
    """A file whose writes may stop half-way and whose syncs may fail."""

    def __init__(self, folder: FaultyFolder, file: StoredFile) -> None:
        self._folder, self._file = folder, file
        self.identity = file.identity
        self.size, self.read = file.size, file.read

    def write(self, offset: int, data: bytes) -> None:
        try:
            self._folder.step()
        except Failed:
            self._file.write(offset, data[: len(data) // 2])
            raise
        self._file.write(offset, data)

    def truncate(self, length: int) -> None:
        self._folder.step()
        self._file.truncate(length)

    def sync(self) -> None:
        self._folder.step()


class FaultyFolder(MemoryFolder):
    """Fails its n-th change."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_left = 1_000_000

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise Failed("the disk is full")

    def open(self, name: str, *, writable: bool = False) -> StoredFile | None:
        file = super().open(name)
        return FaultyFile(self, file) if file and writable else file

    def create(self, name: str) -> StoredFile:
        self.step()
        return FaultyFile(self, super().create(name))

    def remove(self, name: str) -> None:
        self.step()
        super().remove(name)

    def sync(self) -> None:
        self.step()


def test_whichever_step_fails_what_was_committed_stays_and_the_next_writer_goes_on() -> None:
    outcomes: set[bool] = set()
    for steps in range(1, 60):
        folder = FaultyFolder()
        store = ItemStore(folder, max_file_bytes=6_000)
        first = fill(store.writer({}), 1, 60)
        dead = store.writer(first.lengths)
        fill(dead, 2, 100)  # never committed by a catalog: the next writer removes it
        folder.steps_left = steps
        writer = None
        try:
            writer = store.writer(first.lengths)
            fill(writer, 3, 200)
            outcomes.add(True)
        except Failed:
            outcomes.add(False)
            if writer is not None:
                with pytest.raises(Failed, match="failed before"):
                    writer.flush()
        folder.steps_left = 1_000_000
        assert all(store.read(info).num_rows == info.rows for info in first.batches)
        third = fill(store.writer(first.lengths), 4, 30)
        for stream in STREAMS:
            expected = of(stream, first) + of(stream, third)
            assert [info for info, _ in store.scan(stream)] == expected
    assert outcomes == {True, False}


# ---------------------------------------------------------------- damage


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[tuple[ItemStore, Flushed, Path]]:
    store = ItemStore.create(tmp_path / "items")
    writer = store.writer({})
    parts = [fill(writer, session, 700, b"some words of text ") for session in range(3)]
    batches = [info for part in parts for info in part.batches]
    yield store, parts[-1]._replace(batches=batches), tmp_path / "items"


def test_flipped_bits_are_damage_or_harmless_wherever_they_are(
    filled: tuple[ItemStore, Flushed, Path],
) -> None:
    store, flushed, folder = filled
    right = {info: store.read(info) for info in flushed.batches}
    detected = 0
    for name in sorted(os.listdir(folder)):
        good = (folder / name).read_bytes()
        infos = [info for info in flushed.batches if name.startswith(info.stream)]
        edges = [info.offset for info in infos]
        near = {edge + delta for edge in edges for delta in (0, 1, 4, 5, 8, 40, 92, 100, 110)}
        places = sorted({*range(0, edges[0], 7), *range(0, len(good), 211), *near})
        for place in places:
            bad = bytearray(good)
            bad[place] ^= 1 << (place % 8)
            (folder / name).write_bytes(bad)
            for info in infos:
                is_hit = info.offset <= place < info.offset + info.length
                try:
                    batch = ItemStore.open(folder).read(info)
                except Damaged as damage:
                    assert is_hit or place < edges[0]
                    assert name in damage.message and "check)" in damage.message
                    detected += 1
                else:
                    assert not is_hit and batch == right[info]
        (folder / name).write_bytes(good)
    assert detected > 200


def test_a_scan_goes_on_behind_flipped_bits_and_tells_of_them(
    filled: tuple[ItemStore, Flushed, Path],
) -> None:
    store, flushed, folder = filled
    path = folder / "texts-000001.arrow"
    infos = of("texts", flushed)
    assert len(infos) > 2
    good = path.read_bytes()
    hit = infos[1]
    for place in [*range(hit.offset, hit.offset + 200), hit.offset + hit.length - 1]:
        bad = bytearray(good)
        bad[place] ^= 1 << (place % 8)
        path.write_bytes(bad)
        damages: list[Damaged] = []
        found = [info for info, _ in store.scan("texts", on_damage=damages.append)]
        assert found == [info for info in infos if info != hit]
        (damage,) = damages
        assert f"{path} at offset {hit.offset}:" in damage.message
        with pytest.raises(Damaged):
            list(store.scan("texts"))


def test_a_scan_tells_of_a_damaged_last_batch(filled: tuple[ItemStore, Flushed, Path]) -> None:
    store, flushed, folder = filled
    *others, last = of("texts", flushed)
    with open(folder / "texts-000001.arrow", "r+b") as file:
        file.seek(last.offset + last.length // 2)
        file.write(b"damage")
    damages: list[Damaged] = []
    assert [info for info, _ in store.scan("texts", on_damage=damages.append)] == others
    assert [f"at offset {last.offset}:" in damage.message for damage in damages] == [True]


def test_a_scan_of_a_file_with_a_damaged_schema_says_so(
    filled: tuple[ItemStore, Flushed, Path],
) -> None:
    store, _, folder = filled
    path = folder / "texts-000001.arrow"
    good = bytearray(path.read_bytes())
    good[100] ^= 1
    path.write_bytes(good)
    damages: list[Damaged] = []
    assert list(store.scan("texts", on_damage=damages.append)) == []
    (damage,) = damages
    assert damage.message.startswith(f"{path} at offset 0: ")


def test_a_cut_file_gives_all_batches_before_the_cut(
    filled: tuple[ItemStore, Flushed, Path],
) -> None:
    _, flushed, folder = filled
    for name in sorted(os.listdir(folder)):
        path = folder / name
        good = path.read_bytes()
        infos = [info for info in flushed.batches if name.startswith(info.stream)]
        cuts = {0, 1, 8, 100, infos[0].offset - 1, len(good)}
        for info in infos:
            cuts |= {info.offset + delta for delta in (0, 1, 7, 8, 60, info.length // 2)}
            cuts.add(info.offset + info.length - 1)
        for cut in sorted(cuts, reverse=True):
            os.truncate(path, cut)
            whole = [info for info in infos if info.offset + info.length <= cut]
            store = ItemStore.open(folder)
            assert [info for info, _ in store.scan(infos[0].stream)] == whole
            for info in infos:
                if info in whole:
                    assert store.read(info).num_rows == info.rows
                else:
                    with pytest.raises(Damaged, match=r"length check|schema check"):
                        store.read(info)
        path.write_bytes(good)


def test_a_place_that_no_file_can_hold_is_damage(
    filled: tuple[ItemStore, Flushed, Path],
) -> None:
    store, flushed, _ = filled
    for change in ({"offset": 2**62}, {"length": 2**62}, {"file": 9}, {"crc": 1}):
        with pytest.raises(Damaged, match="check"):
            store.read(flushed.batches[0]._replace(**change))


def test_a_batch_under_a_foreign_schema_is_damage(
    filled: tuple[ItemStore, Flushed, Path],
) -> None:
    store, flushed, folder = filled
    sessions, entries_ = (folder / f"{name}-000001.arrow" for name in ("sessions", "entries"))
    foreign, own = of("sessions", flushed)[0], of("entries", flushed)[0]
    message = sessions.read_bytes()[foreign.offset : foreign.offset + foreign.length]
    entries_.write_bytes(entries_.read_bytes()[: own.offset] + message)
    moved = own._replace(length=foreign.length, crc=foreign.crc)
    with pytest.raises(Damaged, match=r"entries-000001\.arrow at offset \d+: .*arrow check"):
        store.read(moved)
    damages: list[Damaged] = []
    assert list(store.scan("entries", on_damage=damages.append)) == []
    assert len(damages) == 1


def test_a_tail_of_zeros_or_noise_ends_a_scan(filled: tuple[ItemStore, Flushed, Path]) -> None:
    store, flushed, folder = filled
    path = folder / "entries-000001.arrow"
    good = path.read_bytes()
    for tail in (b"\0" * 5_000, b"\xff" * 5_000, os.urandom(5_000), good[-300:]):
        path.write_bytes(good + tail)
        assert [info for info, _ in store.scan("entries")] == of("entries", flushed)


def test_a_file_that_shrinks_under_an_open_reader_is_damage(
    filled: tuple[ItemStore, Flushed, Path],
) -> None:
    store, flushed, folder = filled
    last = of("entries", flushed)[-1]
    assert store.read(last).num_rows == last.rows
    os.truncate(folder / "entries-000001.arrow", last.offset + 100)
    with pytest.raises(Damaged, match=rf"entries-000001.arrow at offset {last.offset}: .*length"):
        store.read(last)
