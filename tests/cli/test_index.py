"""`index`: once, watched, strict; what it replies and how it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiondex.cli.demo_sessions import MAIN_ID, write_demo_sessions
from sessiondex.cli.index import progress_text
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import Progress

from .conftest import CommandLine


def claude_line(text: str, number: int) -> str:
    return json.dumps({
        "type": "user", "uuid": f"00000000-0000-4000-8000-{number:012}", "sessionId": "s",
        "cwd": "/home/ada/x", "timestamp": "2026-04-01T00:00:00.000Z",
        "message": {"role": "user", "content": text},
    }) + "\n"  # fmt: skip


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "home/.claude/projects/-home-ada-x/11111111-1111-4111-8111-111111111111.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(claude_line("the first question", 1))
    return path


def test_index_makes_the_library_and_says_what_it_did(
    command_line: CommandLine, session: Path
) -> None:
    ended = command_line("index")
    assert ended.code == 0, ended.err
    assert "1 file (1 indexed), 1 session new or grown, 1 entry" in ended.out
    again = command_line("index", "--json").json
    assert again == {
        "files": {"seen": 1, "indexed": 0, "unchanged": 1, "skipped": 0, "failed": 0},
        "sessions": 0, "entries": 0, "bytes": 0, "seconds": again["seconds"],
        "failures": [], "corrupt_records": [],
    }  # fmt: skip


def test_a_home_overrides_the_environment(
    command_line: CommandLine, tmp_path: Path, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_demo_sessions(tmp_path / "other")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home/.claude"))
    reply = command_line("index", "--home", str(tmp_path / "other"), "--json").json
    assert reply["files"]["seen"] == 4
    sessions = command_line("sessions", "--all", "--jsonl").json_lines
    assert session.stem not in {each["session"] for each in sessions}


def test_several_homes_of_the_settings_are_looked_at(
    command_line: CommandLine, tmp_path: Path, session: Path
) -> None:
    write_demo_sessions(tmp_path / "other")
    path = tmp_path / "config/sessiondex/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(f'homes = ["{tmp_path / "home"}", "{tmp_path / "other"}"]\n')
    assert command_line("index", "--json").json["files"]["seen"] == 5


def test_a_corrupt_record_and_a_failed_file_are_reported_and_strict_exits_with_4(
    command_line: CommandLine, session: Path, tmp_path: Path
) -> None:
    with session.open("a") as file:
        file.write("{broken\n" + claude_line("after it", 2))
    reply = command_line("index", str(session), str(tmp_path / "missing"), "--json")
    assert reply.code == 0
    (fault,) = reply.json["corrupt_records"]
    assert (fault["file"], fault["line"]) == (str(session), 2)
    assert fault["byte_offset"] == len(claude_line("the first question", 1))
    assert reply.json["failures"] == [
        {"file": str(tmp_path / "missing"), "reason": "no such file or folder"}
    ]
    with session.open("a") as file:
        file.write("{again\n")
    strict = command_line("index", "--strict")
    assert strict.code == 4
    assert f"corrupt: {session}:4" in strict.err or f"corrupt: {session}:2" in strict.err


def test_excluded_projects_are_never_indexed(command_line: CommandLine, session: Path) -> None:
    reply = command_line("index", "--exclude", "/home/ada/x", "--json").json
    assert reply["entries"] == 0
    assert command_line("sessions", "--json").json["sessions"] == []


def test_forgotten_sessions_are_skipped_until_again(
    command_line: CommandLine, session: Path
) -> None:
    command_line("index")
    forgotten = command_line("forget", session.stem[:8], "--json").json
    assert forgotten == {"sessions": [session.stem], "entries": 1, "sources": [str(session)]}
    assert command_line("index", "--json").json["files"]["skipped"] == 1
    assert command_line("sessions", "--json").json["sessions"] == []
    assert command_line("index", "--again", "--json").json["entries"] == 1
    assert command_line("forget", "nothing").code == 3


def test_fresh_refreshes_first(command_line: CommandLine, session: Path) -> None:
    command_line("index")
    with session.open("a") as file:
        file.write(claude_line("a second question", 2))
    assert command_line("search", "second", "--json").json["hits"] == []
    assert len(command_line("search", "second", "--fresh", "--json").json["hits"]) == 1


def test_watching_takes_in_what_grows_and_what_is_new(
    command_line: CommandLine, session: Path, tmp_path: Path
) -> None:
    looked: list[int] = []
    library = tmp_path / "data/sessiondex/library"

    def wait(seconds: float) -> bool:
        assert seconds > 0
        with Library.open(library) as opened:
            looked.append(sum(row.entries for row in opened.snapshot().rows()))
        if len(looked) == 2:
            with session.open("a") as file:
                file.write(claude_line("it grows", 2))
        if len(looked) == 3:
            session.with_name("22222222-2222-4222-8222-222222222222.jsonl").write_text(
                claude_line("a new one", 3)
            )
        return len(looked) == 5

    ended = command_line("index", "--watch", wait=wait)
    assert ended.code == 0
    assert looked == [1, 1, 2, 3, 3]
    assert ended.err.count("new or grown") == 3


def test_watching_waits_for_another_writer_and_tries_again(
    command_line: CommandLine, session: Path, tmp_path: Path
) -> None:
    library = Library.create(tmp_path / "data/sessiondex/library")
    holder = library.writing()
    holder.__enter__()
    tries = 0

    def wait(_: float) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            holder.__exit__(None, None, None)
        return tries == 2

    ended = command_line("index", "--watch", "--wait", "0", wait=wait)
    library.close()
    assert "another writer holds the library" in ended.err
    assert "1 session new or grown" in ended.err


def test_another_writer_is_named_and_the_wait_can_be_set(
    command_line: CommandLine, session: Path, tmp_path: Path
) -> None:
    library = Library.create(tmp_path / "data/sessiondex/library")
    with library.writing():
        ended = command_line("index", "--wait", "0", "--json")
    library.close()
    assert ended.code == 1
    assert ended.json["error"]["kind"] == "busy"
    assert f"pid {os.getpid()}" in ended.json["error"]["message"]


def test_ctrl_c_ends_a_watch_with_130(session: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ, "HOME": str(tmp_path / "home"), "SESSIONDEX_LIBRARY": str(tmp_path / "lib"),
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "sessiondex", "index", "--watch", "--json"], env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # A suite that runs in the background ignores Ctrl-C, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        first: dict[str, Any] = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
        assert "Traceback" not in process.stderr.read()
    assert first["entries"] == 1


def test_progress_says_rate_and_remaining_time() -> None:
    text = progress_text(Progress(3, 12, 30_000_000, 120_000_000), 2.0)
    assert text == "3/12 files, 30.0 MB of 120 MB, 15.0 MB/s, 0:06 left"
    assert progress_text(Progress(0, 1, 0, 10), 0.0) == "0/1 files, 0 B of 10 B, 0 B/s"


def test_no_session_files_is_said(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = command_line("index", str(tmp_path / "empty"))
    assert ended.code == 0
    assert "no session files" in ended.err


def test_the_demo_runs_without_a_library_of_ones_own(
    command_line: CommandLine, tmp_path: Path
) -> None:
    ended = command_line("demo", "--folder", str(tmp_path / "kept"))
    assert ended.code == 0, ended.err
    assert "$ sessiondex search 'high water'" in ended.out
    assert "満潮" in ended.out
    assert f"{MAIN_ID[:4]}:E0" in ended.out
    assert not (tmp_path / "data").exists()
    kept = command_line("sessions", "--library", str(tmp_path / "kept/library"), "--json").json
    assert len(kept["sessions"]) == 7
    again = command_line("demo", "--folder", str(tmp_path / "kept"))
    assert (again.code, "is not empty" in again.err) == (2, True)


def test_the_demo_is_one_object_where_json_is_asked_for(command_line: CommandLine) -> None:
    demo = command_line("demo", "--json").json
    assert (demo["files"], demo["folder"]) == (7, None)
    replies = {step["command"][0]: step["reply"] for step in demo["steps"]}
    assert replies["index"]["files"]["indexed"] == 7
    assert replies["read"]["entries"][1]["entry_ref"] == "E00000009"
    assert replies["stats"]["entries"]["total"] == 57


def test_a_home_that_is_not_there_is_named(own: CommandLine, tmp_path: Path) -> None:
    ended = own("index", "--home", str(tmp_path / "nowhere"))
    assert ended.code == 2 and f"no folder {tmp_path / 'nowhere'}" in ended.err
