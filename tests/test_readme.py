"""What the README shows is executed: its terminal session, its Python, its commands.

`SESSIONDEX_UPDATE_DOCS=1 python -m pytest tests/test_readme.py` writes the output anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sessiondex.cli.application import COMMANDS
from sessiondex.cli.demo_sessions import write_demo_sessions

README = Path(__file__).parents[1] / "README.md"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
_VOLATILE = re.compile(r" in \d+\.\d+ s$|, refreshed (just now|\d+ \w+ ago)$", re.MULTILINE)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_demo_sessions(tmp_path / "home")
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(place), "SESSIONDEX_LIBRARY": "library", "TZ": "UTC",
            "PYTHONUTF8": "1"}  # fmt: skip


def executed(block: str, place: Path) -> str:
    """The terminal session again, with what its commands print now."""
    lines: list[str] = []
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        words = shlex.split(line[2:])
        assert words[0] == "sessiondex"
        ran = subprocess.run(
            [sys.executable, "-m", "sessiondex", *words[1:]], cwd=place, env=environment(place),
            capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        lines += [line, *_VOLATILE.sub("", ran.stdout).replace(f"{place}/", "").splitlines()]
    return "\n".join(lines) + "\n"


def test_the_terminal_session_prints_what_the_readme_shows(place: Path) -> None:
    text = README.read_text()
    block = CONSOLE.search(text)
    assert block is not None
    now = executed(block[1], place)
    if os.environ.get("SESSIONDEX_UPDATE_DOCS"):
        README.write_text(text.replace(block[1], now))
    else:
        assert block[1] == now


def test_the_python_of_the_readme_runs(place: Path) -> None:
    for block in PYTHON.findall(README.read_text()):
        ran = subprocess.run(
            [sys.executable, "-c", block], cwd=place, env=environment(place),
            capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert "ok present" in ran.stdout
        assert ran.stdout.splitlines()[-1] == "E00000001"


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"`sessiondex ([a-z]+)", README.read_text()))
    assert named <= set(COMMANDS)


def test_the_tools_of_the_readme_are_the_tools_there_are() -> None:
    from sessiondex.features.catalogue import all_features

    rows = re.findall(r"^\| `(builtin:[a-z-]+)` \| (.+) \|$", README.read_text(), re.MULTILINE)
    shown = {feature: re.findall(r"`(\w+)`", tools) for feature, tools in rows}
    assert shown == {
        feature.id: [tool.name for tool in feature.tools] for feature in all_features()
    }
