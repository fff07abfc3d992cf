"""`staging`: listed with what cannot be read, shown, verified, closed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import CommandLine

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"
CANDIDATE = {
    "kind": "lesson", "claim": "The feed repeats tides.", "why_useful": "Look for duplicates.",
    "staleness": "When the feed is replaced.", "entry_refs": ["E4"],
}  # fmt: skip


@pytest.fixture
def id(own: CommandLine) -> str:
    """A candidate that waits."""
    ended = own("tools", "call", "StageMemoryCandidate", json.dumps(CANDIDATE), "--session", CODEX)
    return ended.json["id"]


def test_nothing_is_staged_at_first(own: CommandLine) -> None:
    assert own("staging", "list", "--json").json == {"records": [], "unreadable": []}
    listed = own("staging", "list")
    assert (listed.out, listed.err) == ("", "no candidate waits\n")
    assert own("staging", "verify").code == 0


def test_a_list_names_what_cannot_be_read_and_deletes_nothing(
    own: CommandLine, id: str, tmp_path: Path
) -> None:
    strange = tmp_path / "library" / "staging" / "old.json"
    strange.write_text('{"schema_version": 1}')
    listed = own("staging", "list", "--json").json
    assert [each["id"] for each in listed["records"]] == [id]
    assert [each["file"] for each in listed["unreadable"]] == ["old.json"]
    ended = own("staging", "list")
    assert ended.out == f"{id}\tlesson\tuser\tThe feed repeats tides.\n"
    assert "unreadable: old.json" in ended.err
    assert [each["id"] for each in own("staging", "list", "--jsonl").json_lines] == [id]
    assert strange.exists()


def test_an_export_into_a_file_names_what_cannot_be_read(
    own: CommandLine, id: str, tmp_path: Path
) -> None:
    target = str(tmp_path / "candidates.jsonl")
    words = ("staging", "export", "--output", target)
    ended = own(*words, "--json")
    assert (ended.code, ended.json) == (0, {"records": 1, "file": target})
    (tmp_path / "library" / "staging" / "old.json").write_text('{"schema_version": 1}')
    ended = own(*words, "--json")
    assert ended.code == 4
    [unreadable] = own("staging", "list", "--json").json["unreadable"]
    assert unreadable["file"] == "old.json" and unreadable["reason"]
    assert ended.json == {"records": 1, "file": target, "unreadable": [unreadable]}
    assert json.loads(Path(target).read_text())["id"] == id
    ended = own(*words)
    assert ended.code == 4 and f"unreadable: old.json: {unreadable['reason']}" in ended.err


def test_a_record_is_shown_flat_and_for_people(own: CommandLine, id: str) -> None:
    record = own("staging", "show", id, "--json").json
    assert record["schema_version"] == 2
    assert record["claim"] == CANDIDATE["claim"]
    assert record["source_refs"][0]["session_id"] == CODEX
    shown = own("staging", "show", id).out
    for text in ("The feed repeats tides.", "useful: ", "until: ", f"{CODEX}:E4", "満潮"):
        assert text in shown
    assert own("staging", "show", "nothing").code == 3


def test_secrets_in_a_record_of_others_are_masked(
    own: CommandLine, id: str, tmp_path: Path
) -> None:
    path = tmp_path / "library" / "staging" / f"{id}.json"
    record = json.loads(path.read_text())
    secret = "ghp_" + "a1B2c3D4" * 4 + "e5F6"
    path.write_text(json.dumps({**record, "claim": f"the token is {secret}"}))
    for words in (("list",), ("list", "--json"), ("list", "--jsonl"), ("show", id),
                  ("show", id, "--json"), ("close", id, "invalid", "--reason", f"it has {secret}"),
                  ("show", id), ("list", "--closed", "--json")):  # fmt: skip
        ended = own("staging", *words)
        assert ended.code == 0
        assert secret not in ended.out + ended.err
    assert "[REDACTED:" in own("staging", "show", id).out


def test_what_a_record_cites_is_verified(own: CommandLine, id: str, tmp_path: Path) -> None:
    ended = own("staging", "verify")
    assert (ended.code, ended.out) == (0, f"ok  source present  {id}\n")
    result = own("staging", "verify", id, "--json").json["results"][0]
    assert (result["id"], result["status"], result["source"]) == (id, "ok", "present")
    path = tmp_path / "library" / "staging" / f"{id}.json"
    path.write_text(path.read_text().replace("NGS-04", "NGS-05"))
    assert own("staging", "verify").code == 5
    assert own("forget", CODEX).code == 0
    assert own("staging", "verify").code == 3


def test_closing_moves_a_record_and_says_why(own: CommandLine, id: str) -> None:
    assert own("staging", "close", id, "applied").code == 2
    assert own("staging", "close", id, "loved", "--reason", "x").code == 2
    assert own("staging", "close", "nothing", "applied", "--reason", "x").code == 3
    closed = own("staging", "close", id, "applied", "--reason", "In the notes.", "--json").json
    assert closed["extensions"]["resolution"] == {
        "outcome": "applied",
        "reason": "In the notes.",
        "closed_at": "2026-04-04T12:00:00.000Z",
    }
    assert own("staging", "list", "--json").json["records"] == []
    assert own("staging", "list", "--closed", "--json").json["records"] == [closed]
    assert "closed: applied: In the notes." in own("staging", "show", id).out
    again = own("staging", "close", id, "applied", "--reason", "In the notes.")
    assert again.out == f"closed: {id} as applied\n"
    assert own("staging", "close", id, "invalid", "--reason", "Wrong.").code == 2
