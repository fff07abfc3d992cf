"""`search` and `list`: what is printed, what is taken as the query, pages and streams."""

from __future__ import annotations

import pytest

from .conftest import CommandLine

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"


def test_a_pipe_gets_one_line_a_hit_and_the_footer_goes_to_stderr(demo: CommandLine) -> None:
    ended = demo("search", "満潮")
    assert ended.code == 0
    assert len(ended.lines) == 2
    assert all(line.split()[0].startswith("019d3:E") for line in ended.lines)
    assert "\x1b" not in ended.out
    assert "the whole library" in ended.err
    assert "refreshed" in ended.err


def test_what_a_hit_prints_is_taken_back(demo: CommandLine) -> None:
    for line in demo("search", "offset", "--all").lines:
        place = line.split()[0]
        assert demo("read", place).code == 0
        assert demo("resolve", place).code == 0


def test_a_query_that_begins_with_a_dash_is_taken_as_it_is(demo: CommandLine) -> None:
    for query in ("--csv", "--csv > /app", "-2 /app", "--unknown=thing", "--flag", "--error", "-x"):
        found = demo("search", query)
        assert found.code == 0, (query, found.err)
        behind = demo("search", "--literal", "--json", "--", query)
        assert behind.code == 0, query
    assert len(demo("search", "--csv", "--literal", "--json").json["hits"]) == 2
    behind = demo("search", "--literal", "--", "--csv")
    assert demo("search", "--csv", "--literal").out == behind.out


def test_a_misspelled_option_beside_a_query_is_refused(demo: CommandLine) -> None:
    ended = demo("search", "tide", "--limt", "5")
    assert ended.code == 2
    assert "--limt" in ended.err


def test_matches_are_marked_only_where_colours_are_wanted(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[1;31m満潮\x1b[0m" in demo("search", "満潮", "--color", "always").out
    assert "\x1b[1;31m満潮\x1b[0m" in demo("search", "満潮", is_terminal=True).out
    assert "\x1b" not in demo("search", "満潮", "--color", "never", is_terminal=True).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in demo("search", "満潮", is_terminal=True).out


def test_a_page_says_how_to_go_on(demo: CommandLine) -> None:
    first = demo("search", "offset", "--literal", "--limit", "3", "--json").json
    assert first["returned"] == 3
    assert first["has_more"]
    assert first["refreshed_at"] == "2026-04-04T12:00:00.000Z"
    refs = [(hit["session"], hit["entry_ref"]) for hit in first["hits"]]
    cursor = first["next_cursor"]
    while cursor:
        page = demo("search", "offset", "--literal", "--cursor", cursor, "--json").json
        refs += [(hit["session"], hit["entry_ref"]) for hit in page["hits"]]
        cursor = page["next_cursor"]
    streamed = demo("search", "offset", "--literal", "--all", "--jsonl").json_lines
    assert refs == [(hit["session"], hit["entry_ref"]) for hit in streamed]
    assert len(set(refs)) == len(refs)
    whole = demo("search", "offset", "--literal", "--all", "--json").json
    assert whole["hits"] == streamed
    assert whole["returned"] == len(streamed)
    assert not whole["has_more"]


def test_no_hits_is_no_error(demo: CommandLine) -> None:
    ended = demo("search", "zebra crossing")
    assert (ended.code, ended.out) == (0, "")
    assert "0 of 0 hits" in ended.err or "no hits" in ended.err


def test_filters_reach_the_search(demo: CommandLine) -> None:
    def sessions(*words: str) -> set[str]:
        return {hit["session"] for hit in demo("search", "tide", *words, "--jsonl").json_lines}

    assert sessions("--agent", "yoi") < sessions()
    assert sessions("--agent", "codex") <= {CODEX}
    assert sessions("--project", "tidewatch") == sessions("--project", "/home/ada")
    assert sessions("--project", "no-such-project") == set()
    kinds = {hit["kind"] for hit in demo("search", "tide", "--kind", "user", "--jsonl").json_lines}
    assert kinds == {"user"}
    tools = demo("search", "tide", "--tool-name", "Bash", "--tool-part", "input", "--jsonl")
    assert {hit["tool_name"] for hit in tools.json_lines} == {"Bash"}
    assert demo("search", "tide", "--tool-part", "input", "--kind", "user").code == 2
    assert demo("search", "tide", "--since", "someday").code == 2
    assert demo("search", "tide", "--since", "2026-04-01", "--until", "2026-04-01", "--json").json[
        "hits"
    ]
    assert not demo("search", "tide", "--since", "2030-01-01", "--json").json["hits"]


def test_inside_one_session_a_query_is_literal_text(demo: CommandLine) -> None:
    ended = demo("search", "満潮が二回", "--session", "019d3", "--json")
    assert ended.json["returned"] == 1
    assert ended.json["session"] == CODEX
    assert "session 019d3" in demo("search", "満潮", "--session", CODEX).err
    assert demo("search", "NGS-0[0-9]", "--regex", "--session", "019d3", "--json").json["hits"]
    assert demo("search", "(", "--regex", "--session", "019d3").code == 2


def test_a_listing_has_lines_and_the_filters_of_search(demo: CommandLine) -> None:
    page = demo("list", "019d3", "--json").json
    assert [line["entry_ref"] for line in page["lines"]][:2] == ["E00000002", "E00000004"]
    assert "hits" not in page
    assert page["session"] == CODEX
    assert page["capture"]
    tools = demo("list", "019d3", "--kind", "tool", "--tool-part", "output", "--jsonl").json_lines
    assert [line["tool_name"] for line in tools] == ["shell", "apply_patch"]
    ranged = demo("list", "019d3", "--from", "019d3:E7", "--through", "E8", "--all", "--json").json
    assert [line["entry_ref"] for line in ranged["lines"]] == ["E00000007", "E00000008"]
    assert ranged["session"] == CODEX
    assert len(demo("list", "019d3").lines) == 8


def test_controls_of_a_session_do_not_reach_the_terminal(
    command_line: CommandLine, tmp_path
) -> None:
    path = tmp_path / "chat.json"
    path.write_text(
        '[{"role":"user","content":"hello \\u001b[31mred\\u001b[0m \\u0007 world"},'
        '{"role":"assistant","content":"\\u202eok\\r\\nbye"}]'
    )
    for words in (("list", str(path)), ("read", f"{path}:E0", "--through", "E1")):
        ended = command_line(*words, is_terminal=True)
        assert ended.code == 0, ended.err
        assert "\x1b[31m" not in ended.out
        assert "␛[31mred" in ended.out
        assert "\x07" not in ended.out
        assert "\u202e" not in ended.out
