"""`--here`: the git repository of the current folder and its worktrees, or the folder alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessiondex.cli.scope import repository_at

from .conftest import CommandLine


def make_repository(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    return folder


def add_worktree(repository: Path, folder: Path, *, is_relative: bool = False) -> Path:
    """What `git worktree add` leaves behind."""
    folder.mkdir()
    place = repository / ".git/worktrees" / folder.name
    place.mkdir(parents=True)
    (place / "commondir").write_text("../..\n")
    (place / "gitdir").write_text(f"{folder}/.git\n")
    target = f"../{repository.name}/.git/worktrees/{folder.name}" if is_relative else str(place)
    (folder / ".git").write_text(f"gitdir: {target}\n")
    return folder


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_repository_is_all_its_work_trees(tmp_path: Path, is_relative: bool) -> None:
    main = make_repository(tmp_path / "main")
    tree = add_worktree(main, tmp_path / "tree", is_relative=is_relative)
    for folder in (main, main / "src", tree):
        found = repository_at(folder)
        assert found.is_git
        assert set(found.folders) == {str(main), str(tree)}


def test_a_submodule_is_itself_alone(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main")
    (main / ".git/modules/sub").mkdir(parents=True)
    (main / "sub").mkdir()
    (main / "sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    assert repository_at(main / "sub").folders == [str(main / "sub")]


def test_links_are_followed_and_kept(tmp_path: Path) -> None:
    main = make_repository(tmp_path / "main")
    (tmp_path / "link").symlink_to(main)
    assert set(repository_at(tmp_path / "link").folders) == {
        str(tmp_path / "link"), str(main),
    }  # fmt: skip


def chat(path: Path, folder: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {
        "type": "user", "uuid": f"u-{path.stem}", "sessionId": path.stem, "cwd": str(folder),
        "timestamp": "2026-04-01T00:00:00.000Z", "message": {"role": "user", "content": text},
    }  # fmt: skip
    path.write_text(json.dumps(line) + "\n")


def test_here_finds_the_sessions_of_the_repository(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = make_repository(tmp_path / "work/main")
    tree = add_worktree(main, tmp_path / "work/tree")
    other = tmp_path / "work/main-other"
    other.mkdir()
    projects = tmp_path / "home/.claude/projects/p"
    for name, folder in (("aaaa", main), ("bbbb", main / "src"), ("cccc", tree), ("dddd", other)):
        chat(projects / f"{name}.jsonl", folder, f"needle {name}")
    command_line("index")

    def found(*words: str) -> set[str]:
        hits = command_line("search", "needle", *words, "--jsonl").json_lines
        sessions = command_line("sessions", *words, "--jsonl").json_lines
        assert {each["session"] for each in sessions} == {hit["session"] for hit in hits}
        return {hit["session"] for hit in hits}

    assert len(found()) == 4
    monkeypatch.chdir(tree)
    assert found("--here") == {"aaaa", "bbbb", "cccc"}
    assert f"repository {tree}" in command_line("search", "needle", "--here").err
    monkeypatch.chdir(other)
    assert found("--here") == {"dddd"}
    assert "no git repository" in command_line("search", "needle", "--here").err
    monkeypatch.chdir(tmp_path)
    assert found("--project", "work/main") == {"aaaa", "bbbb"}
    assert command_line("search", "needle", "--here", "--project", "x").code == 2
