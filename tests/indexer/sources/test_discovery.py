"""Discovery: default homes, folders, files, links, exclusions, and what cannot be looked at."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from sessiondex.indexer.sources.discovery import (
    Exclusion,
    Found,
    Home,
    Unreadable,
    default_homes,
    discover,
)


def touch(path: Path, *, time: int = 1_000_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}", encoding="utf-8")
    os.utime(path, (time, time))
    return path


def find(*paths: Path, exclude: Iterable[str] = ()) -> tuple[list[Found], list[Unreadable]]:
    unreadable: list[Unreadable] = []
    found = list(discover(paths, report=unreadable.append, exclude=exclude))
    return found, unreadable


def names(*paths: Path, exclude: Iterable[str] = ()) -> list[str]:
    found, unreadable = find(*paths, exclude=exclude)
    assert unreadable == []
    return sorted(str(each.path.relative_to(each.root)) for each in found)


# ---------------------------------------------------------------- homes


def make_homes(base: Path) -> list[Home]:
    homes = [
        Home(base / ".claude" / "projects", "claude-code"),
        Home(base / ".codex" / "sessions", "codex"),
        Home(base / ".codex" / "archived_sessions", "codex"),
    ]
    for home in homes:
        home.path.mkdir(parents=True)
    return homes


def test_default_homes_are_those_of_the_user_and_of_the_environment(tmp_path: Path) -> None:
    homes = make_homes(tmp_path / "me")
    claude = tmp_path / "cc"
    codex = tmp_path / "cx"
    (claude / "projects").mkdir(parents=True)
    (codex / "sessions").mkdir(parents=True)
    environ = {
        "HOME": str(tmp_path / "me"),
        "CLAUDE_CONFIG_DIR": str(claude),
        "CODEX_HOME": str(codex),
    }
    assert default_homes(environ) == [
        homes[0],
        Home(claude / "projects", "claude-code"),
        homes[1],
        homes[2],
        Home(codex / "sessions", "codex"),
    ]


def test_a_given_home_overrides_the_environment(tmp_path: Path) -> None:
    homes = make_homes(tmp_path / "other")
    make_homes(tmp_path / "me")
    environ = {
        "HOME": str(tmp_path / "me"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "me" / ".claude"),
        "CODEX_HOME": str(tmp_path / "me" / ".codex"),
    }
    assert default_homes(environ, tmp_path / "other") == homes


def test_a_home_that_is_named_twice_or_not_there_is_left_out(tmp_path: Path) -> None:
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    environ = {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")}
    assert default_homes(environ) == [Home(tmp_path / ".claude" / "projects", "claude-code")]
    assert default_homes({"HOME": str(tmp_path / "nowhere")}) == []


# ---------------------------------------------------------------- files


def test_files_come_newest_first_and_ties_by_name(tmp_path: Path) -> None:
    touch(tmp_path / "b" / "old.jsonl", time=1)
    touch(tmp_path / "a" / "new.jsonl", time=3)
    touch(tmp_path / "z.jsonl", time=2)
    touch(tmp_path / "y.jsonl", time=2)
    found, _ = find(tmp_path)
    assert [each.path.name for each in found] == ["new.jsonl", "y.jsonl", "z.jsonl", "old.jsonl"]
    assert {each.root for each in found} == {tmp_path}
    assert [each.stat.st_mtime for each in found] == [3, 2, 2, 1]


def test_a_file_is_taken_as_it_is_named(tmp_path: Path) -> None:
    path = touch(tmp_path / "history.jsonl")
    assert find(path)[0] == [Found(path, tmp_path, path.stat())]


def test_what_is_known_to_be_no_session_is_left_out_of_folders(tmp_path: Path) -> None:
    slug = tmp_path / "-home-me"
    for name in (
        "s.jsonl",
        "s/subagents/agent-1.jsonl",
        "s/subagents/agent-1.meta.json",
        "s/subagents/workflows/w1/journal.jsonl",
        "s/subagents/workflows/w1/agent-2.jsonl",
        "s/tool-results/big.json",
        "segment.trace.jsonl",
        "run.traces.json",
        "journal.jsonl",
        ".git/objects/a",
        "node_modules/p/index.json",
        ".codex/sessions/rollout.jsonl",
    ):
        touch(slug / name)
    touch(tmp_path / "history.jsonl")
    touch(tmp_path / "session_index.jsonl")
    assert names(tmp_path) == [
        "-home-me/.codex/sessions/rollout.jsonl",
        "-home-me/journal.jsonl",
        "-home-me/s.jsonl",
        "-home-me/s/subagents/agent-1.jsonl",
        "-home-me/s/subagents/workflows/w1/agent-2.jsonl",
    ]


def test_links_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    real = tmp_path / "real"
    touch(real / "a" / "s.jsonl")
    (real / "a" / "up").symlink_to(real)
    (real / "again.jsonl").symlink_to(real / "a" / "s.jsonl")
    (real / "nothing.jsonl").symlink_to(real / "gone")
    outside = touch(tmp_path / "outside" / "t.jsonl")
    (real / "linked").symlink_to(outside.parent)
    found, unreadable = find(real, real / "a", tmp_path / "outside")
    assert sorted(each.path.resolve() for each in found) == [
        outside.resolve(),
        (real / "a" / "s.jsonl").resolve(),
    ]
    assert unreadable == []


def test_a_file_is_found_under_its_own_name_and_not_under_that_of_a_link(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        touch(tmp_path / folder / f"own-{folder}.jsonl")
        for name in ("first", "zlast"):
            (tmp_path / folder / f"{name}.jsonl").symlink_to(f"own-{folder}.jsonl")
    outside = touch(tmp_path.parent / f"{tmp_path.name}-outside.jsonl")
    (tmp_path / "linked.jsonl").symlink_to(outside)
    expected = ["a/own-a.jsonl", "b/own-b.jsonl", "c/own-c.jsonl", "linked.jsonl"]
    assert names(tmp_path) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names themselves")
def test_a_name_that_is_not_utf_8_is_reported_and_hides_no_other(tmp_path: Path) -> None:
    good = touch(tmp_path / "good.jsonl")
    bad_file = os.fsencode(tmp_path) + b"/bad\xff.jsonl"
    with open(bad_file, "w") as file:
        file.write("{}")
    os.mkdir(os.fsencode(tmp_path) + b"/folder\xe9")
    found, unreadable = find(tmp_path, Path(os.fsdecode(bad_file)))
    assert [each.path for each in found] == [good]
    shown = sorted(str(each.path.relative_to(tmp_path)) for each in unreadable)
    assert shown == ["bad\N{REPLACEMENT CHARACTER}.jsonl"] * 2 + ["folder\N{REPLACEMENT CHARACTER}"]
    assert {each.reason for each in unreadable} == {"its name is not UTF-8: rename it"}


def test_a_relative_path_is_found_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = touch(tmp_path / "s.jsonl")
    monkeypatch.chdir(tmp_path)
    assert [each.path for each in find(Path("."))[0]] == [path]


# ---------------------------------------------------------------- what cannot be looked at


def test_what_is_not_there_or_no_file_is_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    found, unreadable = find(tmp_path / "gone", tmp_path / "pipe", tmp_path / "loop")
    assert found == []
    assert [(each.path.name, each.reason) for each in unreadable] == [
        ("gone", "no such file or folder"),
        ("pipe", "neither a file nor a folder"),
        ("loop", "Too many levels of symbolic links"),
    ]


def test_an_unreadable_folder_is_reported_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path / "a" / "s.jsonl")
    touch(tmp_path / "b" / "t.jsonl")
    (tmp_path / "c").symlink_to(tmp_path / "c")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found, unreadable = find(tmp_path)
    assert [each.path.name for each in found] == ["s.jsonl"]
    assert sorted((each.path.name, each.reason) for each in unreadable) == [
        ("b", "Permission denied"),
        ("c", "Too many levels of symbolic links"),
    ]


# ---------------------------------------------------------------- exclusions


@pytest.mark.parametrize(
    ("glob", "left"),
    [
        ("*secret*", ["-home-me-open/s.jsonl", "loose.jsonl"]),
        ("-home-me-secret", ["-home-me-open/s.jsonl", "loose.jsonl"]),
        ("/home/me/secret", ["-home-me-open/s.jsonl", "loose.jsonl"]),
        ("/home/me/*", ["loose.jsonl"]),
        ("*.jsonl", []),
        ("loose.jsonl", ["-home-me-open/s.jsonl", "-home-me-secret/sub/t.jsonl"]),
        ("-home-me-secret/sub", ["-home-me-open/s.jsonl", "loose.jsonl"]),
        ("secret", ["-home-me-open/s.jsonl", "-home-me-secret/sub/t.jsonl", "loose.jsonl"]),
    ],
)
def test_excluded_paths_and_projects_are_left_out(
    tmp_path: Path, glob: str, left: list[str]
) -> None:
    for name in ("-home-me-open/s.jsonl", "-home-me-secret/sub/t.jsonl", "loose.jsonl"):
        touch(tmp_path / name)
    assert names(tmp_path, exclude=[glob]) == left
    assert names(tmp_path, exclude=["nothing", glob]) == left


def test_a_whole_path_is_excluded_also_when_it_is_named(tmp_path: Path) -> None:
    path = touch(tmp_path / "s.jsonl")
    assert names(path, exclude=[str(path)]) == []


def test_a_project_is_excluded_by_its_working_directory() -> None:
    exclusion = Exclusion(["/home/me/secret*"])
    assert exclusion.matches_project("/home/me/secret-plans/sub")
    assert not exclusion.matches_project("/home/me/open")
    assert not Exclusion([]).matches_project("/home/me/open")
