"""Two writers, readers during writes, and a library that cannot be written to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from threading import Event, Thread

import pytest

from sessiondex import SearchRequest, search
from sessiondex.errors import Busy
from sessiondex.indexer.forget import forget_sessions
from sessiondex.indexer.library import Library
from sessiondex.indexer.lock import writer_lock
from tests.builders import claude_path, conversation, index, write_lines
from tests.faults.children import Children
from tests.faults.histories import picture_of, write_grown, write_old
from tests.faults.pictures import QUERIES, everything, found, picture

NOBODY = 65534


def test_a_second_process_is_told_who_writes(place: Path, server: Children) -> None:
    write_old(place / "home")
    library = place / "library"
    Library.create(library).close()
    with writer_lock(library / "writer.lock", wait_seconds=0):
        told = server.run("index", library=library, home=place / "home", wait_seconds=0.2).told
    assert told["error"] == "busy"
    assert f"pid {os.getpid()} on " in told["message"]


def test_a_second_writer_waits_its_turn_and_both_complete(place: Path, server: Children) -> None:
    homes = [place / "a", place / "b"]
    for n, home in enumerate(homes):
        for k in range(4):
            write_lines(claude_path(home, f"s{n}{k}"), conversation(3, start=1000 * n + 100 * k))
    library = place / "library"
    Library.create(library).close()
    writers = [server.start("index", library=library, home=home) for home in homes]
    ended = [server.wait(writer) for writer in writers]
    assert [end.told.get("error") for end in ended] == [None, None]
    assert [end.told["result"]["entries"] for end in ended] == [48, 48]
    assert len(picture_of(library)) == 9  # eight sessions, and what was found


def test_a_capture_that_was_never_read_answers_after_all_that_came_later(
    place: Path, server: Children
) -> None:
    """Fifty commits, a rewrite and a forgetting by other processes; then the first look."""
    home, folder = place / "home", place / "library"
    write_old(home)
    server.run("index", library=folder, home=home)
    before = picture_of(folder)
    with Library.open(folder) as reader:
        snapshot = reader.snapshot()
        captures = [reader.capture(name, live=False) for name in ("one", "two", "three")]
        for n in range(2):
            write_lines(
                claude_path(home, "one"), conversation(7, start=1000 + 100 * n), append=True
            )
            server.run("index", library=folder, home=home, batch_bytes=1)
        assert reader.snapshot().commit - snapshot.commit >= 50
        write_grown(home)
        server.run("index", library=folder, home=home)
        server.run("forget", library=folder, sessions=["one", "two"])
        assert [everything(capture) for capture in captures] == [
            before[name] for name in ("one", "two", "three")
        ]
        assert {query: found(snapshot, query) for query in QUERIES} == before["found"]
        assert sorted(row.session for row in reader.snapshot().rows()) == ["four", "three"]


def test_every_look_during_writes_is_of_one_state(place: Path, server: Children) -> None:
    home, folder, done = place / "home", place / "library", place / "done"
    write_old(home)
    server.run("index", library=folder, home=home)
    watchers = [server.start("watch", library=folder, until=done) for _ in range(2)]
    for n in range(4):
        write_lines(claude_path(home, "one"), conversation(3, start=1000 + 50 * n), append=True)
        write_lines(claude_path(home, "two"), conversation(1 + n, start=3000 + 50 * n))
        server.run("index", library=folder, home=home, batch_bytes=1_000)
        server.run("forget", library=folder, sessions=["three"])
        server.run("index", library=folder, home=home, again=True)
    done.touch()
    for watcher in watchers:
        ended = server.wait(watcher)
        assert ended.code == 0
        assert ended.told.get("result", 0) > 0, ended.told


def test_a_thread_reads_while_another_writes_with_the_same_library(place: Path) -> None:
    home = place / "home"
    write_old(home)
    with Library.create(place / "library") as library:
        index(library, home)
        before = picture(library)
        inside, looked = Event(), Event()

        def pause(_: object) -> None:
            inside.set()
            assert looked.wait(60)

        write_grown(home)
        writer = Thread(target=lambda: index(library, home, progress=pause))
        writer.start()
        assert inside.wait(60)
        assert picture(library) == before  # before the writer is let go on
        looked.set()
        writer.join()
        assert picture(library) != before


def test_readers_keep_the_state_they_opened_while_a_writer_works(
    place: Path, server: Children
) -> None:
    home, folder = place / "home", place / "library"
    write_old(home)
    server.run("index", library=folder, home=home)
    with Library.open(folder) as reader:
        captures = [reader.capture(name, live=False) for name in ("one", "two", "three")]
        told = [everything(capture) for capture in captures]
        snapshot = reader.snapshot()
        request = SearchRequest(query="turns freely", match="literal", order="source", limit=3)
        first = search(snapshot, request)
        for n in range(12):
            write_lines(claude_path(home, "one"), conversation(1, start=1000 + 10 * n), append=True)
            writer = server.start("index", library=folder, home=home)
            assert [everything(capture) for capture in captures] == told
            assert picture(reader)["one"][1] >= told[0][1]
            assert server.wait(writer).told["result"]["files"]["indexed"] == 1
        write_grown(home)
        server.run("index", library=folder, home=home)
        assert [everything(capture) for capture in captures] == told
        again = search(snapshot, request)
        assert [hit["entry_ref"] for hit in again["hits"]] == [
            hit["entry_ref"] for hit in first["hits"]
        ]
        forget_sessions(reader, ["two", "three"])
        assert [everything(capture) for capture in captures] == told


def test_paging_a_library_visits_every_match_once_while_it_grows(
    place: Path, server: Children
) -> None:
    home, folder = place / "home", place / "library"
    write_lines(claude_path(home, "one"), conversation(6))
    write_lines(claude_path(home, "two"), conversation(6, start=100))
    server.run("index", library=folder, home=home)
    with Library.open(folder) as reader:
        wanted = SearchRequest(query="turns freely", match="literal", order="newest", limit=100)
        whole = search(reader.snapshot(), wanted)["hits"]
        expected = [(hit["session"], hit["entry_ref"]) for hit in whole]
        seen: list[tuple[str, str]] = []
        cursor = None
        while True:
            page = search(
                reader.snapshot(),
                SearchRequest(query="turns freely", match="literal", order="newest", limit=2,
                              cursor=cursor),
            )  # fmt: skip
            seen += [(hit["session"], hit["entry_ref"]) for hit in page["hits"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
            write_lines(
                claude_path(home, "two"), conversation(1, start=500 + 10 * len(seen)), append=True
            )
            server.run("index", library=folder, home=home)
        assert seen == expected
        assert len(expected) == 12


@pytest.fixture
def public() -> Generator[Path]:
    """A folder that another user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="sessiondex-faults-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def taken_away(library: Path) -> dict[Path, tuple[int, int]]:
    """Takes the right to write from everyone but root; the files' times and sizes."""
    for path in [library, *library.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(library.rglob("*"))}


as_nobody = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@as_nobody
def test_a_library_that_cannot_be_written_to_is_read_and_left_alone(
    public: Path, server: Children
) -> None:
    library = public / "library"
    write_old(public / "home")
    server.run("index", library=library, home=public / "home")
    expected = picture_of(library)
    before = taken_away(library)
    told = server.run("picture", {"uid": NOBODY}, library=library).told
    assert told.get("result") == expected, told
    assert server.run("check", {"uid": NOBODY}, library=library).told["result"]["sound"]
    refused = server.run("index", {"uid": NOBODY}, library=library, home=public / "home").told
    assert refused["error"] == "failed"
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in before} == before
    assert sorted(library.rglob("*")) == sorted(before)


@as_nobody
@pytest.mark.parametrize("is_shm_there", [True, False])
def test_what_a_killed_writer_committed_is_read_where_nothing_can_be_written(
    public: Path, server: Children, is_shm_there: bool
) -> None:
    library, home = public / "library", public / "home"
    write_old(home)
    control = server.run("index", {"kill_at": 0}, library=public / "control", home=home)
    calls = control.told["calls"]
    commit = len(calls) - calls[::-1].index("commit")
    assert server.run("index", {"kill_at": commit}, library=library, home=home).was_killed
    assert (library / "catalog-1.sqlite3-wal").stat().st_size
    if not is_shm_there:
        (library / "catalog-1.sqlite3-shm").unlink()
    taken_away(library)
    told = server.run("picture", {"uid": NOBODY}, library=library).told
    assert told.get("result") == picture_of(public / "control"), told


@as_nobody
def test_a_library_that_may_not_be_entered_is_an_error_that_says_so(
    public: Path, server: Children
) -> None:
    Library.create(public / "library").close()
    told = server.run("picture", {"uid": NOBODY}, library=public / "library").told
    assert told["error"] == "failed"
    assert "Permission denied" in told["message"]


def test_a_thread_of_the_same_process_waits_or_is_told(place: Path) -> None:
    library = Library.create(place / "library")
    write_old(place / "home")
    with library.writing(), pytest.raises(Busy):
        index(Library.open(place / "library"), place / "home", wait_seconds=0)
