"""A real terminal: colours, and long text through the pager."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from sessiondex.cli.demo_sessions import CODEX_ID, FORK_ID, MAIN_ID


def on_a_terminal(*words: str, library: Path, **environment: str) -> tuple[int, str]:
    """Runs the command line on a pseudo-terminal; gives its exit code and what is shown."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "PAGER", "TERM")}
    settings = {"SESSIONDEX_LIBRARY": str(library), "TERM": "xterm", "COLUMNS": "100"}
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "sessiondex", *words], env=kept | settings | environment,
        stdin=follower, stdout=follower, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # Linux says so when nobody writes any more
                break
            if not piece:
                break
            shown += piece
        os.close(leader)
        code = process.wait(timeout=60)
    return code, shown.decode()


def test_a_terminal_gets_colours_unless_it_is_told_not_to(demo_library: Path) -> None:
    code, shown = on_a_terminal("search", "満潮", library=demo_library)
    assert code == 0
    assert "\x1b[1;31m満潮\x1b[0m" in shown
    _, plain = on_a_terminal("search", "満潮", library=demo_library, NO_COLOR="1")
    assert "満潮" in plain
    assert "\x1b" not in plain


def test_long_text_goes_through_the_pager(demo_library: Path) -> None:
    words = ("list", CODEX_ID, "--all")
    code, shown = on_a_terminal(*words, library=demo_library, PAGER="sed s/^/page:/")
    assert code == 0
    lines = shown.splitlines()
    assert len(lines) >= 8
    assert all(line.startswith("page:") for line in lines)


def test_a_pager_that_is_left_early_ends_quietly(demo_library: Path) -> None:
    words = ("read", CODEX_ID, "E4", "--through", "E14", "--all")
    code, shown = on_a_terminal(*words, library=demo_library, PAGER="head -1")
    assert code == 0
    assert len(shown.splitlines()) == 1


def test_a_table_is_drawn_on_a_terminal_and_no_name_is_cut(demo_library: Path) -> None:
    _, shown = on_a_terminal("sessions", library=demo_library, NO_COLOR="1")
    assert "─" in shown
    for name in ("019d3", "019d4", MAIN_ID[:4], FORK_ID[:4]):
        assert any(line.split()[:1] == [name] for line in shown.splitlines()), name
