"""For every way in which search tools miss things: a planted needle is found, and found once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiondex import Library, LibrarySnapshot, SearchRequest, search
from tests.builders import (
    claude_assistant,
    claude_call,
    claude_path,
    claude_result,
    claude_user,
    index,
    moment,
    write_lines,
)

HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
LONG_TOKEN = "k" * 35_000 + "NeedleInsideALongToken" + "q" * 35_000
FILLER = "plain words that say nothing of interest and go on for a while\n"


def codex_lines() -> list[dict[str, Any]]:
    def line(kind: str, payload: dict[str, Any], n: int) -> dict[str, Any]:
        return {"timestamp": moment(n), "type": kind, "payload": payload}

    return [
        line("session_meta", {"id": "codex-recall", "timestamp": moment(0), "cwd": "/home/ada/rig",
                              "originator": "codex_cli_rs", "cli_version": "0.104.0"}, 0),
        line("response_item", {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "please look at the rig"}]}, 1),
        line("response_item", {"type": "function_call", "name": "shell", "call_id": "c1",
                               "arguments": json.dumps({"command": ["bash", "-lc",
                                                                    "echo codexinputneedle"]})}, 2),
        line("response_item", {"type": "function_call_output", "call_id": "c1",
                               "output": json.dumps({"output": "codexoutputneedle\n",
                                                     "metadata": {"exit_code": 0}})}, 3),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibrarySnapshot]:
    home = tmp_path_factory.mktemp("home")
    said = [
        claude_user("the userneedle is here", 0),
        claude_assistant("here is the assistantneedle", 1),
        claude_call("Bash", {"command": 'grep "inputneedle\\d+" src/', "cwd": "/tmp"}, "c1", 2),
        claude_result("outputneedle found", "c1", 3),
        claude_result(FILLER * 30_000 + "megabyteneedle" + FILLER * 30_000, "c2", 4),
        claude_assistant("昨日は全文検索索引増分更新を直した。実装、検索", 5),
        claude_assistant("データベースの接続切断処理", 6),
        claude_assistant("데이터베이스를 다시색인했습니다", 7),
        claude_assistant("call parse_widget_header before sendHttpRequestTwice", 8),
        claude_assistant("ticket rig-4711-beta lies in src/rigging/hoist_brake.toml", 9),
        claude_assistant(f"commit {HASH} is the one", 10),
        claude_assistant(LONG_TOKEN, 11),
        claude_assistant("in std::vec::Vec we trust", 12),
        claude_assistant("did the winch ever stall?", 13),
        claude_assistant("pass --dry-run-forever to it", 14),
        claude_call("Write", {"content": "path = \"C:\\\\rig\\\\\"; say 'hi'"}, "c3", 15),
        claude_assistant("an unbelievably mispronounced word", 16),
        claude_assistant("shipped 🦀🚀 today", 17),
        claude_assistant("ＦＵＬＬＷＩＤＴＨ letters", 18),
        claude_assistant("the Übermäßigkeit of the naïve résumé", 19),
        claude_assistant("the crankshaft wobbles", 20),
    ]
    path = write_lines(claude_path(home, "recall"), said)
    with open(path, "a") as file:
        file.write('{"type":"user","message":{"role":"user","content":"torn in the mid\n')
    write_lines(path, [claude_user("aftercorruptneedle", 21)], append=True)
    with open(path, "a") as file:
        file.write('{"type":"assistant","message":{"content":[{"type":"te')
    codex = home / ".codex" / "sessions" / "2026" / "05" / "04" / "rollout-x.jsonl"
    write_lines(codex, codex_lines())
    agent = path.with_suffix("") / "subagents" / "agent-a1.jsonl"
    write_lines(
        agent,
        [
            claude_user("look closely", 30, isSidechain=True, agentId="a1", sessionId="recall"),
            claude_assistant(
                "subagentneedle seen", 31, isSidechain=True, agentId="a1", sessionId="recall"
            ),
        ],
    )
    shared = [claude_user("begin the forkneedle story", 40), claude_assistant("begun", 41)]
    write_lines(claude_path(home, "trunk"), [*shared, claude_user("stay on", 42)])
    write_lines(claude_path(home, "branch"), [*shared, claude_user("turn off", 50)])
    library = Library.create(tmp_path_factory.mktemp("lib") / "lib")
    index(library, home)
    yield library.snapshot()


LITERAL = {
    "user": "userneedle",
    "assistant": "assistantneedle",
    "tool input": "inputneedle\\d+",
    "tool output": "outputneedle found",
    "inside a 4 MB line": "megabyteneedle",
    "Chinese in the middle of a run": "索引増分",
    "two Chinese characters": "増分",
    "Japanese": "接続切断",
    "Japanese over punctuation": "実装、検",
    "Korean": "시색인했",
    "snake_case whole": "parse_widget_header",
    "snake_case part": "widget_head",
    "camelCase part": "HttpRequest",
    "camelCase prefix": "sendHttp",
    "hyphen-id": "rig-4711-beta",
    "a path": "src/rigging/hoist_brake.toml",
    "a base name": "hoist_brake.toml",
    "a 64-digit hash": HASH,
    "part of a hash": HASH[20:44],
    "a token of 70 kB": "NeedleInsideALongToken",
    "a::b": "std::vec::Vec",
    "a piece of a::b": "d::ve",
    "a trailing ?": "ever stall?",
    "--flag": "--dry-run-forever",
    "quotes and backslashes inside tool input": "\"C:\\\\rig\\\\\"; say 'hi'",
    "mid-word substring": "mispronou",
    "end of a word": "believably",
    "emoji": "🦀🚀",
    "half of the emoji": "🚀",
    "full-width letters found by narrow ones": "fullwidth",
    "full-width query": "ｃｒａｎｋｓｈａｆｔ",
    "sharp s": "ÜBERMÄSSIGKEIT",
    "after a corrupt line": "aftercorruptneedle",
    "Codex tool input": "codexinputneedle",
    "Codex tool output": "codexoutputneedle",
    "in a sub-agent": "subagentneedle",
    "in a forked copy": "forkneedle",
}


@pytest.mark.parametrize("query", LITERAL.values(), ids=LITERAL.keys())
def test_a_literal_needle_is_found_once(snapshot: LibrarySnapshot, query: str) -> None:
    page = search(snapshot, SearchRequest(query=query, match="literal"))
    assert len(page["hits"]) == 1, [hit["snippet"]["text"] for hit in page["hits"]]
    assert not page["has_more"]


RANKED = {
    "a word": "userneedle",
    "Chinese in the middle of a run": "索引増分",
    "two Chinese characters": "増分",
    "Korean": "다시색인",
    "snake_case part": "widget",
    "camelCase part": "request",
    "camelCase whole in other case": "sendhttprequesttwice",
    "hyphen-id": "rig-4711-beta",
    "a path": "src/rigging/hoist_brake.toml",
    "a base name": "hoist_brake.toml",
    "a hash": HASH,
    "a phrase": '"winch ever stall"',
    "a prefix": "mispron*",
    "diacritics left out": "resume naive",
    "diacritics put in": "crânkshaft",
    "an exclusion": "begin -crankshaft forkneedle",
    "a field": "codexinputneedle tool:shell",
}


@pytest.mark.parametrize("query", RANKED.values(), ids=RANKED.keys())
def test_a_ranked_needle_is_found_once(snapshot: LibrarySnapshot, query: str) -> None:
    page = search(snapshot, SearchRequest(query=query, match="ranked"))
    assert len(page["hits"]) == 1, [hit["snippet"]["text"] for hit in page["hits"]]
    assert page["notes"] == []


def test_one_typo_is_forgiven_when_nothing_else_matches(snapshot: LibrarySnapshot) -> None:
    page = search(snapshot, SearchRequest(query="crankshoft", match="ranked"))
    assert [hit["snippet"]["text"] for hit in page["hits"]] == ["the crankshaft wobbles"]
    assert [note["code"] for note in page["notes"]] == ["typo"]


def test_a_piece_of_a_word_is_found_when_no_word_matches(snapshot: LibrarySnapshot) -> None:
    page = search(snapshot, SearchRequest(query="ispronounce", match="ranked"))
    assert len(page["hits"]) == 1
    assert [note["code"] for note in page["notes"]] == ["relaxed"]


def test_a_copy_is_one_hit_that_names_the_other_session(snapshot: LibrarySnapshot) -> None:
    page = search(snapshot, SearchRequest(query="forkneedle", match="literal"))
    (hit,) = page["hits"]
    assert (hit["session"], hit["also_in"], hit["also_in_total"]) == ("trunk", ["branch"], 1)
    both = search(snapshot, SearchRequest(query="forkneedle", match="literal", copies=True))
    assert sorted(each["session"] for each in both["hits"]) == ["branch", "trunk"]


def test_what_stands_before_a_partial_tail_is_found_and_the_tail_is_not(
    snapshot: LibrarySnapshot,
) -> None:
    page = search(snapshot, SearchRequest(query="aftercorruptneedle", session="recall"))
    assert [hit["entry_ref"] for hit in page["hits"]] == ["E00000022"]


def test_tool_input_and_output_carry_their_tool(snapshot: LibrarySnapshot) -> None:
    for query, part in (("codexinputneedle", "input"), ("codexoutputneedle", "output")):
        (hit,) = search(snapshot, SearchRequest(query=query, match="literal"))["hits"]
        assert (hit["kind"], hit["tool_part"], hit["tool_name"]) == ("tool", part, "shell")
        assert hit["session"] == "codex-recall"


def test_the_sub_agent_is_a_session_of_its_own(snapshot: LibrarySnapshot) -> None:
    (hit,) = search(snapshot, SearchRequest(query="subagentneedle", match="literal"))["hits"]
    assert hit["session"] == "recall/a1"
    assert snapshot.capture(hit["session"]).parent == "recall"
    assert Path(snapshot.capture(hit["session"]).source).name == "agent-a1.jsonl"
