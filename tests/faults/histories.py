"""Histories of a small library: what it holds, what is done to it, and what it holds then."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sessiondex.errors import NotFound
from sessiondex.indexer.check import check_library
from sessiondex.indexer.library import Library
from tests.builders import (
    claude_assistant,
    claude_path,
    claude_user,
    conversation,
    write_lines,
)
from tests.faults.children import Children, Ended
from tests.faults.pictures import found_by_reading, picture, texts

SHARED_TEXT = "the same long tool output " * 12
"""Long enough to be stored once."""

NAMES = ("build", "build in batches", "grow", "grow in batches", "purge", "forget")


@dataclass(slots=True)
class History:
    """A state of a library, a job, and the state after it. Trials begin with copies of it."""

    name: str
    folder: Path
    server: Children
    job: str
    arguments: dict[str, Any]
    old: dict[str, Any] | None
    """None: there is no library before."""
    new: dict[str, Any] = field(default_factory=dict)
    calls: int = 0
    """Calls of the job that change files."""

    @property
    def base(self) -> Path:
        return self.folder / "base"

    def fresh(self, name: str) -> Path:
        """A library as it stands before the job."""
        library = self.folder / name
        if self.old is not None:
            shutil.copytree(self.base, library)
        return library

    def do(self, library: Path, faults: dict[str, Any] | None = None) -> Ended:
        """Does the job in a child, with faults."""
        return self.server.run(self.job, faults, library=library, **self.arguments)

    def again(self, library: Path, faults: dict[str, Any]) -> Ended:
        """Does the job in a child with faults, and after a failure once more without them."""
        return self.server.run(f"{self.job}_again", faults, library=library, **self.arguments)

    def start(self, library: Path) -> int:
        return self.server.start(self.job, None, library=library, **self.arguments)

    def assert_old_or_new(self, library: Path) -> None:
        """Nothing half, nothing lost: the state is sound and one of those between old and new."""
        try:
            seen = picture_of(library)
        except NotFound:
            assert self.old is None
            return
        assert check_library(library).problems == []
        assert seen["found"] == found_by_reading(seen)
        if seen == self.new or seen == self.old:
            return
        if not self.name.endswith("in batches"):
            assert self.old is None and texts(seen) == {}
            return
        now, after = texts(seen), texts(self.new)
        assert now.keys() >= (self.old or {}).keys() - {"found"}
        for name, lines in now.items():
            is_old = self.old is not None and seen[name] == self.old.get(name)
            assert is_old or lines == after[name][: len(lines)], name

    def assert_completes(self, library: Path) -> None:
        """The next run, in this process, brings what the job should have brought."""
        from tests.faults import work

        try:
            work.JOBS[self.job](str(library), **self.arguments)
        except NotFound:
            assert self.job == "forget"  # it was forgotten
        assert check_library(library).problems == []
        assert picture_of(library) == self.new


def picture_of(library: Path) -> dict[str, Any]:
    with Library.open(library) as opened:
        return picture(opened)


def write_old(home: Path) -> None:
    """Three sessions: two share their first turns, one text is long enough to be shared."""
    write_lines(claude_path(home, "one"), [*conversation(2), claude_user(SHARED_TEXT, 90)])
    write_lines(claude_path(home, "two"), [*conversation(2), claude_user("needle 隙間", 91)])
    write_lines(claude_path(home, "three"), conversation(1, start=200))


def write_grown(home: Path) -> None:
    """An append, a rewrite, a new session."""
    write_lines(claude_path(home, "one"), conversation(1, start=300), append=True)
    changed = conversation(3)
    changed[7] = claude_assistant("Something else turns freely.", 7)
    write_lines(claude_path(home, "two"), changed)
    write_lines(claude_path(home, "four"), [*conversation(2), claude_user(SHARED_TEXT, 93)])


def history(name: str, folder: Path, server: Children) -> History:
    """Prepares one of `NAMES` in an empty folder."""
    home, base = folder / "home", folder / "base"
    arguments: dict[str, Any] = {"home": str(home)}
    if name.endswith("in batches"):
        arguments["batch_bytes"] = 1_500
    write_old(home)
    if not name.startswith("build"):
        server.run("index", library=base, home=home)
        if name == "purge":
            # The generation that was replaced leaves the index with the next commit.
            write_grown(home)
            server.run("index", library=base, home=home)
            write_lines(claude_path(home, "three"), conversation(1, start=500), append=True)
        elif name.startswith("grow"):
            write_grown(home)
    made = History(
        name, folder, server, "forget" if name == "forget" else "index",
        {"sessions": ["one"]} if name == "forget" else arguments,
        picture_of(base) if base.exists() else None,
    )  # fmt: skip
    control = made.fresh("control")
    made.calls = len(made.do(control, {"kill_at": 0}).told["calls"])
    made.new = picture_of(control)
    return made
