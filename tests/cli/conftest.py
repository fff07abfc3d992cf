"""A library of the demo sessions, and command lines run against it in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from sessiondex.cli.application import run
from sessiondex.cli.demo_sessions import write_demo_sessions
from sessiondex.cli.invocation import Surroundings
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import RefreshOptions, index_library

NOW = datetime(2026, 4, 4, 12, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


class CommandLine(Protocol):
    """Runs `sessiondex` with words."""

    def __call__(
        self,
        *words: str,
        is_terminal: bool = False,
        wait: Callable[[float], bool] = lambda _: True,
    ) -> Ended: ...


@pytest.fixture(scope="session")
def demo_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the demo sessions; not to be changed."""
    home = tmp_path_factory.mktemp("demo") / "home"
    write_demo_sessions(home)
    return home


@pytest.fixture(scope="session")
def demo_library(demo_home: Path) -> Path:
    """A library of the demo sessions; not to be changed."""
    path = demo_home.parent / "library"
    with Library.create(path) as library:
        options = RefreshOptions(home=demo_home, environ={}, clock=NOW.timestamp)
        index_library(library, [demo_home], options=options)
    return path


@pytest.fixture
def command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CommandLine:
    """Runs command lines with settings, home and library of this test alone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "NO_COLOR", "PAGER", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)

    def invoke(
        *words: str,
        is_terminal: bool = False,
        wait: Callable[[float], bool] = lambda _: True,
    ) -> Ended:
        capsys.readouterr()
        around = Surroundings(now=lambda: NOW, zone=UTC, is_terminal=is_terminal, wait=wait)
        code = run(words, surroundings=around)
        printed = capsys.readouterr()
        return Ended(code, printed.out, printed.err)

    return invoke


@pytest.fixture
def demo(
    command_line: CommandLine, demo_library: Path, monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """Runs command lines against the library of the demo sessions."""
    monkeypatch.setenv("SESSIONDEX_LIBRARY", str(demo_library))
    return command_line


@pytest.fixture
def own(
    command_line: CommandLine, demo_library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CommandLine:
    """Runs command lines against a library of the demo sessions of this test alone."""
    path = tmp_path / "library"
    shutil.copytree(demo_library, path)
    monkeypatch.setenv("SESSIONDEX_LIBRARY", str(path))
    return command_line
