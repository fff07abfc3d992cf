"""Real session files, through the whole engine: counts, growth, evidence. Skipped without them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sessiondex import (
    Library,
    RefreshOptions,
    SessionCapture,
    evidence,
    index_library,
    verify,
)
from tests.builders import SAMPLES, Clock

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="no ../shared/samples")


def sample_library() -> Library:
    library = Library.in_memory()
    home = RefreshOptions(home=SAMPLES / "home", clock=Clock())
    assert index_library(library, options=home).failures == []
    options = RefreshOptions(clock=Clock())
    assert index_library(library, [SAMPLES / "atif"], options=options).failures == []
    return library


def naive_claude_counts(path: Path) -> Counter[str]:
    """Visible entries of a Claude Code file by kind, counted without any of our code.

    Only what needs no judgement: tool calls, tool results and assistant texts of the main thread.
    """
    counts: Counter[str] = Counter()
    for line in path.read_bytes().split(b"\n"):
        decoder = json.JSONDecoder()
        text = line.decode("utf-8", "replace").strip()
        while text:
            record, end = decoder.raw_decode(text)
            text = text[end:].strip()
            if record.get("type") == "progress":
                record = record.get("data", {}).get("message") or {}
            content = (record.get("message") or {}).get("content")
            blocks: list[Any] = content if isinstance(content, list) else []
            for block in blocks:
                if block["type"] == "tool_use":
                    counts["input"] += 1
                elif block["type"] == "tool_result":
                    counts["output"] += 1
                elif block["type"] == "text" and record["type"] == "assistant":
                    counts["assistant"] += 1
    return counts


def test_counts_of_tools_and_answers_agree_with_a_naive_count() -> None:
    snapshot = sample_library().snapshot()
    rows = [row for row in snapshot.rows() if row.agent == "claude-code"]
    assert len(rows) == 10
    for row in rows:
        naive = naive_claude_counts(Path(row.source_path))
        counts = row.kind_counts
        assert (counts.tool_input, counts.tool_output) == (naive["input"], naive["output"])
        assert counts.assistant == naive["assistant"], row.session


def test_every_evidence_verifies_against_store_and_source() -> None:
    snapshot = sample_library().snapshot()
    cited = [
        json.loads(json.dumps(evidence(capture, entry.ref)))
        for row in snapshot.rows()
        for capture in [snapshot.capture(row.session)]
        for entry in capture.entries(0, capture.entry_count)
    ]
    assert len(cited) > 2000
    told = verify(cited, open_capture=snapshot.capture)
    assert [one for one in told if (one["status"], one["source"]) != ("ok", "present")] == []


def test_no_reasoning_or_base_instructions_are_stored() -> None:
    library = sample_library()
    snapshot = library.snapshot()
    hidden: list[str] = []
    for path in (SAMPLES / "home").rglob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            if b'"thinking"' in line and b'"signature"' in line:
                record = json.loads(line)
                for block in record["message"]["content"]:
                    if block["type"] == "thinking" and len(block["thinking"]) > 120:
                        hidden.append(block["thinking"][:120])
            if b"base_instructions" in line:
                record = json.loads(line)
                instructions = (record["payload"].get("base_instructions") or {}).get("text")
                if instructions:
                    hidden.append(instructions[:120])
    assert len(hidden) > 50
    stored = b"\n".join(
        capture.text(entry)
        for row in snapshot.rows()
        for capture in [snapshot.capture(row.session)]
        for entry in capture.entries(0, capture.entry_count)
    ).decode()
    assert [text for text in hidden if text in stored] == []


def test_a_growing_session_keeps_every_ref_and_text(tmp_path: Path) -> None:
    library = Library.create(tmp_path / "lib")
    path = tmp_path / "home" / ".claude" / "projects" / "-p" / "grown.jsonl"
    path.parent.mkdir(parents=True)
    before: list[tuple[str, bytes]] = []
    for snapshot in sorted((SAMPLES / "growth" / "claude-2a55af89").iterdir()):
        shutil.copyfile(snapshot, path)
        index_library(library, options=RefreshOptions(home=tmp_path / "home", clock=Clock()))
        capture = library.capture("grown")
        assert capture.generation == 1
        now = [(str(e.ref), capture.text(e)) for e in capture.entries(0, capture.entry_count)]
        assert now[: len(before)] == before
        assert len(now) > len(before)
        before = now
    whole = SessionCapture.from_path(snapshot)
    assert [(str(e.ref), whole.text(e)) for e in whole.entries(0, whole.entry_count)] == before


def test_copied_context_of_a_continuation_is_marked(tmp_path: Path) -> None:
    snapshot = sample_library().snapshot()
    continued = [row for row in snapshot.rows() if "cont-1" in row.source_path]
    assert continued
    capture = snapshot.capture(continued[0].session)
    flags = [capture.flags(entry) for entry in capture.entries(0, capture.entry_count)]
    assert any(flags)
