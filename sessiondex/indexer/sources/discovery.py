"""Finds the files that may hold sessions: in the agents' default homes and under any path.

Looks at names and stats only; what a file holds is for the formats to say. Files that are known to
stand beside sessions and to be none are left out by name; a file that is named itself is always
taken.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_JUNK_FOLDERS: Final = frozenset(
    (
        ".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox",
        ".mypy_cache", ".pytest_cache", ".ruff_cache",
        # Beside Claude Code sessions: outputs and copies of files, no conversation.
        "tool-results", "file-history", "shell-snapshots",
    )
)  # fmt: skip

_NO_SESSIONS: Final = frozenset(
    (
        "history.jsonl",  # prompts only, of all sessions (Claude Code, Codex)
        "session_index.jsonl",  # titles (Codex)
        "sessions-index.json",  # titles (Claude Code)
    )
)
_NO_SESSION_SUFFIXES: Final = (".trace.jsonl", ".traces.json", ".meta.json")


class Home(NamedTuple):
    """A folder in which an agent keeps its sessions."""

    path: Path
    agent: str


class Found(NamedTuple):
    """A file that may hold sessions."""

    path: Path
    root: Path
    """The folder under which it was looked for; of a file that was named, its own folder."""
    stat: os.stat_result


class Unreadable(NamedTuple):
    """A path that could not be looked at, and why."""

    path: Path
    reason: str


def default_homes(environ: Mapping[str, str], home: Path | None = None) -> list[Home]:
    """The default homes that exist; a given `home` overrides the environment altogether.

    Without one, the folders that `CLAUDE_CONFIG_DIR` and `CODEX_HOME` name come beside those of
    the user's home.
    """
    base = home if home is not None else Path(environ.get("HOME") or Path.home())
    claude = [base / ".claude"]
    codex = [base / ".codex"]
    if home is None:
        claude += [Path(folder) for folder in [environ.get("CLAUDE_CONFIG_DIR")] if folder]
        codex += [Path(folder) for folder in [environ.get("CODEX_HOME")] if folder]
    homes = [Home(folder / "projects", "claude-code") for folder in claude]
    for folder in codex:
        homes += [Home(folder / "sessions", "codex"), Home(folder / "archived_sessions", "codex")]
    existing: dict[str, Home] = {}
    for each in homes:
        if _exists(each.path):
            existing.setdefault(os.path.realpath(each.path), each)
    return list(existing.values())


def _exists(path: Path) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # It is there but cannot be looked at: discovery reports it.
        return True
    return True


class Exclusion:
    """Globs of files and projects that are never indexed.

    A glob matches a whole path, a path below its root, the path of any folder above it, or a
    project: the slug under which Claude Code keeps it, or its working directory.
    """

    def __init__(self, globs: Iterable[str]) -> None:
        patterns = list(globs)
        self._paths = _any_of(patterns)
        # Claude Code's slug of a folder: everything but letters and digits becomes a dash.
        slugs = [re.sub(r"[^A-Za-z0-9*?\[\]!]", "-", os.path.expanduser(glob)) for glob in patterns]
        self._slugs = _any_of([*patterns, *slugs])

    def __bool__(self) -> bool:
        return self._paths is not None

    def matches_path(self, path: str, root: str) -> bool:
        """Whether a file or folder is excluded; the folders above it are asked before it."""
        if self._paths is None or self._slugs is None:
            return False
        below = os.path.relpath(path, root)
        slug = below.partition(os.sep)[0]
        return bool(self._paths.match(path) or self._paths.match(below) or self._slugs.match(slug))

    def matches_project(self, project: str) -> bool:
        """Whether a project is excluded, by its working directory."""
        return self._paths is not None and bool(self._paths.match(project))


def _any_of(globs: list[str]) -> re.Pattern[str] | None:
    if not globs:
        return None
    return re.compile("|".join(fnmatch.translate(os.path.expanduser(glob)) for glob in globs))


def discover(
    paths: Iterable[Path],
    *,
    report: Callable[[Unreadable], None],
    exclude: Iterable[str] = (),
) -> Iterator[Found]:
    """Yields the files at or below paths, newest first; each file once, whatever links lead to it,
    and under its own name where that is among them.

    `report` is called, before the first file is yielded, for every path that cannot be looked at.
    """
    exclusion = Exclusion(exclude)
    seen: set[tuple[int, int]] = set()
    found: list[Found] = []
    for path in (Path(os.path.abspath(each)) for each in paths):
        if not _is_nameable(str(path)):
            report(_unnameable(str(path)))
            continue
        try:
            status = os.stat(path)
        except FileNotFoundError:
            report(Unreadable(path, "no such file or folder"))
            continue
        except OSError as error:
            report(Unreadable(path, error.strerror or str(error)))
            continue
        if stat.S_ISDIR(status.st_mode):
            found.extend(_walk(path, status, seen, exclusion, report))
        elif not stat.S_ISREG(status.st_mode):
            report(Unreadable(path, "neither a file nor a folder"))
        elif not exclusion.matches_path(str(path), str(path.parent)):
            place = (status.st_dev, status.st_ino)
            if place not in seen:
                seen.add(place)
                found.append(Found(path, path.parent, status))
    found.sort(key=lambda each: (-each.stat.st_mtime_ns, str(each.path)))
    yield from found


def _walk(
    root: Path,
    status: os.stat_result,
    seen: set[tuple[int, int]],
    exclusion: Exclusion,
    report: Callable[[Unreadable], None],
) -> Iterator[Found]:
    """The files below a folder; folders and files that were seen before are left out."""
    top = str(root)
    pending = [(top, status)]
    links: list[tuple[Path, os.stat_result]] = []
    while pending:
        folder, status = pending.pop()
        place = (status.st_dev, status.st_ino)
        if place in seen:
            continue
        seen.add(place)
        try:
            with os.scandir(folder) as entries:
                children = list(entries)
        except OSError as error:
            report(Unreadable(Path(folder), error.strerror or str(error)))
            continue
        for entry in children:
            if exclusion and exclusion.matches_path(entry.path, top):
                continue
            if not _is_nameable(entry.name):
                report(_unnameable(entry.path))
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                # Gone since, or a link to nothing.
                continue
            except OSError as error:
                report(Unreadable(Path(entry.path), error.strerror or str(error)))
                continue
            if stat.S_ISDIR(status.st_mode):
                if entry.name not in _JUNK_FOLDERS:
                    pending.append((entry.path, status))
            elif stat.S_ISREG(status.st_mode) and not _is_no_session(entry.name, folder):
                if entry.is_symlink():
                    links.append((Path(entry.path), status))
                    continue
                place = (status.st_dev, status.st_ino)
                if place not in seen:
                    seen.add(place)
                    yield Found(Path(entry.path), root, status)
    for path, status in sorted(links):
        place = (status.st_dev, status.st_ino)
        if place not in seen:
            seen.add(place)
            yield Found(path, root, status)


def _is_nameable(name: str) -> bool:
    """Whether a path can be stored and printed: names of other encodings cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unnameable(path: str) -> Unreadable:
    shown = os.fsencode(path).decode("utf-8", "replace")
    return Unreadable(Path(shown), "its name is not UTF-8: rename it")


def _is_no_session(name: str, folder: str) -> bool:
    if name == "journal.jsonl":
        # Of a workflow of sub-agents: what was started and what came back.
        return os.path.basename(os.path.dirname(folder)) == "workflows"
    return name in _NO_SESSIONS or name.endswith(_NO_SESSION_SUFFIXES)
