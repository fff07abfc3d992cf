"""`extract`, `extract status` and `staging export`, against a provider on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sessiondex.cli.demo_sessions import write_demo_sessions
from sessiondex.errors import Damaged, Failed
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.local import LocalExtractor
from sessiondex.features.extract.policy import REASONS, ExtractPolicy, sentence_of
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.staging.record import parse_record
from sessiondex.features.state import State
from sessiondex.indexer.library import Library
from tests.cli.conftest import NOW, CommandLine
from tests.features.loop.wire_server import (
    LOOPBACK_ENVIRONMENT,
    WIRES,
    Answer,
    Call,
    Fault,
    Wire,
    WireServer,
)

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"
STAGE = Call(
    "StageMemoryCandidate",
    {
        "kind": "lesson", "claim": "The feed repeats tides.", "why_useful": "Look for duplicates.",
        "entry_refs": ["E4"],
    },
)  # fmt: skip
FINISH = Call("FinishMemoryExtraction", {"staged_count": 1})
NOTHING = Call(
    "FinishMemoryExtraction", {"staged_count": 0, "no_candidates_reason": "only work was done"}
)
STAGED = (Answer(calls=[Call("ReadEntry", {"entry_ref": "E4"})]), Answer(calls=[STAGE, FINISH]))

Serve = Callable[[Sequence[Answer | Fault]], WireServer]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a provider and names it in the environment, as a user would."""
    servers: list[WireServer] = []

    def start(said: Sequence[Answer | Fault]) -> WireServer:
        server = WireServer(said)
        servers.append(server)
        monkeypatch.setenv("SESSIONDEX_WORKER_MODEL", "openai-chat:tester")
        monkeypatch.setenv("SESSIONDEX_BASE_URL", server.base_url("openai-chat"))
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def settled(
    command_line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """Command lines against demo sessions that were written long ago."""
    home = tmp_path / "settled"
    write_demo_sessions(home)
    for path in home.rglob("*"):
        os.utime(path, (NOW.timestamp() - 3600,) * 2)
    monkeypatch.setenv("SESSIONDEX_LIBRARY", str(tmp_path / "library"))
    assert command_line("index", str(home)).code == 0
    return command_line


def test_a_session_is_extracted_from_and_its_report_printed(
    own: CommandLine, serve: Serve, tmp_path: Path
) -> None:
    server = serve(STAGED)
    ended = own("extract", CODEX)
    assert ended.code == 0, ended.err
    assert ended.lines[0] == "staged"
    (record,) = StagingFolder(tmp_path / "library" / "staging").waiting().records
    assert record.id in ended.lines and record.claim == "The feed repeats tides."
    assert "openai-chat:tester" in ended.out and len(server.received) == 2


def test_the_report_as_json_has_outcome_reason_ids_and_report(
    own: CommandLine, serve: Serve
) -> None:
    serve(STAGED)
    ended = own("extract", "run", CODEX, "--json")
    assert ended.code == 0
    value = ended.json
    assert (value["outcome"], value["reason"], len(value["staged"])) == ("staged", "", 1)
    report = value["report"]
    assert report["session"] == CODEX and report["model"] == "openai-chat:tester"
    assert report["pointer_moved"] and report["unseen_refs"] == []
    assert 0 < report["user_share"] <= 1
    assert not ended.err


def test_no_candidates_is_a_normal_end(own: CommandLine, serve: Serve) -> None:
    serve([Answer(calls=[NOTHING])])
    ended = own("extract", CODEX)
    assert ended.code == 0 and ended.lines[:2] == ["no_candidates", "only work was done"]


def test_an_incomplete_run_exits_with_4_and_the_next_goes_on(
    own: CommandLine, serve: Serve
) -> None:
    serve([Answer(calls=[STAGE]), *[Answer("hm")] * 3])
    ended = own("extract", CODEX)
    assert (ended.code, ended.lines[0]) == (4, "incomplete(protocol)")
    serve([Answer(calls=[STAGE, FINISH])])
    value = own("extract", CODEX, "--json").json
    assert value["outcome"] == "staged" and len(value["staged"]) == 1
    assert value["report"]["is_adopted"]
    assert len(own("staging", "list", "--json").json["records"]) == 1


def test_a_session_without_growth_is_refused_and_a_range_is_taken(
    own: CommandLine, serve: Serve
) -> None:
    serve([Answer(calls=[NOTHING])])
    assert own("extract", CODEX).code == 0
    ended = own("extract", CODEX)
    assert ended.code == 2 and "nothing was added" in ended.err
    server = serve([Answer(calls=[NOTHING])])
    value = own("extract", CODEX, "--from", "E3", "--through", "E5", "--json").json
    assert value["report"]["range"] == [3, 5] and not value["report"]["pointer_moved"]
    assert "E00000003 to E00000005" in server.received[0].messages[0].text


def test_a_dry_run_asks_no_model_and_writes_nothing(own: CommandLine, tmp_path: Path) -> None:
    before = sorted(path.name for path in (tmp_path / "library").iterdir())
    ended = own("extract", CODEX, "--dry-run")
    assert ended.code == 0 and "no model was asked" in ended.err
    assert ended.lines[0].startswith("The session to extract from")
    value = own("extract", CODEX, "--dry-run", "--json").json
    assert len(value["tools"]) == 5 and value["first_message_bytes"] <= 24 * 1024
    assert sorted(path.name for path in (tmp_path / "library").iterdir()) == before


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["extract", "run"], 2, "one of SESSION and --due"),
        (["extract", CODEX, "--due"], 2, "exclude each other"),
        (["extract", CODEX, "--threshold", "5"], 2, "go with --due"),
        (["extract", "--due", "--from", "E1"], 2, "go with SESSION"),
        (["extract", "--due", "--limit", "0"], 2, "limit is 0"),
        (["extract", "--due", "--threshold", "-1"], 2, "negative"),
        (["extract", CODEX], 2, "no model was named"),
        (["extract", CODEX, "--model", "nonsense"], 2, "unknown model"),
        (["extract", CODEX, "--model", "openai-chat:x", "--base-url", "ftp://x"], 2, "base URL"),
        (["extract", "no-such-session", "--model", "openai-chat:x"], 3, "no session"),
        (["extract", CODEX, "--from", "e1", "--model", "openai-chat:x"], 2, "E"),
        (["extract", CODEX, "--from", "E999", "--model", "openai-chat:x"], 2, "no range"),
        (["extract", "status", "no-such-session"], 3, "no session"),
    ],
)
def test_bad_input_is_named(
    own: CommandLine, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    ended = own(*words)
    assert ended.code == code and said in ended.err
    assert "Traceback" not in ended.err


def test_without_a_library_nothing_is_made(command_line: CommandLine, tmp_path: Path) -> None:
    ended = command_line("extract", CODEX, "--model", "openai-chat:x", "--base-url", "http://x")
    assert ended.code == 3 and not (tmp_path / "data" / "sessiondex").exists()


def test_what_is_due_is_extracted_once(settled: CommandLine, serve: Serve) -> None:
    count = len(settled("sessions", "--all", "--json").json["sessions"])
    serve([Answer(calls=[NOTHING])] * count)
    ended = settled("extract", "--due", "--threshold", "1", "--json")
    value = ended.json
    assert ended.code == 0 and value["runs"]
    assert all(run["outcome"] == "no_candidates" for run in value["runs"])
    assert len(value["runs"]) + sum(value["skipped"].values()) == count
    again = settled("extract", "--due", "--threshold", "1", "--json").json
    assert again["runs"] == [] and again["skipped"]["no_growth"] == len(value["runs"])


def test_due_with_a_limit_and_dry_counts_what_it_leaves(settled: CommandLine) -> None:
    value = settled(
        "extract", "--due", "--threshold", "1", "--limit", "1", "--dry-run", "--json"
    ).json
    assert len(value["runs"]) == 1 and value["skipped"]["limit"] >= 1
    statuses = settled("extract", "status", "--all", "--json").json["sessions"]
    assert not any(each["recorded_decision"] for each in statuses)


def test_a_threshold_that_nothing_reaches_skips_with_the_reason(
    own: CommandLine, serve: Serve
) -> None:
    serve([])
    ended = own("extract", "--due", "--json")
    assert ended.code == 0 and set(ended.json["skipped"]) <= set(REASONS)
    assert ended.json["skipped"]["below_threshold"] > 0
    status = own("extract", "status", "--all", "--json").json["sessions"]
    assert {each["recorded_decision"]["reason"] for each in status} == set(ended.json["skipped"])


def test_due_exits_with_the_worst_of_its_runs(settled: CommandLine, serve: Serve) -> None:
    serve([Answer(calls=[NOTHING]), *[Fault.rejected()] * 20])
    ended = settled("extract", "--due", "--threshold", "1", "--json")
    assert ended.code == 4
    assert [run["outcome"] for run in ended.json["runs"]][:2] == ["no_candidates", "incomplete"]


def test_status_says_how_far_how_it_ended_and_why_nothing_runs(
    own: CommandLine, serve: Serve
) -> None:
    serve([Answer(calls=[NOTHING])])
    own("extract", CODEX)
    (status,) = own("extract", "status", CODEX, "--json").json["sessions"]
    assert status["extracted_records"] == status["records"] > 0
    assert status["last_run"]["outcome"] == "no_candidates" and status["running"] is None
    assert status["decision"]["reason"] == "no_growth"
    table = own("extract", "status", CODEX).out
    assert "no_candidates" in table and sentence_of("no_growth") in table


def test_status_shows_every_session_page_by_page(own: CommandLine) -> None:
    count = len(own("sessions", "--all", "--json").json["sessions"])
    whole = own("extract", "status", "--all", "--json").json
    assert len(whole["sessions"]) == count and not whole["has_more"]
    part = own("extract", "status", "--limit", "2", "--json").json
    assert part == {"sessions": whole["sessions"][:2], "has_more": True}
    assert "more sessions follow" in own("extract", "status", "--limit", "2").err


def test_a_forgotten_session_stays_in_the_status(own: CommandLine, serve: Serve) -> None:
    serve([Answer(calls=[NOTHING])])
    own("extract", CODEX)
    assert own("forget", CODEX).code == 0
    (status,) = own("extract", "status", CODEX, "--json").json["sessions"]
    assert status["records"] is None and status["last_run"]["outcome"] == "no_candidates"
    assert "not in the library" in own("extract", "status", "--all").out


def test_the_state_and_the_audit_hold_no_text_of_session_or_model(
    own: CommandLine, serve: Serve, tmp_path: Path
) -> None:
    serve([Answer("the words zanzibar", calls=[STAGE, FINISH])])
    own("extract", CODEX)
    written = b"".join(path.read_bytes() for path in (tmp_path / "library").glob("state.sqlite3*"))
    assert CODEX.encode() in written
    for text in (b"zanzibar", b"repeats tides", b"tide"):
        assert text not in written


def test_export_writes_whole_records_one_a_line(
    own: CommandLine, serve: Serve, tmp_path: Path
) -> None:
    serve(STAGED)
    run_id = own("extract", CODEX, "--json").json["report"]["run_id"]
    lines = own("staging", "export").lines
    record = parse_record(lines[0].encode())
    assert len(lines) == 1 and record.extract_run_id == run_id
    assert own("staging", "export", "--run", run_id).lines == lines
    assert own("staging", "export", "--run", "other").lines == []
    assert own("staging", "export", "--closed").lines == []
    target = tmp_path / "records.jsonl"
    ended = own("staging", "export", "--output", str(target), "--json")
    assert ended.json == {"records": 1, "file": str(target)}
    assert target.read_text().splitlines() == lines
    own("staging", "close", record.id, "applied", "--reason", "kept")
    assert own("staging", "export").lines == []
    closed = json.loads(own("staging", "export", "--closed").lines[0])
    assert closed["extensions"]["resolution"]["outcome"] == "applied"


def test_export_says_what_it_could_not_read(own: CommandLine, serve: Serve, tmp_path: Path) -> None:
    serve(STAGED)
    own("extract", CODEX)
    (tmp_path / "library" / "staging" / "old.json").write_text("{}")
    ended = own("staging", "export")
    assert ended.code == 4 and len(ended.lines) == 1 and "old.json" in ended.err


def test_a_budget_above_its_maximum_is_clamped_and_said(own: CommandLine, serve: Serve) -> None:
    serve([Answer(calls=[NOTHING])])
    ended = own("extract", f"{CODEX}:E4", "--max-turns", "100000")
    assert ended.code == 0 and "turns 100000 is above the maximum of 200" in ended.err
    refused = own("extract", CODEX, "--max-turns", "0")
    assert refused.code == 2 and "--max-turns is 0" in refused.err
    serve([Answer(calls=[NOTHING])])
    words = ("--from", "E1", "--max-turns", "100000", "--json")
    assert own("extract", CODEX, *words).json["notes"][0]["code"] == "clamped"


def test_words_of_a_model_do_not_end_what_is_due(settled: CommandLine, serve: Serve) -> None:
    said = {"staged_count": 0, "no_candidates_reason": "cancelled"}
    serve([Answer(calls=[Call("FinishMemoryExtraction", said)])] * 20)
    value = settled("extract", "--due", "--threshold", "1", "--json").json
    assert len(value["runs"]) > 2


def test_a_session_that_cannot_be_read_hinders_no_other(
    settled: CommandLine, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve([Answer(calls=[NOTHING])] * 20)
    whole = LocalExtractor.capture

    def capture(self: LocalExtractor, session: str) -> Any:
        if session == CODEX:
            raise Damaged("batch 3 differs from its checksum", hint="run check")
        return whole(self, session)

    monkeypatch.setattr(LocalExtractor, "capture", capture)
    ended = settled("extract", "--due", "--threshold", "1", "--json")
    assert ended.code == 1 and len(ended.json["runs"]) > 2
    (error,) = ended.json["errors"]
    assert (error["session"], error["error"]["kind"]) == (CODEX, "damaged")


def test_a_state_that_fails_in_between_loses_no_report(
    settled: CommandLine, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve([Answer(calls=[NOTHING])] * 20)
    decided: list[str] = []
    whole = ExtractPolicy.decide

    def decide(self: ExtractPolicy, capture: Any, *rest: Any, **more: Any) -> Any:
        decided.append(capture.session)
        if len(decided) == 3:
            raise Failed("the state cannot be used: database is locked", hint="try again")
        return whole(self, capture, *rest, **more)

    monkeypatch.setattr(ExtractPolicy, "decide", decide)
    ended = settled("extract", "--due", "--threshold", "1", "--json")
    assert ended.code == 1 and len(ended.json["runs"]) == 2
    assert ended.json["errors"][0]["error"]["kind"] == "failed"


def test_a_key_that_is_refused_is_not_tried_on_every_session(
    settled: CommandLine, serve: Serve
) -> None:
    server = serve([Fault.unauthorized()] * 20)
    ended = settled("extract", "--due", "--threshold", "1", "--json")
    assert ended.code == 4 and len(ended.json["runs"]) == 1 == len(server.received)


def test_status_names_the_run_that_works(own: CommandLine, tmp_path: Path) -> None:
    with State.beside(tmp_path / "library") as state:
        library = Library.open(tmp_path / "library")
        capture = library.snapshot().capture(CODEX, live=False)
        ExtractLedger(state).begin(
            capture, first=0, last=3, run_id="run-7", holder="elsewhere:1",
            now=int(NOW.timestamp() * 1000), lease_ms=60_000,
        )  # fmt: skip
        library.close()
    value = own("extract", "status", CODEX, "--json").json["sessions"][0]
    assert value["running"]["run_id"] == "run-7" and value["decision"]["reason"] == "leased"
    assert "run run-7 of elsewhere:1 works on it" in own("extract", "status", CODEX).out
    busy = own("extract", CODEX, "--model", "openai-chat:x", "--base-url", "http://127.0.0.1:9")
    assert busy.code == 1 and "elsewhere:1" in busy.err


def test_a_dry_run_refuses_to_refresh(own: CommandLine) -> None:
    assert own("extract", CODEX, "--dry-run", "--fresh").code == 2


def test_a_range_that_ends_before_the_pointer_is_refused_with_what_to_do(
    own: CommandLine, serve: Serve
) -> None:
    serve([Answer(calls=[NOTHING])])
    own("extract", CODEX)
    ended = own("extract", CODEX, "--through", "E0")
    assert ended.code == 2 and "name the first entry" in ended.err


def _unignored() -> None:
    """What a suite in the background ignores, its children would too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_with_its_report_and_a_true_state(
    own: CommandLine, serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    server = serve([Answer(calls=[STAGE]), Fault.hang(threading.Event())])
    process = subprocess.Popen(
        [sys.executable, "-m", "sessiondex", "extract", CODEX, "--json"],
        env={**os.environ, **LOOPBACK_ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=_unignored,
        text=True,
    )  # fmt: skip
    with process:
        try:
            server.wait_for(2)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 4 and err == ""
    value = json.loads(out)
    assert (value["outcome"], value["reason"]) == ("incomplete", "cancelled")
    assert len(value["staged"]) == 1 and not value["report"]["pointer_moved"]
    (status,) = own("extract", "status", CODEX, "--json").json["sessions"]
    assert status["last_run"]["reason"] == "cancelled" and status["running"] is None
    assert status["extracted_records"] == 0


@pytest.mark.parametrize("wire", WIRES)
def test_every_wire_is_reached_by_its_name(own: CommandLine, wire: Wire) -> None:
    with WireServer([Answer(calls=[NOTHING])]) as server:
        words = ("--model", f"{wire}:tester", "--base-url", server.base_url(wire))
        assert own("extract", CODEX, *words).code == 0
        assert server.received[0].wire == wire


def test_credentials_in_what_a_model_says_are_masked(own: CommandLine, serve: Serve) -> None:
    key = "sk-ant-api03-" + "Qx7" * 31 + "AA"
    said = {"staged_count": 0, "no_candidates_reason": f"only the key {key} was said"}
    serve([Answer(calls=[Call("FinishMemoryExtraction", said)])])
    ended = own("extract", CODEX, "--model", f"openai-chat:{key}", "--json")
    assert ended.code == 0 and key not in ended.out and "[REDACTED:" in ended.json["reason"]
    assert "[REDACTED:" in ended.json["report"]["model"]
