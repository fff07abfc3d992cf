"""`resolve`, `open`, `resume`, `evidence`, `verify`: back to the source, and citations."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from sessiondex.cli.demo_sessions import CODEX_ID, FORK_ID, MAIN_ID, SUB_AGENT_ID
from sessiondex.cli.sources import editor_command

from .conftest import CommandLine


@pytest.fixture
def own(command_line: CommandLine, tmp_path: Path) -> CommandLine:
    """A library of the demo sessions in this test's own home, where they may be changed."""
    from sessiondex.cli.demo_sessions import write_demo_sessions

    write_demo_sessions(tmp_path / "home")
    assert command_line("index").code == 0
    return command_line


def test_resolve_prints_file_line_and_bytes_that_hold_the_record(demo: CommandLine) -> None:
    (line,) = demo("resolve", "019d3:E4").lines
    name, place, word, span = line.split()
    assert (name, word) == ("019d3:E4", "bytes")
    path, _, number = place.rpartition(":")
    first, last = map(int, span.split("-"))
    data = Path(path).read_bytes()
    record = json.loads(data[first:last])
    assert "長崎" in json.dumps(record, ensure_ascii=False)
    assert data.splitlines()[int(number) - 1] == data[first:last].rstrip(b"\n")
    reply = demo("resolve", "019d3", "E4", "--through", "E8", "--json").json
    assert [each["entry_ref"] for each in reply["entries"]] == [
        "E00000004", "E00000007", "E00000008",
    ]  # fmt: skip
    anchor = reply["entries"][0]["source"]
    assert {
        "file", "record", "block", "byte_offset", "byte_length", "pointer", "encoding",
    } <= set(anchor)  # fmt: skip
    assert (anchor["byte_offset"], anchor["byte_offset"] + anchor["byte_length"]) == (first, last)


def test_a_document_is_resolved_to_its_pointer(demo: CommandLine) -> None:
    session = demo("sessions", "--agent", "harbor", "--jsonl").json_lines[0]["session"]
    (line,) = demo("resolve", f"{session}:E2.2").lines
    assert "/steps/2" in line
    assert "bytes" not in line


def test_evidence_verifies_and_is_found_changed_or_missing(
    demo: CommandLine, tmp_path: Path
) -> None:
    found = demo("evidence", "019d3:E4", "--quote", "NGS-04")
    assert found.code == 0
    assert "NGS-04" in found.json["excerpt"]
    assert {
        "session", "capture", "entry_ref", "entry_range", "kind", "tool_part", "tool_name",
        "label", "summary", "excerpt", "excerpt_range", "sha256", "text_version", "source",
    } <= set(found.json)  # fmt: skip
    good = tmp_path / "good.jsonl"
    good.write_text(found.out + demo("evidence", MAIN_ID, "E0").out)
    ended = demo("verify", str(good), "--json")
    assert (ended.code, ended.json["status"], ended.json["source"]) == (0, "ok", "present")
    assert [each["status"] for each in ended.json["results"]] == ["ok", "ok"]

    changed = tmp_path / "changed.jsonl"
    changed.write_text(json.dumps(found.json | {"sha256": "0" * 64}) + "\n")
    assert demo("verify", str(changed)).code == 5
    missing = tmp_path / "missing.jsonl"
    missing.write_text(found.out + json.dumps(found.json | {"entry_ref": "E00000900"}) + "\n")
    ended = demo("verify", str(missing))
    assert ended.code == 3
    assert [line.split()[0] for line in ended.lines] == ["ok", "missing"]
    assert demo("verify", str(tmp_path / "none")).code == 3
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    assert demo("verify", str(bad)).code == 2
    assert demo("evidence", "019d3:E4", "--quote", "not there at all").code == 2


def test_what_was_cited_before_it_was_indexed_verifies_and_no_open_line_is_cited(
    own: CommandLine, tmp_path: Path
) -> None:
    path = Path(own("open", f"{MAIN_ID}:E0").out.rpartition(":")[0])
    record = {"type": "user", "uuid": "later", "message": {"role": "user", "content": "go on"}}
    line = json.dumps(record)
    last = len(path.read_text().splitlines())
    with path.open("a") as file:
        file.write(line)
    assert "provisional" in own("list", MAIN_ID, "--from", f"E{last}").out
    refused = own("evidence", f"{MAIN_ID}:E{last}", "--json")
    assert (refused.code, refused.json["error"]["kind"]) == (3, "past_end")
    with path.open("a") as file:
        file.write("\n")
    cited = tmp_path / "cited.jsonl"
    cited.write_text(own("evidence", f"{MAIN_ID}:E{last}").out)
    expected = {"session": MAIN_ID, "entry_ref": f"E{last:08d}", "status": "ok"}
    assert own("verify", str(cited), "--jsonl").json_lines == [expected | {"source": "present"}]
    path.write_text(line.replace("go on", "rewritten") + "\n")
    earlier = own("verify", str(cited), "--json")
    assert (earlier.code, earlier.json["status"]) == (3, "missing")  # it was never stored
    assert own("index").code == 0


def test_a_moved_source_is_found_by_what_it_holds(own: CommandLine, tmp_path: Path) -> None:
    evidence = tmp_path / "evidence.jsonl"
    evidence.write_text(own("evidence", "019d3:E4").out)
    path = next((tmp_path / "home/.codex").rglob("*.jsonl"))
    moved = path.rename(path.with_name("rollout-moved.jsonl"))
    assert own("verify", str(evidence), "--json").json["source"] == "present"
    moved.unlink()
    ended = own("verify", str(evidence), "--json")
    assert (ended.code, ended.json["status"], ended.json["source"]) == (0, "ok", "gone")


def test_open_prints_the_place_where_there_is_no_editor_or_no_terminal(
    own: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = next((tmp_path / "home/.codex").rglob("*.jsonl"))
    assert own("open", "019d3:E4").lines == [f"{path}:5"]
    assert own("open", "019d3:E4", is_terminal=True).lines == [f"{path}:5"]
    script = tmp_path / "vim"
    script.write_text(f'#!{sys.executable}\nimport sys\nopen({str(tmp_path / "seen")!r}, "w")'
                      '.write("|".join(sys.argv[1:]))\nsys.exit(7)\n')  # fmt: skip
    script.chmod(0o700)
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("VISUAL", shlex.quote(str(script)) + " -R")
    assert own("open", "019d3", "E4", is_terminal=True).code == 7
    assert (tmp_path / "seen").read_text() == f"-R|+5|{path}"
    path.unlink()
    ended = own("open", "019d3:E4")
    assert ended.code == 3
    assert "sessiondex read 019d:E4" in ended.err


def test_editors_are_given_the_line_as_they_are_used_to() -> None:
    path = Path("/a b/c.jsonl")
    assert editor_command(["nvim"], path, 3) == ["nvim", "+3", "/a b/c.jsonl"]
    assert editor_command(["/usr/bin/code", "-w"], path, 3) == [
        "/usr/bin/code", "-w", "-g", "/a b/c.jsonl:3",
    ]  # fmt: skip
    assert editor_command(["hx"], path, 3) == ["hx", "/a b/c.jsonl:3"]
    assert editor_command(["unknown"], path, 3) == ["unknown", "/a b/c.jsonl"]
    assert editor_command(["vim"], path, 0) == ["vim", "/a b/c.jsonl"]


def test_resume_prints_the_agents_command_with_its_folder(
    own: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = own("resume", CODEX_ID)
    assert gone.code == 1
    assert "/home/ada/tidewatch" in gone.err
    for path in (tmp_path / "home").rglob("*.jsonl"):
        folder = tmp_path / "tide watch"
        path.write_text(path.read_text().replace("/home/ada/tidewatch", str(folder)))
    folder.mkdir()
    own("index")
    quoted = shlex.quote(str(folder))
    assert own("resume", MAIN_ID[:6]).lines == [f"cd {quoted} && claude --resume {MAIN_ID}"]
    reply = own("resume", CODEX_ID, "--json").json
    assert reply["command"] == ["codex", "resume", CODEX_ID]
    assert reply["folder"] == str(folder)
    assert reply["resume_command"] == f"cd {quoted} && codex resume {CODEX_ID}"

    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    (line,) = own("resume", FORK_ID).lines
    assert f"env CLAUDE_CONFIG_DIR={tmp_path / 'home/.claude'} claude --resume {FORK_ID}" in line


def test_resume_runs_the_command_in_its_folder(
    own: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    for path in (tmp_path / "home").rglob("*.jsonl"):
        path.write_text(path.read_text().replace("/home/ada/tidewatch", str(folder)))
    own("index")
    program = tmp_path / "bin/codex"
    program.parent.mkdir()
    program.write_text(f'#!{sys.executable}\nimport os, sys\nopen("seen", "w")'
                       '.write("|".join(sys.argv[1:]))\nsys.exit(4)\n')  # fmt: skip
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.chdir(tmp_path)
    assert own("resume", CODEX_ID, "--exec").code == 4
    assert (folder / "seen").read_text() == f"resume|{CODEX_ID}"
    missing = own("resume", MAIN_ID, "--exec")
    assert missing.code == 1
    assert "claude cannot be run" in missing.err


def test_resume_says_why_it_is_impossible(own: CommandLine, tmp_path: Path) -> None:
    sub_agent = own("resume", f"{MAIN_ID}/{SUB_AGENT_ID}")
    assert sub_agent.code == 1
    assert f"sessiondex resume {MAIN_ID}" in sub_agent.err
    own("index", str(tmp_path / "home"))
    harbor = own("sessions", "--agent", "harbor", "--jsonl").json_lines[0]
    assert harbor["resume_command"] is None
    assert "cannot be resumed" in own("resume", harbor["session"]).err
    next((tmp_path / "home/.codex").rglob("*.jsonl")).unlink()
    assert "is gone" in own("resume", CODEX_ID).err
