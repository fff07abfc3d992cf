"""`sessions`, `overview`, `read`, `stats`, `check`, `formats`, `limits`: shapes and tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessiondex.cli.demo_sessions import CODEX_ID, FORK_ID, MAIN_ID
from sessiondex.indexer.sources import FORMATS
from sessiondex.limits import LIMITS

from .conftest import CommandLine


def test_sessions_come_newest_first_with_all_that_the_catalog_knows(
    demo: CommandLine, demo_home: Path
) -> None:
    reply = demo("sessions", "--json").json
    assert [each["agent"] for each in reply["sessions"]] == [
        "harbor", "yoi", "codex", "claude-code", "claude-code", "claude-code", "chat",
    ]  # fmt: skip
    assert not reply["has_more"]
    assert reply["next_cursor"] is None
    assert reply["refreshed_at"] == "2026-04-04T12:00:00.000Z"
    (codex,) = [each for each in reply["sessions"] if each["session"] == CODEX_ID]
    path = next((demo_home / ".codex").rglob("*.jsonl"))
    assert codex == {
        "session": CODEX_ID, "agent": "codex", "project": "/home/ada/tidewatch", "branch": "main",
        "model": "gpt-5.2-codex", "title": codex["title"], "started": "2026-04-01T08:15:21.000Z",
        "ended": "2026-04-01T08:16:45.000Z", "turns": 1,
        "entries": {"user": 2, "assistant": 2, "system": 0, "tool": 4}, "parent": None,
        "sub_agent": False, "source": str(path), "format": "codex", "generation": 1,
        "resume_command": f"cd /home/ada/tidewatch && codex resume {CODEX_ID}", "run": None,
    }  # fmt: skip
    assert codex["title"].startswith("長崎")


def test_words_and_filters_narrow_the_sessions(demo: CommandLine) -> None:
    def found(*words: str) -> list[str]:
        return [each["session"] for each in demo("sessions", *words, "--jsonl").json_lines]

    assert found("TIDE", "late") == [MAIN_ID]
    assert found("ＴＩＤＥ", "table") == [FORK_ID, MAIN_ID]
    assert found("--agent", "codex") == [CODEX_ID]
    assert found("--branch", "main") == [CODEX_ID]
    assert found("--model", "gpt-5.2-codex") == [CODEX_ID]
    assert len(found("--project", "/home/ada")) == 4
    assert len(found("--project", "tidewatch")) == 4
    assert found("--since", "2026-04-02", "--until", "2026-04-02") == found("--agent", "yoi")
    assert found("nothing like this") == []


def test_pages_of_sessions_visit_each_once(demo: CommandLine) -> None:
    seen: list[str] = []
    cursor = None
    while True:
        more = ("--cursor", cursor) if cursor else ()
        page = demo("sessions", "--limit", "2", *more, "--json").json
        seen += [each["session"] for each in page["sessions"]]
        cursor = page["next_cursor"]
        if not page["has_more"]:
            break
        assert cursor
    whole = demo("sessions", "--all", "--json").json["sessions"]
    assert seen == [each["session"] for each in whole]
    assert len(set(seen)) == 7
    first = demo("sessions", "--limit", "2", "--json").json["next_cursor"]
    assert demo("sessions", "tide", "--cursor", first).code == 2
    assert demo("sessions", "--limit", "0").code == 2
    clamped = demo("sessions", "--limit", "1000", "--json").json
    assert [note["code"] for note in clamped["notes"]] == ["clamped"]


def test_the_names_of_sessions_are_taken_back(demo: CommandLine) -> None:
    for line in demo("sessions").lines:
        name = line.split()[0]
        assert demo("list", name).code == 0, name


def test_a_session_is_named_by_id_beginning_or_path(demo: CommandLine, demo_home: Path) -> None:
    path = next((demo_home / ".codex").rglob("*.jsonl"))
    for name in (CODEX_ID, "019d3", str(path), f"{CODEX_ID}:E4"):
        assert demo("overview", name, "--json").json["session"] == CODEX_ID, name
    several = demo("overview", "01")
    assert several.code == 2
    assert CODEX_ID in several.err
    assert demo("overview", MAIN_ID[:4], "--json").json["session"] == MAIN_ID
    assert demo("overview", "nothing").code == 3


def test_a_file_that_no_library_has_is_read_in_memory(
    command_line: CommandLine, demo_home: Path, tmp_path: Path
) -> None:
    path = next((demo_home / ".codex").rglob("*.jsonl"))
    ended = command_line("search", "満潮", "--session", str(path))
    assert ended.code == 0, ended.err
    assert ended.lines[0].startswith(f"{path}:E4")
    assert "which no library has" in ended.err
    assert command_line("read", f"{path}:E4").code == 0
    assert not (tmp_path / "data").exists()
    assert command_line("read", f"{tmp_path / 'missing.jsonl'}:E4").code == 3
    assert command_line("list", str(demo_home)).code == 2


def test_a_file_with_several_sessions_is_refused_with_their_ids(
    command_line: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "chats.jsonl"
    one = {"messages": [{"role": "user", "content": "hello"}]}
    path.write_text("".join(json.dumps(one) + "\n" for _ in range(2)))
    for is_indexed in (False, True):
        ended = command_line("list", str(path))
        assert ended.code == 2, is_indexed
        assert "2 sessions" in ended.err
        ids = [word.strip(",") for word in ended.err.split() if word.strip(",").endswith("/2")]
        command_line("index", str(path))
        assert command_line("list", ids[0]).code == 0


def test_an_overview_has_anchors_and_what_stands_between_them(demo: CommandLine) -> None:
    reply = demo("overview", MAIN_ID, "--json").json
    for name in (
        "session", "capture", "anchors", "before", "after", "task_context", "has_more",
        "next_cursor",
    ):  # fmt: skip
        assert name in reply
    assert reply["anchors"][0]["label"] == "user message"
    counted = sum(1 + each["intervening_entries"] for each in reply["anchors"])
    assert reply["before"] + counted + reply["after"] == 18
    every = demo("overview", MAIN_ID, "--stride", "1", "--limit", "2", "--all", "--json").json
    assert len(every["anchors"]) == every["total"]
    lines = demo("overview", MAIN_ID, "--stride", "1", "--jsonl").json_lines
    assert lines == every["anchors"]
    printed = demo("overview", MAIN_ID)
    assert "[x] Find the conversion" in printed.out
    assert "2 of 2 anchors" in printed.err
    assert demo("overview", MAIN_ID, "--stride", "0").code == 2


def test_reading_describes_what_was_left_out(demo: CommandLine) -> None:
    reply = demo("read", f"{CODEX_ID}:E4", "--json").json
    assert {
        "session", "capture", "entries", "truncated", "omitted_entries", "next_ref", "notes",
    } <= set(reply)  # fmt: skip
    (entry,) = reply["entries"]
    assert entry["text"].startswith("長崎")
    assert {
        "entry_ref", "entry_range", "kind", "tool_part", "tool_name", "total_bytes",
        "returned_bytes", "next_byte",
    } <= set(entry)  # fmt: skip
    ranged = demo("read", "019d3", "E4", "--through", "E14", "--max-items", "2")
    assert "left out, the next is 019d3:E8; --all shows all" in ranged.err
    cut = demo("read", "019d3", "E4", "--max-bytes", "650")
    assert "--from-byte" in cut.err
    whole = demo("read", "019d3", "E4", "--through", "E14", "--all", "--json").json
    assert [each["entry_ref"] for each in whole["entries"]] == [
        "E00000004", "E00000007", "E00000008", "E00000010", "E00000011", "E00000012", "E00000014",
    ]  # fmt: skip
    no_tools = demo("read", "019d3", "E4", "--through", "E14", "--no-tools", "--jsonl").json_lines
    assert {each["kind"] for each in no_tools} == {"user", "assistant"}
    compact = demo("read", "019d3:E7", "--mode", "compact")
    assert "arguments left out" in compact.out


def test_refs_that_cannot_be_read_are_told_apart(demo: CommandLine) -> None:
    def kind(*words: str) -> tuple[int, str]:
        ended = demo("read", *words, "--json")
        return ended.code, ended.json["error"]["kind"]

    assert kind("019d3:E0") == (3, "hidden_entry")
    assert kind("019d3:E999") == (3, "past_end")
    assert kind("019d3:E4.7") == (3, "not_found")
    assert kind("nothing:E4") == (3, "not_found")
    assert kind("019d3:e4") == (2, "invalid_argument")
    assert kind("019d3", "-4") == (2, "invalid_argument")
    assert kind("019d3") == (2, "usage")
    assert kind("019d3:E4", "5f0c:E2") == (2, "usage")
    assert kind("019d3:E4", "E7", "--through", "E8") == (2, "usage")


def test_a_token_of_another_session_is_refused(demo: CommandLine) -> None:
    token = demo("read", "019d3:E4", "--json").json["capture"]
    assert demo("read", "019d3:E4", "--capture", token).code == 0
    assert demo("read", f"{MAIN_ID}:E0", "--capture", token).code == 2


def test_stats_have_coverage_entries_and_sizes(demo: CommandLine) -> None:
    stats = demo("stats", "--json").json
    assert set(stats) == {"coverage", "entries", "sizes", "refreshed_at"}
    assert stats["coverage"]["sessions"] == 7
    sessions = demo("sessions", "--all", "--jsonl").json_lines
    for kind in ("user", "assistant", "system", "tool"):
        assert stats["entries"][kind] == sum(each["entries"][kind] for each in sessions)
    assert stats["refreshed_at"] == "2026-04-04T12:00:00.000Z"
    assert "coverage\tsessions\t7" in demo("stats").out


def test_a_sound_library_is_said_to_be_sound(demo: CommandLine) -> None:
    ended = demo("check", "--sources")
    assert (ended.code, ended.out.partition(":")[0]) == (0, "sound")
    reply = demo("check", "--json").json
    assert reply["sound"]
    assert reply["problems"] == []


def test_damage_is_named_and_repaired(
    command_line: CommandLine, demo_home: Path, tmp_path: Path
) -> None:
    library = tmp_path / "library"
    words = ("--library", str(library))
    command_line("index", "--home", str(demo_home), *words)
    catalog = next(library.glob("catalog-*.sqlite3"))
    catalog.write_bytes(b"no database" + catalog.read_bytes()[11:])
    ended = command_line("check", *words)
    assert ended.code == 5
    assert "damaged: " in ended.out
    assert "--repair" in ended.err
    assert command_line("check", "--repair", *words).code == 0
    assert command_line("check", *words).code == 0
    assert len(command_line("sessions", "--json", *words).json["sessions"]) == 4


def test_formats_and_limits_are_listed_whole(command_line: CommandLine) -> None:
    formats = command_line("formats", "--json").json["formats"]
    assert [each["name"] for each in formats] == [each.name for each in FORMATS]
    assert len(command_line("formats").lines) == len(FORMATS)
    limits = command_line("limits", "--json").json["limits"]
    assert limits == [limit._asdict() for limit in LIMITS]
    assert len(command_line("limits").lines) == len(LIMITS)


@pytest.mark.parametrize(
    "words",
    [("sessions",), ("stats",), ("formats",), ("limits",), ("config", "show"),
     ("search", "offset"), ("list", "019d3"), ("overview", "019d3"), ("read", "019d3:E4")],
)  # fmt: skip
def test_a_terminal_gets_tables_and_colours(demo: CommandLine, words: tuple[str, ...]) -> None:
    ended = demo(*words, is_terminal=True)
    assert ended.code == 0, ended.err
    assert "\x1b[" in ended.out
    plain = demo(*words, "--color", "never", is_terminal=True)
    assert "\x1b" not in plain.out
    assert "\x1b" not in demo(*words).out


def test_the_facts_of_sessions_are_masked_wherever_they_are_shown(
    command_line: CommandLine, tmp_path: Path
) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    record = {
        "type": "assistant", "uuid": "u", "cwd": f"/home/{secret}", "gitBranch": f"fix-{secret}",
        "message": {"role": "assistant", "model": f"m-{secret}", "content": "done"},
    }  # fmt: skip
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    library = ("--library", str(tmp_path / "library"))
    assert command_line("index", str(path), *library).code == 0
    for words in (
        ("sessions",), ("sessions", "--json"), ("sessions", "--all", "--jsonl"), ("export",),
        ("export", "--format", "markdown"), ("overview", "one"), ("list", "one", "--json"),
    ):  # fmt: skip
        ended = command_line(*words, *library)
        assert (ended.code, ended.out.count(secret)) == (0, 0), words
    shown = command_line("sessions", "--json", "--reveal", *library, is_terminal=True).json
    assert shown["sessions"][0]["project"] == f"/home/{secret}"
    filtered = command_line("sessions", "--project", f"/home/{secret}", "--json", *library).json
    assert filtered["returned"] == 1


def test_the_fields_of_a_run_are_masked_at_any_depth(
    command_line: CommandLine, tmp_path: Path
) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    trial = tmp_path / "job" / "trial"
    trial.mkdir(parents=True)
    steps = [{"step_id": 1, "source": "user", "message": "solve it"}]
    trajectory = {
        "schema_version": "ATIF-v1.2", "session_id": "s", "agent": {"name": "a", "version": "1"},
        "steps": steps,
    }  # fmt: skip
    (trial / "trajectory.json").write_text(json.dumps(trajectory))
    result = {
        "task_name": "t", "trial_name": "x",
        "exception_info": {"exception_type": "E", "exception_message": f"key {secret} failed"},
        "verifier_result": {"rewards": {"reward": 1, "why": [{"said": f"found {secret}"}]}},
    }  # fmt: skip
    (trial / "result.json").write_text(json.dumps(result))
    library = ("--library", str(tmp_path / "library"))
    assert command_line("index", str(tmp_path / "job"), *library).code == 0
    ended = command_line("sessions", "--json", *library)
    assert secret not in ended.out
    run = ended.json["sessions"][0]["run"]
    assert run["error"] == "E: key [REDACTED:github_token] failed"
    assert run["scores"] == {"reward": 1, "why": [{"said": "found [REDACTED:github_token]"}]}
