"""`observe`: what an observer may see, for people and programs, page by page."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiondex.features.local_sessions import local_subject

from .conftest import CommandLine

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"
SUBJECT = local_subject("codex", CODEX)
WORD = f"local:codex/{SUBJECT.worker_id}"
AS_ADA = ("--observer", "ada")


@pytest.fixture
def ada(own: CommandLine) -> CommandLine:
    """The observer `ada` was granted the session of Codex."""
    assert own("grant", "add", "ada", WORD).code == 0
    return own


def test_without_an_observer_the_host_sees_what_could_be_granted(own: CommandLine) -> None:
    listed = own("observe", "list", "--json").json
    assert listed["returned"] == 7
    assert WORD in own("observe", "list").out
    for each in listed["subjects"]:
        session = each["display_name"].partition(" ")[2]
        granted = own("grant", "add", "ada", "--session", session, "--json").json
        assert granted["subject"] == each["subject"]
    seen = own("observe", "list", *AS_ADA, "--json").json
    assert seen["subjects"] == listed["subjects"]
    assert own("observe", "list", "--limit", "2", "--json").json["has_more"]


def test_an_observer_sees_what_was_granted_and_nothing_else(ada: CommandLine) -> None:
    listed = ada("observe", "list", *AS_ADA, "--json").json
    assert [each["subject"] for each in listed["subjects"]] == [SUBJECT.model_dump()]
    assert ada("observe", "list", *AS_ADA).out == f"{WORD}\tlocal\tactive\tcodex {CODEX}\n"
    assert ada("observe", "list", "--observer", "eve").out == ""


def test_a_place_that_is_printed_is_taken_back(ada: CommandLine) -> None:
    found = ada("observe", "search", WORD, "満潮", *AS_ADA)
    assert len(found.lines) == 2
    assert f"session of {WORD}" in found.err
    overview = ada("observe", "overview", WORD, *AS_ADA)
    for line in (*found.lines, *overview.lines[2:3]):
        place = line.split()[0]
        assert place.startswith(f"{WORD}:E")
        assert ada("observe", "read", place, *AS_ADA).code == 0
    assert "満潮" in ada("observe", "read", WORD, "E4", *AS_ADA).out
    assert "NGS-04" in ada("observe", "overview", WORD, *AS_ADA, is_terminal=True).out


def test_json_is_what_a_model_gets(ada: CommandLine) -> None:
    for words in (("overview", WORD), ("search", WORD, "満潮"), ("read", WORD, "E4", "E14"),
                  ("read", WORD, "E4", "--through", "E6")):  # fmt: skip
        reply = ada("observe", *words, *AS_ADA, "--json").json
        assert reply["subject"] == SUBJECT.model_dump()
        assert reply["capture"]


def test_every_page_is_followed(ada: CommandLine) -> None:
    one = ada("observe", "search", WORD, "--limit", "3", *AS_ADA, "--json").json
    assert one["has_more"]
    refs = [hit["entry_ref"] for hit in one["hits"]]
    while one["has_more"]:
        words = ("--limit", "3", "--cursor", one["next_cursor"])
        one = ada("observe", "search", WORD, *words, *AS_ADA, "--json").json
        refs += [hit["entry_ref"] for hit in one["hits"]]
    assert len(set(refs)) == len(refs) == 8
    for form in ("--json", "--jsonl"):
        ended = ada("observe", "search", WORD, "--all", *AS_ADA, form)
        hits = ended.json["hits"] if form == "--json" else ended.json_lines
        assert [hit["entry_ref"] for hit in hits] == refs
    assert len(ada("observe", "search", WORD, "--all", *AS_ADA).lines) == 8
    assert len(ada("observe", "overview", WORD, "--all", "--jsonl", *AS_ADA).json_lines) == 2


def test_filters_are_those_of_the_tool(ada: CommandLine) -> None:
    words = ("--kind", "tool", "--tool-part", "output", "--no-error")
    hits = ada("observe", "search", WORD, *words, *AS_ADA, "--json").json["hits"]
    assert hits
    assert {hit["tool_part"] for hit in hits} == {"output"}
    assert ada("observe", "search", WORD, "--kind", "nonsense", *AS_ADA).code == 2


def test_missing_forbidden_and_revoked_are_told_the_same(ada: CommandLine) -> None:
    other = local_subject("claude-code", "c83d9b14-60f7-4e1a-b2d5-7a9e4410f2c6")
    forbidden = ada("observe", "read", f"local:claude-code/{other.worker_id}", "E0", *AS_ADA)
    missing = ada("observe", "read", "forge/nobody", "E0", *AS_ADA)
    ada("grant", "remove", "ada", WORD)
    revoked = ada("observe", "read", WORD, "E4", *AS_ADA)
    assert (revoked.code, revoked.out) == (3, "")
    assert forbidden == missing == revoked


@pytest.mark.parametrize(
    "words",
    [("overview", WORD), ("search", WORD, "x"), ("read", WORD, "E4"),
     ("read", WORD, *AS_ADA), ("overview", "nobody", *AS_ADA),
     ("read", WORD, "E4", "E5", "--through", "E6", *AS_ADA)],
)  # fmt: skip
def test_an_observer_a_subject_and_a_ref_are_needed(
    ada: CommandLine, words: tuple[str, ...]
) -> None:
    assert ada("observe", *words).code == 2


def test_observing_writes_nothing_into_the_library(ada: CommandLine, tmp_path: Path) -> None:
    def picture() -> dict[str, bytes]:
        files = (path for path in (tmp_path / "library").rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files if "sqlite3" not in path.name}

    before = picture()
    for words in (("list",), ("overview", WORD), ("search", WORD, "満潮"), ("read", WORD, "E4")):
        assert ada("observe", *words, *AS_ADA).code == 0
    assert picture() == before
