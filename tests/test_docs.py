"""The documents: generated parts are what the code says, and what is to be copied works."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from scripts.generate_docs import DOCS, rewritten
from sessiondex.cli.application import cli
from sessiondex.cli.demo_sessions import write_demo_sessions
from sessiondex.cli.mcp import UNSERVED
from sessiondex.features.catalogue import all_features

PAGES = sorted(DOCS.glob("*.md"))
MCP = DOCS / "mcp.md"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [body for name, body in _BLOCK.findall(text) if name == language]


def parsed(words: list[str]) -> click.Context:
    """The context of the innermost command that a command line calls; runs nothing."""
    context = cli.make_context("sessiondex", list(words), resilient_parsing=False)
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, context._protected_args + context.args)
        assert found is not None
        command = found
        context = found.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_what_the_code_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert rewritten(text) == text, "run scripts/docs"


def test_every_tool_that_is_served_over_mcp_is_documented() -> None:
    text = MCP.read_text(encoding="utf-8")
    for feature in all_features():
        if feature.id in UNSERVED:
            assert f"`{feature.id.removeprefix('builtin:')}`" in text
            continue
        assert f"<!-- generated: tools {feature.id} -->" in text
        for tool in feature.tools:
            assert f"| `{tool.name}` |" in text


@pytest.mark.parametrize("client", ["Claude Code", "Codex", "Gemini CLI", "Cursor"])
def test_every_client_has_a_configuration_that_starts_the_server(client: str) -> None:
    text = MCP.read_text(encoding="utf-8")
    section = re.search(rf"^## {client}\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    assert section is not None
    servers: list[Any] = []
    for language, body in _BLOCK.findall(section[1]):
        if language == "json":
            servers.append(json.loads(body)["mcpServers"]["sessiondex"])
        elif language == "toml":
            servers.append(tomllib.loads(body)["mcp_servers"]["sessiondex"])
    assert servers
    for server in servers:
        assert server["command"] == "sessiondex"
        assert parsed(server["args"]).command.name == "mcp"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_documents_runs(page: Path, tmp_path: Path) -> None:
    write_demo_sessions(tmp_path / "home")
    for body in blocks(page, "python"):
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", body],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.strip(), "an example prints what it is about"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_documents_can_be_parsed(page: Path) -> None:
    lines = [line for body in blocks(page, "sh") for line in body.splitlines()]
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:1] == ["sessiondex"]:
            parsed(words[1:])
