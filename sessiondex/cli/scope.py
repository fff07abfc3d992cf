"""Which part of the library a command looks at, and how the footer names it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Repository(NamedTuple):
    """The folders of one git repository: its work trees, by all their names."""

    folders: list[str]
    is_git: bool
    """False where there is no git; then it is the current folder alone."""


def repository_at(folder: Path) -> Repository:
    """The repository of a folder and its worktrees, read from `.git`; needs no git program."""
    for place in (folder, *folder.parents):
        marker = place / ".git"
        if marker.is_dir():
            return _repository(marker, place)
        if marker.is_file():
            git_folder = _pointed(marker, place)
            common = git_folder / "commondir"
            if common.is_file():
                return _repository(_joined(git_folder, common.read_text()), place)
            return _with_links([place])  # a submodule
    return Repository(_with_links([folder]).folders, False)


def _repository(git: Path, place: Path) -> Repository:
    """All work trees of the repository whose common folder is `git`."""
    folders = [place]
    if git.name == ".git":
        folders.append(git.parent)
    for marker in sorted((git / "worktrees").glob("*/gitdir")):
        folders.append(_joined(marker.parent, marker.read_text()).parent)
    return _with_links(folders)


def _pointed(marker: Path, place: Path) -> Path:
    return _joined(place, marker.read_text().removeprefix("gitdir:"))


def _joined(folder: Path, text: str) -> Path:
    return Path(os.path.normpath(folder / text.strip()))


def _with_links(folders: Iterable[Path]) -> Repository:
    """The folders as they are called and as they really are: sessions note either."""
    both = [path for folder in folders for path in (folder, Path(os.path.realpath(folder)))]
    return Repository(list(dict.fromkeys(str(path) for path in both)), True)
