"""The demo sessions: every format reads them whole, and they tell what the demo shows."""

from __future__ import annotations

from pathlib import Path

from sessiondex.cli.demo_sessions import write_demo_sessions
from sessiondex.indexer.sources import recognise
from sessiondex.indexer.sources.base import SourceFile
from sessiondex.model import Record, SessionHeader


def read_sessions(folder: Path) -> list[tuple[SessionHeader, list[Record]]]:
    sessions: list[tuple[SessionHeader, list[Record]]] = []
    for path in write_demo_sessions(folder):
        source = SourceFile(path)
        found = recognise(source)
        assert found.format is not None, (path.name, found.reason)
        for stub in found.format.stubs(source):
            parser = found.format.parser(source, stub)
            records = list(parser.records())
            sessions.append((parser.header, records))
    return sessions


def texts(records: list[Record]) -> list[str]:
    return [item.text for record in records for item in record.items if item.text]


def test_demo_sessions_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    first = write_demo_sessions(tmp_path / "one")
    second = write_demo_sessions(tmp_path / "two")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_every_format_of_the_demo_is_recognised(tmp_path: Path) -> None:
    agents = [header.agent for header, _ in read_sessions(tmp_path)]
    assert agents == ["claude-code"] * 3 + ["codex", "yoi", "harbor", "chat"]


def test_no_demo_record_is_corrupt_or_provisional(tmp_path: Path) -> None:
    for _, records in read_sessions(tmp_path):
        assert records
        assert not any(record.corrupt or record.provisional for record in records)


def test_every_demo_session_has_a_question_a_tool_call_and_an_answer(tmp_path: Path) -> None:
    for number, (_, records) in enumerate(read_sessions(tmp_path)):
        kinds = {item.kind for record in records for item in record.items}
        assert {"user", "assistant", "tool_call", "tool_result"} <= kinds, number


def test_every_demo_tool_result_answers_a_call(tmp_path: Path) -> None:
    for _, records in read_sessions(tmp_path):
        items = [item for record in records for item in record.items]
        calls = [item.call_id for item in items if item.kind == "tool_call"]
        results = [item.call_id for item in items if item.kind == "tool_result"]
        assert calls == results


def test_the_demo_fork_replays_the_first_turn_under_the_same_uuids(tmp_path: Path) -> None:
    (_, main), _, (_, fork), *_ = read_sessions(tmp_path)
    main_ids = [record.record_id for record in main]
    fork_ids = [record.record_id for record in fork]
    shared = len(set(main_ids) & set(fork_ids) - {""})
    assert 0 < shared < len(fork_ids)
    assert main_ids[:shared] == fork_ids[:shared]


def test_the_demo_sub_agent_belongs_to_the_main_session(tmp_path: Path) -> None:
    (main, _), (agent, records), *_ = read_sessions(tmp_path)
    assert agent.parent == main.session_id
    assert agent.sub_agent
    assert any("utc_offset_minutes" in text for text in texts(records))


def test_prompts_and_thinking_of_the_demo_are_not_shown(tmp_path: Path) -> None:
    shown = "\n".join(text for _, records in read_sessions(tmp_path) for text in texts(records))
    assert "never an entry" not in shown
    assert "I suspect one offset" not in shown
    assert "満潮" in shown
