"""`mcp`: what is refused before anything is served. What is served: tests/features/test_mcp.py."""

from __future__ import annotations

import sys

import pytest

from .conftest import CommandLine

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"


@pytest.mark.parametrize("name", ["memory-extract", "builtin:memory-extract", "sub-worker"])
def test_what_writes_is_not_served(demo: CommandLine, name: str) -> None:
    ended = demo("mcp", "--feature", name, "--session", CODEX)
    assert (ended.code, ended.out) == (2, "")
    assert "is not served over MCP" in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--feature", "session-explore"), "needs --session"),
        (("--feature", "session-log"), "needs --session"),
        (("--feature", "worker-observation"), "needs --observer"),
        (("--feature", "library", "--session", CODEX), "no feature that uses it"),
        (("--observer", "ada"), "no feature that uses it"),
        (("--feature", "nonsense"), "no feature 'nonsense'"),
        (("--feature", "worker-observation", "--observer", "a\nb"), "malformed observer"),
        (("--feature", "worker-observation", "--observer", "a", "--workspace", "w"),
         "go together"),
        (("--http", "70000"), "70000"),
    ],
)  # fmt: skip
def test_a_server_is_told_at_start_what_it_needs_and_nothing_else(
    own: CommandLine, words: tuple[str, ...], said: str
) -> None:
    ended = own("mcp", *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_session_that_is_not_there_ends_it(demo: CommandLine) -> None:
    ended = demo("mcp", "--feature", "session-explore", "--session", "nobody")
    assert (ended.code, ended.out) == (3, "")


def test_without_a_library_it_says_which_command_makes_one(command_line: CommandLine) -> None:
    ended = command_line("mcp")
    assert (ended.code, ended.out) == (3, "")
    assert "sessiondex index" in ended.err


@pytest.mark.parametrize(
    ("words", "package", "module", "extra"),
    [(("mcp",), "mcp_types", "mcp_server", "mcp"),
     (("serve",), "uvicorn", "workspace_server", "serve")],
)  # fmt: skip
def test_without_its_extra_a_server_says_how_to_install_it(
    demo: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    package: str,
    module: str,
    extra: str,
) -> None:
    monkeypatch.delitem(sys.modules, f"sessiondex.features.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    ended = demo(*words)
    assert ended.code == 1
    assert f"pip install 'sessiondex[{extra}]'" in ended.err
