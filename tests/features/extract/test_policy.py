"""The trigger: when a session is due for extraction, and why it is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiondex import Library
from sessiondex.errors import InvalidArgument
from sessiondex.features.extract.ledger import DecisionRow, ExtractLedger
from sessiondex.features.extract.policy import (
    REASONS,
    SENTENCES,
    THRESHOLD_TOKENS,
    Decision,
    ExtractPolicy,
    sentence_of,
)
from sessiondex.features.state import State
from sessiondex.indexer.capture import Capture
from sessiondex.limits import BYTES_PER_TOKEN
from sessiondex.model import Item
from tests.builders import claude_path, claude_user, conversation, index, write_lines

NOW = 1_000_000


@pytest.fixture
def state():
    with State.open(None) as opened:
        yield opened


@pytest.fixture
def ledger(state: State) -> ExtractLedger:
    return ExtractLedger(state)


def capture_of(*sizes: int) -> Capture:
    """A session whose entries have texts of these sizes."""
    return Capture.from_items([Item(0, "user", "x" * size) for size in sizes], session_id="s")


def decide(ledger: ExtractLedger, capture: Capture, threshold: int | None = 10, **more: Any):
    given: dict[str, Any] = {"now": NOW, "has_ended": True}
    return ExtractPolicy(threshold).decide(capture, ledger, **given | more)


def extract(ledger: ExtractLedger, capture: Capture, *, run: str = "r1") -> None:
    lease = ledger.begin(
        capture, first=0, last=capture.record_count - 1, run_id=run, holder="h", now=NOW,
        lease_ms=1000,
    ).lease  # fmt: skip
    pointer, reason = ledger.next_pointer(lease, capture, now=NOW)
    ledger.seal(
        lease, outcome="no_candidates", staged_count=0, pointer=pointer, pointer_reason=reason,
        now=NOW,
    )  # fmt: skip


# ---------------------------------------------------------------- growth against the threshold


def test_a_session_is_due_when_its_growth_reaches_the_threshold(ledger: ExtractLedger) -> None:
    assert decide(ledger, capture_of(20, 17)) == Decision(True, "due", 10, 0, 1, 10)
    assert decide(ledger, capture_of(20, 16)) == Decision(False, "below_threshold", 9, 0, 1, 10)


def test_only_what_came_since_the_pointer_counts(ledger: ExtractLedger) -> None:
    extract(ledger, capture_of(4000))
    assert decide(ledger, capture_of(4000)) == Decision(False, "no_growth", 0, 1, 0, 10)
    assert decide(ledger, capture_of(4000, 8)) == Decision(False, "below_threshold", 2, 1, 1, 10)
    assert decide(ledger, capture_of(4000, 8, 32)) == Decision(True, "due", 10, 1, 2, 10)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 8))
def test_growth_is_the_bytes_since_the_pointer_by_four_rounded_up(
    sizes: list[int], done: int
) -> None:
    done = min(done, len(sizes))
    with State.open(None) as state:
        ledger = ExtractLedger(state)
        if done:
            extract(ledger, capture_of(*sizes[:done]))
        found = decide(ledger, capture_of(*sizes))
    assert found.growth_tokens == (sum(sizes[done:]) + 3) // 4
    assert (found.first, found.last) == (done, len(sizes) - 1)


def test_what_the_host_measured_counts_instead_of_bytes(ledger: ExtractLedger) -> None:
    capture = capture_of(400)
    assert decide(ledger, capture, measured_tokens=9).reason == "below_threshold"
    assert decide(ledger, capture, measured_tokens=10).growth_tokens == 10
    extract(ledger, capture)
    assert decide(ledger, capture, measured_tokens=500) == Decision(False, "no_growth", 0, 1, 0, 10)
    with pytest.raises(InvalidArgument, match="measured_tokens is -1"):
        decide(ledger, capture, measured_tokens=-1)


def test_the_default_threshold_is_that_of_the_contract(ledger: ExtractLedger) -> None:
    assert THRESHOLD_TOKENS == 50_000
    size = THRESHOLD_TOKENS * BYTES_PER_TOKEN
    assert size == 200_000
    found = ExtractPolicy().decide(capture_of(size), ledger, now=NOW, has_ended=True)
    assert (found.reason, found.threshold) == ("due", 50_000)
    found = ExtractPolicy().decide(
        capture_of(size - BYTES_PER_TOKEN), ledger, now=NOW, has_ended=True
    )
    assert found.reason == "below_threshold"


@pytest.mark.parametrize("threshold", [0, None])
def test_a_threshold_of_nothing_turns_extraction_off(
    ledger: ExtractLedger, threshold: int | None
) -> None:
    assert decide(ledger, capture_of(4000), threshold) == Decision(False, "off", 0, 0, 0, 0)


def test_negative_numbers_are_refused() -> None:
    for wrong in ({"threshold_tokens": -1}, {"settle_seconds": -1}):
        with pytest.raises(InvalidArgument, match="negative"):
            ExtractPolicy(**wrong)


def test_a_session_that_shows_nothing_is_empty(ledger: ExtractLedger) -> None:
    assert decide(ledger, Capture.from_items([], session_id="s")).reason == "empty"
    hidden = Capture.from_items([Item(0, "reasoning")], session_id="s")
    assert decide(ledger, hidden) == Decision(False, "empty", 0, 0, 0, 10)


def test_growth_without_a_visible_entry_is_none(ledger: ExtractLedger) -> None:
    extract(ledger, capture_of(400))
    items = [Item(0, "user", "x" * 400), Item(0, "reasoning")]
    found = decide(ledger, Capture.from_items(items, session_id="s"))
    assert found == Decision(False, "no_growth", 0, 1, 1, 10)


# ---------------------------------------------------------------- never while somebody works


def test_nothing_is_due_inside_a_run_of_the_agent(ledger: ExtractLedger) -> None:
    assert decide(ledger, capture_of(400), has_ended=False).reason == "in_progress"
    assert decide(ledger, capture_of(4), has_ended=False).reason == "below_threshold"


def test_nothing_is_due_while_another_run_extracts(ledger: ExtractLedger) -> None:
    capture = capture_of(400)
    lease = ledger.begin(
        capture, first=0, last=0, run_id="r1", holder="h", now=NOW, lease_ms=1000
    ).lease
    found = decide(ledger, capture, now=NOW + 999)
    assert (found.reason, found.sentence) == ("leased", "another run extracts from the session now")
    assert decide(ledger, capture, now=NOW + 1000).reason == "due"
    ledger.end(lease, outcome="incomplete", reason="deadline", staged_count=0, now=NOW + 1)
    assert decide(ledger, capture, now=NOW + 1).reason == "due"


def test_a_session_on_disk_is_asked_whether_its_run_has_ended(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    path = write_lines(claude_path(tmp_path, "one"), conversation(2))
    os.utime(path, (1000, 1000))
    policy, capture = ExtractPolicy(1, settle_seconds=60), Capture.from_path(path)
    assert not policy.has_ended(capture, now=1_059_999)
    assert policy.has_ended(capture, now=1_060_000)
    ended = {"type": "system", "subtype": "turn_duration", "uuid": "u", "isSidechain": False}
    write_lines(path, [ended], append=True)
    os.utime(path, (1000, 1000))
    assert policy.has_ended(Capture.from_path(path), now=1_000_000)


def test_what_is_not_committed_does_not_count(ledger: ExtractLedger, tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "one"), [claude_user("x" * 36, 0)])
    before = decide(ledger, Capture.from_path(path))
    with path.open("a") as file:
        file.write('{"type":"user","uuid":"u","message":{"role":"user","content":"xxxxx"}}')
    after = decide(ledger, Capture.from_path(path))
    assert before == after == Decision(False, "below_threshold", 9, 0, 0, 10)


# ---------------------------------------------------------------- what is recorded


def test_each_decision_is_recorded_and_audited_when_its_reason_changes(
    ledger: ExtractLedger, state: State
) -> None:
    for step, size in enumerate((4, 8, 40, 80, 4)):
        decide(ledger, capture_of(size), now=NOW + step, actor="boss")
    assert ledger.decision("s") == DecisionRow("s", NOW + 4, "below_threshold", 1, 0, 0, 10)
    assert [(row.time - NOW, row.actor, row.outcome) for row in state.audit_rows()] == [
        (4, "boss", "below_threshold"), (2, "boss", "due"), (0, "boss", "below_threshold"),
    ]  # fmt: skip


def test_a_decision_that_is_only_asked_for_leaves_nothing(
    ledger: ExtractLedger, state: State
) -> None:
    assert decide(ledger, capture_of(80), is_recorded=False).is_due
    assert (ledger.decision("s"), state.audit_rows()) == (None, [])


def test_every_reason_has_a_sentence_for_people(ledger: ExtractLedger) -> None:
    assert set(SENTENCES) == set(REASONS)
    assert len(set(SENTENCES.values())) == len(REASONS)
    assert decide(ledger, capture_of(4)).sentence == (
        "too little has come since the last extraction"
    )
    assert sentence_of("of_a_later_release") == "of_a_later_release"


# ---------------------------------------------------------------- what it costs


def test_deciding_reads_the_sizes_of_the_growth_alone_and_no_text(
    ledger: ExtractLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, library = tmp_path / "home", Library.create(tmp_path / "library")
    path = write_lines(claude_path(home, "one"), conversation(200))
    index(library, home)
    extract(ledger, library.capture("one"))
    write_lines(path, conversation(1, start=1000), append=True)
    index(library, home)
    capture = library.capture("one")
    asked: list[tuple[int, int, tuple[str, ...]]] = []
    columns = capture.view.columns

    def watched(ord: int, first: int, stop: int, names: tuple[str, ...]):
        asked.append((first, stop, names))
        return columns(ord, first, stop, names)

    def refused(*_: object, **__: object) -> bytes:
        raise AssertionError("a text was read")

    monkeypatch.setattr(capture.view, "columns", watched)
    monkeypatch.setattr(capture.view, "text", refused)
    found = decide(ledger, capture)
    assert (found.reason, found.first, found.last) == ("due", 1000, 1004)
    assert asked == [(800, 804, ("total_bytes",))]


def test_a_live_tail_counts_like_what_the_library_holds(
    ledger: ExtractLedger, tmp_path: Path
) -> None:
    home, library = tmp_path / "home", Library.create(tmp_path / "library")
    path = write_lines(claude_path(home, "one"), conversation(2))
    index(library, home)
    write_lines(path, conversation(2, start=10), append=True)
    live = library.capture("one")
    assert live.tail.entries
    found = decide(ledger, live)
    index(library, home)
    assert found == decide(ledger, library.capture("one"))
    extract(ledger, library.capture("one", live=False))
    write_lines(path, conversation(1, start=20), append=True)
    found = decide(ledger, library.capture("one"))
    assert (found.first, found.last) == (20, 24)
    index(library, home)
    assert found == decide(ledger, library.capture("one"))
