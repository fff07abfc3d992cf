"""`grant`: added, listed, removed, and in the audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessiondex.features.local_sessions import local_subject
from sessiondex.features.state import State

from .conftest import CommandLine

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"
SUBJECT = local_subject("codex", CODEX)
WORD = f"local:codex/{SUBJECT.worker_id}"


def test_a_grant_is_added_listed_and_removed(own: CommandLine) -> None:
    added = own("grant", "add", "ada", WORD, "--json").json
    assert added == {
        "workspace": "", "observer": "ada", "subject": SUBJECT.model_dump(), "verb": "observe",
        "created": "2026-04-04T12:00:00.000Z", "revoked": None,
    }  # fmt: skip
    assert own("grant", "list", "--json").json == {"grants": [added]}
    assert own("grant", "list").out == f"ada\t{WORD}\t\t2026-04-04 12:00\n"
    assert own("grant", "remove", "ada", WORD).out.startswith("revoked: ada")
    assert own("grant", "list", "--json").json == {"grants": []}
    kept = own("grant", "list", "--all", "--json").json["grants"]
    assert kept == [{**added, "revoked": "2026-04-04T12:00:00.000Z"}]
    assert own("grant", "list", "--all").lines[0].endswith("2026-04-04 12:00\t2026-04-04 12:00")


def test_a_subject_is_named_by_a_word_by_json_or_by_its_session(own: CommandLine) -> None:
    for words in ((WORD,), (json.dumps(SUBJECT.model_dump()),), ("--session", CODEX[:5])):
        added = own("grant", "add", "ada", *words, "--json").json
        assert added["subject"] == SUBJECT.model_dump()
    assert len(own("grant", "list", "--json").json["grants"]) == 1


def test_a_name_with_slashes_is_taken_back_as_it_is_printed(own: CommandLine) -> None:
    subject = {"kind": "runtime_worker", "runtime_id": "forge/2", "worker_id": "a b/c:d"}
    own("grant", "add", "ada", json.dumps(subject))
    word = own("grant", "list").out.split("\t")[1]
    assert own("grant", "remove", "ada", word, "--json").json["subject"] == subject


def test_grants_of_a_workspace_are_apart(own: CommandLine) -> None:
    own("grant", "add", "ada", "forge/bob", "--workspace", "mill")
    own("grant", "add", "eve", "forge/bob")
    in_mill = own("grant", "list", "--workspace", "mill", "--json").json["grants"]
    assert [each["observer"] for each in in_mill] == ["ada"]
    of_eve = own("grant", "list", "--observer", "eve", "--json").json["grants"]
    assert [each["workspace"] for each in of_eve] == [""]
    assert own("grant", "remove", "ada", "forge/bob").code == 3
    assert own("grant", "remove", "ada", "forge/bob", "--workspace", "mill").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("add", "ada"),
        ("add", "ada", WORD, "--session", CODEX),
        ("add", "ada", "nobody"),
        ("add", "ada", "{"),
        ("add", "ada", '{"kind": "runtime_worker"}'),
        ("add", "ada", "/x"),
        ("add", "", WORD),
        ("add", "a\nb", WORD),
    ],
)
def test_what_names_no_subject_or_observer_is_refused(
    own: CommandLine, words: tuple[str, ...]
) -> None:
    ended = own("grant", *words)
    assert ended.code == 2
    assert own("grant", "list", "--json").json == {"grants": []}


def test_an_unknown_session_is_not_granted(own: CommandLine) -> None:
    assert own("grant", "add", "ada", "--session", "nobody").code == 3


def test_the_audit_says_who_was_granted_what(own: CommandLine, tmp_path: Path) -> None:
    own("grant", "add", "ada", WORD)
    own("grant", "remove", "ada", WORD)
    with State.beside(tmp_path / "library") as state:
        rows = state.audit_rows()
    assert [(row.action, row.actor, row.outcome) for row in rows] == [
        ("grant.remove", "command line", "for ada"), ("grant.add", "command line", "for ada"),
    ]  # fmt: skip


def test_grants_can_be_made_before_there_is_a_library(
    command_line: CommandLine, demo_home: Path
) -> None:
    assert command_line("grant", "add", "ada", WORD).code == 0
    assert command_line("index", str(demo_home)).code == 0
    assert len(command_line("grant", "list").lines) == 1


def test_looking_at_grants_makes_no_folder(command_line: CommandLine, tmp_path: Path) -> None:
    for words in (("grant", "list"), ("serve", "token", "list"),
                  ("serve", "orchestrator", "--workspace", "w"), ("staging", "list")):  # fmt: skip
        assert command_line(*words, "--library", str(tmp_path / "mistyped")).code == 0
    assert not (tmp_path / "mistyped").exists()
