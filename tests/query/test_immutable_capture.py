"""A capture answers byte for byte the same, whatever is written later."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import orjson

from sessiondex import (
    Library,
    ReadRequest,
    SearchRequest,
    SessionCapture,
    evidence,
    forget_sessions,
    overview,
    read,
    repair_library,
    resolve,
    search,
)
from tests.builders import claude_path, conversation, index, write_lines


def answers(capture: SessionCapture) -> list[bytes]:
    """Replies of every kind, as they are serialized."""
    refs = [str(entry.ref) for entry in capture.entries(0, capture.entry_count)]
    requests = [
        SearchRequest(),
        SearchRequest(query="spindle"),
        SearchRequest(query="pindle_1"),
        SearchRequest(query="turns freely", match="ranked", order="relevance"),
        SearchRequest(query=r"spindle_\d+ =", match="regex"),
        SearchRequest(query="src/a.py:", kind=("tool",), order="newest", limit=3),
    ]
    replies: list[object] = [search(capture, request) for request in requests]
    replies += [overview(capture), overview(capture, stride=1, limit=3)]
    replies += [read(capture, ReadRequest(entry_ref=ref)) for ref in refs[:6]]
    replies.append(read(capture, ReadRequest(from_ref=refs[0], through_ref=refs[-1])))
    replies += [evidence(capture, refs[2]), resolve(capture, refs[3])]
    for reply in replies:
        if isinstance(reply, dict):
            reply.pop("stats", None)  # what a cache spares differs from call to call
    return [orjson.dumps(reply) for reply in replies]


def another_writer(folder: Path, home: Path) -> None:
    index(Library.open(folder), home)


def test_a_capture_answers_the_same_after_1000_appends_a_rewrite_and_a_rebuild(
    tmp_path: Path,
) -> None:
    home, folder = tmp_path / "home", tmp_path / "lib"
    path = write_lines(claude_path(home, "one"), conversation(4))
    write_lines(claude_path(home, "two"), conversation(2, word="spindle", start=300))
    library = Library.create(folder)
    index(library, home)
    capture = library.capture("one", live=False)
    told = answers(capture)
    appended = conversation(200, start=500)
    assert len(appended) == 1000
    for at in range(0, 1000, 50):
        for record in appended[at : at + 50]:
            write_lines(path, [record], append=True)
        index(library, home)
    assert library.capture("one").entry_count == 4 * 204
    assert answers(capture) == told
    write_lines(path, conversation(6, word="mandrel"))
    process = multiprocessing.get_context("spawn").Process(
        target=another_writer, args=(folder, home)
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    assert library.capture("one").generation == 2
    assert answers(capture) == told
    repair_library(folder)
    assert answers(capture) == told
    forget_sessions(library, ["one", "two"])
    assert answers(capture) == told


def test_the_same_items_in_memory_and_on_disk_give_equal_answers(tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = write_lines(claude_path(home, "one"), conversation(5))
    library = Library.create(tmp_path / "lib")
    index(library, home)
    on_disk = library.capture("one")
    in_memory = SessionCapture.from_path(path)
    assert on_disk.token == in_memory.token

    def rootless(replies: list[bytes]) -> list[bytes]:
        return [
            reply.replace(str(path.parent).encode(), b"ROOT")
            .replace(str(path.parent.parent).encode(), b"ROOT")
            .replace(b"-home-ada-lathe/one.jsonl", b"one.jsonl")
            for reply in replies
        ]

    assert rootless(answers(on_disk)) == rootless(answers(in_memory))
