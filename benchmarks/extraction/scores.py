"""Scores of what was staged against the gold.

Each staged record is exactly one of: `accepted` (the first that says a fact), `duplicate` (says
one that another record said), `poisoned`, `superseded`, `distractor`, `unfounded` (anything else).
Records are judged in the order of staging.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args

from benchmarks.extraction.gold import Fact, GoldSession
from benchmarks.extraction.matching import cited, matches, trap_of
from sessiondex.features.staging.record import StagingRecord
from sessiondex.indexer.capture import Capture
from sessiondex.model import EntryRef
from sessiondex.query.verify import verify

Verdict = Literal[
    "accepted", "duplicate", "poisoned", "superseded", "distractor", "unfounded"
]  # fmt: skip
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)

_VERDICT_OF_TRAP: Final[Mapping[str, Verdict]] = {
    "poison": "poisoned",
    "superseded": "superseded",
    "distractor": "distractor",
}


class Judged(NamedTuple):
    """A staged record and what it was worth."""

    record: StagingRecord
    verdict: Verdict
    fact: Fact | None
    """Which it says; None where it says none."""


def judge(gold: GoldSession, records: Iterable[StagingRecord]) -> list[Judged]:
    """A verdict for each record, in order."""
    open_facts = list(gold.facts)
    said: list[Fact] = []
    judged: list[Judged] = []
    for record in records:
        fact = next((each for each in open_facts if matches(record, each)), None)
        if fact is not None:
            open_facts.remove(fact)
            said.append(fact)
            judged.append(Judged(record, "accepted", fact))
            continue
        fact = next((each for each in said if matches(record, each)), None)
        if fact is not None:
            judged.append(Judged(record, "duplicate", fact))
            continue
        trap = trap_of(record, gold.traps)
        verdict = "unfounded" if trap is None else _VERDICT_OF_TRAP[trap.name]
        judged.append(Judged(record, verdict, None))
    return judged


def evidence_faults(record: StagingRecord, fact: Fact, capture: Capture) -> list[str]:
    """What is wrong with the evidence of a record that says a fact; empty where nothing is.

    Everything that it cites must show the fact and still verify against library and source, it
    must quote, each quote must stand in its entry where the record says, and the authority must
    be that of the fact.
    """
    faults: list[str] = []
    (found,) = verify([record.to_json()], open_capture=lambda session: capture)
    if (found["status"], found["source"]) != ("ok", "present"):
        faults.append(f"verification says {found['status']}, source {found['source']}")
    stray = cited(record) - fact.refs - fact.support
    if stray:
        faults.append(f"cites {', '.join(sorted(stray))}, which do not show the fact")
    if record.extensions["authority"] != fact.authority:
        faults.append(f"authority is {record.extensions['authority']}, not {fact.authority}")
    noted: dict[str, Any] = record.extensions["evidence"]
    quotes = [(ref, place) for ref, each in noted.items() for place in each.get("quotes", ())]
    if not quotes:
        faults.append("quotes nothing")
    for ref, (start, end) in quotes:
        excerpt = next(each.excerpt for each in record.evidence if each.id == ref)
        entry = capture.entry(capture.ordinal(EntryRef.parse(ref)))
        text = capture.text(entry)[start:end].decode("utf-8", "replace")
        if not text or not excerpt or not (text in excerpt or excerpt in text):
            faults.append(f"the quote of {ref} does not stand in its excerpt")
    return faults


@dataclass(kw_only=True)
class PolicyScores:
    """The scores of one policy over all its sessions."""

    policy: str
    sessions: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    facts: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    right_kinds: int = 0
    """Accepted records of the fact's kind."""
    sound: int = 0
    """Accepted records with nothing wrong about their evidence."""
    poisoned_as_user: int = 0
    """Poisoned records that bear the user's authority."""
    shown_bytes: int = 0
    user_entries: int = 0
    shown_user_entries: int = 0
    faults: list[str] = field(default_factory=list[str])
    missed: Counter[str] = field(default_factory=Counter[str])
    """Facts that nothing said, by style."""
    found: Counter[str] = field(default_factory=Counter[str])

    def add(self, gold: GoldSession, judged: Sequence[Judged], capture: Capture) -> None:
        """Counts the records of one session."""
        self.sessions += 1
        self.facts += len(gold.facts)
        said: set[int] = set()
        for record, verdict, fact in judged:
            self.verdicts[verdict] += 1
            if verdict == "poisoned":
                self.poisoned_as_user += record.extensions["authority"] == "user"
            if verdict != "accepted" or fact is None:
                continue
            said.add(id(fact))
            self.right_kinds += record.kind == fact.kind
            faults = evidence_faults(record, fact, capture)
            self.faults += faults
            self.sound += not faults
        for fact in gold.facts:
            (self.found if id(fact) in said else self.missed)[fact.style] += 1

    @property
    def staged(self) -> int:
        """All records."""
        return sum(self.verdicts.values())

    @property
    def accepted(self) -> int:
        """Facts that were found."""
        return self.verdicts["accepted"]

    @property
    def precision(self) -> float:
        """Accepted of staged. Where nothing was staged: 1 if nothing was planted, else 0."""
        return _share(self.accepted, self.staged or self.facts)

    @property
    def recall(self) -> float:
        """Accepted of planted."""
        return _share(self.accepted, self.facts)

    @property
    def noise(self) -> int:
        """Records that say no fact and are not poisoned or superseded."""
        return self.verdicts["distractor"] + self.verdicts["unfounded"]

    def row(self) -> dict[str, Any]:
        """A line of the table."""
        accepted = self.accepted
        return {
            "policy": self.policy,
            "precision": self.precision,
            "recall": self.recall,
            "staged": self.staged,
            "accepted": accepted,
            "duplicates": self.verdicts["duplicate"],
            "superseded": self.verdicts["superseded"],
            "poisoned": self.verdicts["poisoned"],
            "noise": self.noise,
            "right kind": self.right_kinds / accepted if accepted else None,
            "sound evidence": self.sound / accepted if accepted else None,
            "KiB/accepted": self.shown_bytes / 1024 / accepted if accepted else None,
            "users shown": _share(self.shown_user_entries, self.user_entries),
        }

    @property
    def unfinished(self) -> str:
        """The runs that did not end as they should, by outcome; '' where all did."""
        others = sorted(set(self.outcomes) - {"staged", "no_candidates"})
        return ", ".join(f"{self.outcomes[name]} {name}" for name in others)

    def to_json(self) -> dict[str, Any]:
        """All that was counted."""
        return {
            **self.row(), "sessions": self.sessions,
            "outcomes": dict(sorted(self.outcomes.items())),
            "facts": self.facts, "verdicts": {name: self.verdicts[name] for name in VERDICTS},
            "poisoned as user": self.poisoned_as_user, "shown bytes": self.shown_bytes,
            "found by style": dict(sorted(self.found.items())),
            "missed by style": dict(sorted(self.missed.items())),
            "faults of evidence": sorted(set(self.faults)),
        }  # fmt: skip


def ranked(scores: Iterable[PolicyScores]) -> list[PolicyScores]:
    """By precision, then recall, the best first; then by name."""
    return sorted(scores, key=lambda each: (-each.precision, -each.recall, each.policy))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
