"""`tools`: every tool is shown, and a call prints what a model would get."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from sessiondex.features.catalogue import all_features, all_tools
from sessiondex.features.local_host import SLUGS, feature_id, feature_of_tool
from sessiondex.features.registry import Registry
from sessiondex.features.services import CAPTURE, Services
from sessiondex.features.session_explore import SessionExplore
from sessiondex.features.tool import schema_fingerprint
from sessiondex.indexer.library import Library

from .conftest import CommandLine

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"
CANDIDATE = {
    "kind": "decision", "claim": "Near duplicates are dropped in favour of the earlier feed.",
    "why_useful": "The screen shows each tide once.", "entry_refs": ["E4", "E14"],
}  # fmt: skip


def test_every_tool_of_every_feature_is_listed_without_a_library(command_line: CommandLine) -> None:
    listed = command_line("tools", "list", "--json").json["tools"]
    assert [each["name"] for each in listed] == list(all_tools())
    assert {each["feature"] for each in listed} == {each.id for each in all_features()}
    writing = [each["name"] for each in listed if not each["read_only"]]
    assert writing == [
        "StageMemoryCandidate", "FinishMemoryExtraction", "SubWorkerSend", "SubWorkerStop",
    ]  # fmt: skip
    assert len(command_line("tools", "list").lines) == len(listed)
    assert "SearchEntries" in command_line("tools", "list", is_terminal=True).out


def test_schemas_are_those_of_the_one_definition(command_line: CommandLine) -> None:
    tools = all_tools()
    for name, tool in tools.items():
        assert command_line("tools", "schema", name).json == json.loads(json.dumps(tool.schema()))
    every = command_line("tools", "schema").json
    assert [each["name"] for each in every["tools"]] == list(tools)
    assert every["fingerprint"] == schema_fingerprint(tools.values())
    unknown = command_line("tools", "schema", "Nothing")
    assert (unknown.code, unknown.out) == (3, "")


def test_hosts_know_every_feature_of_the_catalogue() -> None:
    assert {feature_id(slug) for slug in SLUGS} == {each.id for each in all_features()}
    for feature in all_features():
        for tool in feature.tools:
            assert feature_of_tool(tool.name) == feature.id


def test_a_call_prints_exactly_the_bytes_that_a_model_gets(
    demo: CommandLine, demo_library: Path
) -> None:
    with Library.open(demo_library) as library:
        registry = Registry()
        capture = library.capture(CODEX).committed()
        registry.install([SessionExplore()], Services({CAPTURE: capture})).require_all()
        for name, arguments in (
            ("ShowOverview", {}),
            ("ReadEntry", {"entry_ref": "E4"}),
            ("ReadEntry", {"entry_ref": "E4", "colour": 1}),
            ("ReadEntry", {"entry_ref": "E999"}),
        ):
            expected = registry.call(name, arguments)
            ended = demo("tools", "call", name, json.dumps(arguments), "--session", CODEX)
            assert ended.out.encode() == expected.data
            assert ended.code == expected.exit_code
            assert ended.err == ""


def test_people_get_a_newline_after_it(demo: CommandLine) -> None:
    ended = demo("tools", "call", "ShowOverview", "--session", CODEX, is_terminal=True)
    assert ended.out.endswith("}\n")


def test_arguments_are_read_from_standard_input(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"query": "満潮", "limit": 1}'))
    ended = demo("tools", "call", "SearchLibrary", "-")
    assert ended.json["hits"][0]["session"] == CODEX


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("ShowOverview", "{}"), 2, "usage"),
        (("ShowOverview", "{", "--session", CODEX), 2, "invalid_argument"),
        (("ShowOverview", "[]", "--session", CODEX), 2, "invalid_argument"),
        (("ShowOverview", '{"strid": 1}', "--session", CODEX), 2, "invalid_argument"),
        (("ShowOverview", "{}", "--session", "nobody"), 3, "not_found"),
        (("ReadEntry", '{"entry_ref": "E999"}', "--session", CODEX), 3, "past_end"),
        (("ReadLibraryEntry", '{"session": "019d3", "entry_ref": "E4"}'), 3, "not_found"),
        (("Nothing",), 3, "not_found"),
        (("ListWorkerSessions",), 2, "usage"),
        (("SubWorkerList",), 1, "failed"),
        (("StageMemoryCandidate", "{}"), 2, "usage"),
        (("ListWorkerSessions", "--observer", "x", "--workspace", "w"), 2, "usage"),
    ],
)
def test_an_error_is_the_error_object_on_stdout(
    own: CommandLine, words: tuple[str, ...], code: int, kind: str
) -> None:
    ended = own("tools", "call", *words)
    assert ended.code == code
    assert ended.json["error"]["kind"] == kind
    assert set(ended.json["error"]) == {"class", "kind", "message", "hint"}
    assert ended.err == ""


def test_without_a_library_a_call_says_which_command_makes_one(command_line: CommandLine) -> None:
    ended = command_line("tools", "call", "SearchLibrary", '{"query": "tide"}')
    assert ended.code == 3
    assert "sessiondex index" in ended.json["error"]["hint"]


def test_a_fault_says_its_type_on_stderr_alone(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("words of a session")

    monkeypatch.setattr("sessiondex.features.session_explore.show_overview", broken)
    words = ("tools", "call", "ShowOverview", "--session", CODEX)
    ended = demo(*words)
    assert ended.code == 1
    assert ended.json["error"]["class"] == "internal"
    assert ended.err == "fault in ShowOverview: ZeroDivisionError\n"
    monkeypatch.setenv("SESSIONDEX_DEBUG", "1")
    assert "words of a session" in demo(*words).err


def test_candidates_staged_by_hand_are_one_run(own: CommandLine) -> None:
    """An extract run by hand: every call is a process, and nothing is staged twice."""
    at = ("--session", CODEX)
    first = own("tools", "call", "StageMemoryCandidate", json.dumps(CANDIDATE), *at).json
    again = own("tools", "call", "StageMemoryCandidate", json.dumps(CANDIDATE), *at).json
    assert (first["staged_count"], first["already_staged"]) == (1, False)
    assert again == {**first, "already_staged": True, "remaining": first["remaining"]}
    wrong = own("tools", "call", "FinishMemoryExtraction", '{"staged_count": 2}', *at)
    assert wrong.code == 2
    done = own("tools", "call", "FinishMemoryExtraction", '{"staged_count": 1}', *at)
    assert done.json == {"sealed": True, "staged_count": 1}
    records = own("staging", "list", "--json").json["records"]
    assert [each["id"] for each in records] == [first["id"]]
    assert [each["id"] for each in records[0]["evidence"]] == ["E00000004", "E00000014"]
