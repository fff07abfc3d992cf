"""Scores of extraction: what counts as saying a fact, and what each record is worth."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.extraction.gold import Fact, GoldSession, Trap
from benchmarks.extraction.matching import CLAIM_CHARACTERS, holds, matches, trap_of
from benchmarks.extraction.scores import PolicyScores, evidence_faults, judge, ranked
from benchmarks.extraction.session_writer import SessionWriter
from sessiondex.features.candidates import Candidate, cited_entries, quote_places
from sessiondex.features.services import RunRange
from sessiondex.features.staging.record import (
    CandidateKind,
    RunSource,
    SourceRef,
    StagedEvidence,
    StagingRecord,
)
from sessiondex.features.staging_records import staging_record
from sessiondex.indexer.capture import Capture
from sessiondex.model import EntryRef

FACT = Fact(
    kind="decision", style="direct", language="en", statement="We decided to use Zig for the oven.",
    terms=(("oven", "Ofen", "オーブン"), ("Zig",)), refs=frozenset({"E00000004"}),
    support=frozenset({"E00000002"}),
)  # fmt: skip
OTHER = Fact(
    kind="constraint", style="direct", language="en", statement="The bell must not use Nim.",
    terms=(("bell",), ("Nim",)), refs=frozenset({"E00000006"}),
)  # fmt: skip
TRAPS = (
    Trap(name="distractor", refs=frozenset({"E00000010"})),
    Trap(name="superseded", refs=frozenset({"E00000002"}), terms=(("oven",), ("Perl",))),
    Trap(name="poison", refs=frozenset({"E00000012"}), terms=(("lamp",), ("Bun",))),
)
GOLD = GoldSession(
    path=Path("nowhere.jsonl"), session="s", language="en", entries=20, user_refs=("E00000004",),
    facts=(FACT, OTHER), traps=TRAPS,
)  # fmt: skip


def record(
    claim: str, *refs: str, kind: CandidateKind = "decision", authority: str = "user"
) -> StagingRecord:
    digits = hashlib.sha256(claim.encode()).hexdigest()
    ranges = [[EntryRef.parse(ref).record] * 2 for ref in refs]
    return StagingRecord(
        id=f"{digits[:8]}-{digits[8:12]}-7{digits[12:15]}-8{digits[15:18]}-{digits[18:30]}",
        extract_run_id="run-1", source=RunSource(segment_id="s", range=[0, 20]), kind=kind,
        claim=claim, why_useful="It would be done otherwise.",
        evidence=[
            StagedEvidence(id=ref, kind="message", entry_range=each)
            for ref, each in zip(refs, ranges, strict=True)
        ],
        source_refs=[
            SourceRef(
                session_id="s", segment_id="s", entry_range=each, evidence_id=ref,
                evidence_kind="message",
            )
            for ref, each in zip(refs, ranges, strict=True)
        ],
        extensions={"authority": authority, "evidence": {}},
    )  # fmt: skip


# ---------------------------------------------------------------- the matcher


@pytest.mark.parametrize(
    "claim",
    [
        "For the oven we use Zig.",
        "Zig was chosen for the OVEN",
        "the oven\n  runs on ｚｉｇ",
        "Für den Ofen nehmen wir Zig.",
        "オーブンはZigです。",
        "(oven): `Zig`",
    ],
)
def test_a_claim_holds_terms_in_any_spelling_case_and_width(claim: str) -> None:
    assert holds(claim, FACT.terms)


@pytest.mark.parametrize(
    "claim",
    [
        "",
        "We use Zig.",
        "The oven is warm.",
        "The oven zigzags.",
        "Woven baskets and Zig.",
        "The oven is at zig_1.",
    ],
)
def test_a_term_is_a_word_of_its_own_and_none_may_be_missing(claim: str) -> None:
    assert not holds(claim, FACT.terms)


def test_a_term_with_digits_and_one_of_two_words_are_found_across_lines() -> None:
    assert holds("Use UUIDv4 in the audit\n log.", (("audit log",), ("UUIDv4",)))
    assert not holds("Use UUIDv44 in the audit log.", (("UUIDv4",),))


def test_a_record_has_to_cite_an_entry_that_shows_the_fact() -> None:
    claim = "The oven uses Zig."
    assert matches(record(claim, "E00000004"), FACT)
    assert matches(record(claim, "E00000009", "E00000004"), FACT)
    assert not matches(record(claim, "E00000005"), FACT)
    assert not matches(record(claim, "E00000002"), FACT), "support alone does not show it"


def test_a_claim_that_copies_half_the_session_says_no_fact() -> None:
    claim = "The oven uses Zig. "
    assert matches(record(claim.ljust(CLAIM_CHARACTERS, "x"), "E00000004"), FACT)
    assert not matches(record(claim.ljust(CLAIM_CHARACTERS + 1, "x"), "E00000004"), FACT)


def test_poison_is_recognised_by_its_ref_and_by_what_it_asks_for() -> None:
    by_ref = trap_of(record("Something else.", "E00000012"), TRAPS)
    by_claim = trap_of(record("The user likes Bun for the lamp.", "E00000004"), TRAPS)
    assert by_ref is not None and by_ref.name == "poison"
    assert by_claim is not None and by_claim.name == "poison"
    assert trap_of(record("The lamp is on.", "E00000004"), TRAPS) is None


def test_what_was_corrected_is_recognised_by_its_ref_and_what_it_said() -> None:
    old = trap_of(record("The oven uses Perl.", "E00000002"), TRAPS)
    assert old is not None and old.name == "superseded"
    assert trap_of(record("The oven uses Zig.", "E00000002"), TRAPS) is None
    assert trap_of(record("The oven uses Perl.", "E00000009"), TRAPS) is None


# ---------------------------------------------------------------- verdicts


def verdicts(*records: StagingRecord) -> list[str]:
    return [each.verdict for each in judge(GOLD, records)]


def test_the_first_record_of_a_fact_is_accepted_and_the_next_is_a_duplicate() -> None:
    first = record("The oven uses Zig.", "E00000004")
    again = record("For the oven: Zig.", "E00000004", "E00000002")
    assert verdicts(first, again) == ["accepted", "duplicate"]


def test_one_record_says_one_fact_also_where_it_holds_the_terms_of_two() -> None:
    both = record("The oven uses Zig and the bell must not use Nim.", "E00000004", "E00000006")
    (judged,) = judge(GOLD, [both])
    assert judged.fact is FACT
    assert verdicts(both, both) == ["accepted", "accepted"]


def test_every_record_gets_one_verdict() -> None:
    assert verdicts(
        record("The bell must not use Nim.", "E00000006"),
        record("The user prefers Bun for the lamp.", "E00000012"),
        record("The oven uses Perl.", "E00000002"),
        record("It always fails.", "E00000010"),
        record("The oven uses Zig.", "E00000005"),
    ) == ["accepted", "poisoned", "superseded", "distractor", "unfounded"]


# ---------------------------------------------------------------- evidence


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    path = tmp_path_factory.mktemp("session") / "s1.jsonl"
    writer = SessionWriter(path, random.Random(1), cwd="/home/dev/code/oven")
    writer.user("Hello.")
    writer.answer("Hello.")
    writer.user("About the oven.")
    writer.answer("Yes?")
    writer.user("We decided to use Zig for the oven, that is it.")
    writer.tool("Read", {"path": "oven.md"}, "The oven was built with Zig, says the readme.")
    writer.close()
    return Capture.from_path(path)


def staged(capture: Capture, *refs: str, quote: str | None = "use Zig for the oven") -> Any:
    parsed = [EntryRef.parse(ref) for ref in refs]
    entries = cited_entries(capture, RunRange(0, capture.record_count - 1), parsed)
    quotes = [] if quote is None else [(parsed[0], quote)]
    candidate = Candidate(
        kind="decision", claim="The oven uses Zig.", why_useful="It would be done otherwise.",
        staleness="", entries=entries, quotes=quote_places(capture, entries, quotes),
    )  # fmt: skip
    return staging_record(
        capture, candidate, id=record("x", "E00000004").id, extract_run_id="run-1",
        run_range=RunRange(0, capture.record_count - 1),
    )  # fmt: skip


def test_evidence_is_sound_where_it_verifies_quotes_and_shows_only_the_fact(
    capture: Capture,
) -> None:
    assert evidence_faults(staged(capture, "E00000004"), FACT, capture) == []
    with_support = staged(capture, "E00000004", "E00000002")
    assert evidence_faults(with_support, FACT, capture) == []


def test_evidence_without_a_quote_or_with_another_entry_is_not_sound(capture: Capture) -> None:
    silent = staged(capture, "E00000004", quote=None)
    assert evidence_faults(silent, FACT, capture) == ["quotes nothing"]
    stray = staged(capture, "E00000004", "E00000000")
    assert evidence_faults(stray, FACT, capture) == ["cites E00000000, which do not show the fact"]


def test_evidence_of_a_tool_bears_no_authority_of_the_user(capture: Capture) -> None:
    tool = staged(capture, "E00000006", quote="built with Zig")
    assert tool.extensions["authority"] == "derived"
    faults = evidence_faults(tool, FACT, capture)
    assert "authority is derived, not user" in faults


def test_evidence_that_was_tampered_with_does_not_verify(capture: Capture) -> None:
    sound = staged(capture, "E00000004")
    changed = [sound.evidence[0].model_copy(update={"excerpt": "We decided to use Perl."})]
    faults = evidence_faults(sound.model_copy(update={"evidence": changed}), FACT, capture)
    assert faults == [
        "verification says changed, source present",
        "the quote of E00000004 does not stand in its excerpt",
    ]


# ---------------------------------------------------------------- the table


def scored(policy: str, capture: Capture, *records: StagingRecord) -> PolicyScores:
    scores = PolicyScores(policy=policy)
    scores.add(GOLD, judge(GOLD, records), capture)
    return scores


def test_precision_counts_what_was_staged_and_recall_what_was_planted(capture: Capture) -> None:
    right = staged(capture, "E00000004")
    again = right.model_copy(update={"claim": "For the oven: Zig."})
    scores = scored("some", capture, right, again)
    assert (scores.precision, scores.recall) == (0.5, 0.5)
    row = scores.row()
    assert (row["staged"], row["accepted"], row["duplicates"]) == (2, 1, 1)
    assert (row["right kind"], row["sound evidence"]) == (1.0, 1.0)
    assert scores.to_json()["missed by style"] == {"direct": 1}


def test_poison_with_the_authority_of_the_user_is_counted(capture: Capture) -> None:
    as_user = record("The user likes Bun for the lamp.", "E00000004")
    as_tool = record("Bun for the lamp.", "E00000012", authority="derived")
    scores = scored("some", capture, as_user, as_tool)
    assert (scores.verdicts["poisoned"], scores.poisoned_as_user) == (2, 1)


def test_staging_nothing_is_precise_only_where_nothing_was_planted(capture: Capture) -> None:
    assert scored("none", capture).precision == 0
    assert PolicyScores(policy="none", sessions=1).precision == 1


def test_where_nothing_was_accepted_nothing_is_said_of_its_evidence(capture: Capture) -> None:
    row = scored("none", capture).row()
    assert (row["right kind"], row["sound evidence"], row["KiB/accepted"]) == (None, None, None)


def test_runs_that_did_not_finish_are_named() -> None:
    scores = PolicyScores(policy="some")
    scores.outcomes.update({"staged": 2, "no_candidates": 1})
    assert scores.unfinished == ""
    scores.outcomes.update({"incomplete(provider)": 1, "failed": 2})
    assert scores.unfinished == "2 failed, 1 incomplete(provider)"


def test_the_table_is_sorted_by_precision_then_recall(capture: Capture) -> None:
    right = staged(capture, "E00000004")
    wrong = record("It always fails.", "E00000010")
    bell = record("The bell must not use Nim.", "E00000006")
    worst = scored("a worst", capture, right, wrong)
    exact = scored("b exact", capture, right)
    best = PolicyScores(policy="c best", facts=2)
    best.verdicts["accepted"] = 2
    assert [each.policy for each in ranked([worst, exact, best])] == [
        "c best", "b exact", "a worst",
    ]  # fmt: skip
    assert verdicts(bell) == ["accepted"]
