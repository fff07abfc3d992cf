"""`serve`: its tokens and orchestrators in this process, and one real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import pytest

from sessiondex.features.state import State

from .conftest import CommandLine

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"
PATIENCE = 120
IN_MILL = ("--workspace", "mill")


def test_a_token_is_shown_once_and_stored_hashed(own: CommandLine, tmp_path: Path) -> None:
    made = own("serve", "token", "create", "olga", *IN_MILL)
    assert len(made.lines) == 1
    assert "only its digest is stored" in made.err
    listed = own("serve", "token", "list", "--json")
    assert listed.json["tokens"] == [
        {"name": "olga", "workspace": "mill", "role": "user",
         "created": "2026-04-04T12:00:00.000Z", "revoked": None}
    ]  # fmt: skip
    assert own("serve", "token", "list").out == "olga\tmill\tuser\t2026-04-04 12:00\n"
    secret = made.out.strip()
    for path in (tmp_path / "library").glob("state.sqlite3*"):
        assert secret.encode() not in path.read_bytes()
    assert len(secret) >= 40


def test_a_token_is_revoked_by_name(own: CommandLine) -> None:
    created = own("serve", "token", "create", "forge", *IN_MILL, "--role", "runtime", "--json").json
    assert created["role"] == "runtime"
    assert own("serve", "token", "create", "forge", *IN_MILL).code == 2
    assert own("serve", "token", "revoke", "forge", "--workspace", "attic").code == 3
    assert "revoked" in own("serve", "token", "revoke", "forge", *IN_MILL).out
    assert own("serve", "token", "revoke", "forge", *IN_MILL, "--json").code == 3
    assert own("serve", "token", "list").out == ""
    assert len(own("serve", "token", "list", "--all").lines) == 1
    assert own("serve", "token", "create", "forge", *IN_MILL).code == 0


def test_the_orchestrator_of_a_workspace_is_set_and_shown(own: CommandLine, tmp_path: Path) -> None:
    assert own("serve", "orchestrator", *IN_MILL).out == "nobody\n"
    assert own("serve", "orchestrator", "olga", *IN_MILL).out == "olga\n"
    shown = own("serve", "orchestrator", *IN_MILL, "--json").json
    assert shown == {"workspace": "mill", "orchestrator": "olga"}
    assert own("serve", "orchestrator", "otto", "--none", *IN_MILL).code == 2
    assert own("serve", "orchestrator", "--none", *IN_MILL).out == "nobody\n"
    with State.beside(tmp_path / "library") as state:
        outcomes = [row.outcome for row in state.audit_rows() if row.action == "orchestrator.set"]
    assert outcomes == ["nobody", "olga"]


@pytest.mark.parametrize(
    "words",
    [("token", "create", "olga"), ("token", "create", "", *IN_MILL), ("token", "revoke", "olga"),
     ("token", "create", "olga", *IN_MILL, "--role", "king"), ("orchestrator",),
     ("--port", "70000")],
)  # fmt: skip
def test_a_wrong_command_line_is_refused(own: CommandLine, words: tuple[str, ...]) -> None:
    assert own("serve", *words).code == 2


def test_a_server_needs_a_library(command_line: CommandLine) -> None:
    assert command_line("serve").code == 3


@contextmanager
def server(library: Path, log: IO[str], *words: str) -> Iterator[str]:
    """A server at a free port; gives what it printed first."""
    environment = {**os.environ, "SESSIONDEX_LIBRARY": str(library)}
    with subprocess.Popen(
        [sys.executable, "-m", "sessiondex", "serve", *words], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=log,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE)


def test_a_served_workspace_is_observed_and_staged_into(
    own: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    user = own("serve", "token", "create", "olga", *IN_MILL).out.strip()
    runtime = own("serve", "token", "create", "forge", *IN_MILL, "--role", "runtime").out.strip()
    log = tmp_path / "log"
    with log.open("w") as file, server(library, file, "--json") as said:
        url = json.loads(said)["url"]
        assert url.startswith("http://127.0.0.1:")
        workers = f"{url}/api/w/mill/workers"
        report = {"workers": [{"worker_id": "w1", "session": CODEX, "status": "running"}]}
        with httpx.Client(trust_env=False) as client:
            assert client.post(workers, json=report).status_code == 401
            known = {"authorization": f"Bearer {runtime}"}
            assert client.post(workers, json=report, headers=known).status_code == 200
        monkeypatch.setenv("SESSIONDEX_TOKEN", user)
        there = ("--observer", "olga", *IN_MILL, "--workspace-url", url)
        assert own("observe", "list", *there).out == ""
        own("grant", "add", "olga", "forge/w1", *IN_MILL)
        assert own("observe", "list", *there).out.startswith("forge/w1\tworkspace\trunning")
        found = own("observe", "search", "forge/w1", "満潮", *there)
        assert len(found.lines) == 2
        own("grant", "remove", "olga", "forge/w1", *IN_MILL)
        assert own("observe", "search", "forge/w1", "満潮", *there).code == 3
        own("serve", "orchestrator", "olga", *IN_MILL)
        assert own("observe", "read", "forge/w1", "E4", *there).code == 0
        own("serve", "token", "revoke", "olga", *IN_MILL)
        refused = own("observe", "list", *there, "--json").json
        assert (refused["subjects"], refused["unavailable"]) == ([], ["workspace"])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["status"] for line in lines} == {200, 401, 404}
    assert "満潮" not in log.read_text()
    assert user not in log.read_text()
