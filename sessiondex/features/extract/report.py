"""How an extract run ended, and what it was shown: the report that a host keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, get_args

Outcome = Literal["staged", "no_candidates", "incomplete", "failed"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

IncompleteReason = Literal[
    "turn_limit", "token_limit", "deadline", "protocol", "provider", "cancelled"
]
INCOMPLETE_REASONS: Final[tuple[IncompleteReason, ...]] = get_args(IncompleteReason)

_HOPELESS: Final = frozenset({"authentication", "quota", "not_found"})
"""Kinds of provider faults, with which the detail begins."""

EXIT_CODES: Final[dict[Outcome, int]] = {
    "staged": 0,
    "no_candidates": 0,
    "incomplete": 4,
    "failed": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractReport:
    """One run. Holds refs and numbers, and of the session's text nothing."""

    run_id: str
    session: str
    capture: str
    """The identity token of what was extracted from."""
    range: tuple[int, int]
    """First and last record, inclusive."""
    is_adopted: bool
    """It went on with the id and the records of a run that had been given up."""
    model: str
    prompt_digest: str
    turns: int
    calls: int
    calls_by_tool: dict[str, int]
    refused_calls: int
    """Calls that were answered with an error."""
    shown_bytes: int
    """Of the first message and of all replies of tools."""
    user_entries: int
    """Real user messages in the range."""
    shown_user_entries: int
    """Those of them whose text, or a part of it, was shown."""
    unseen_refs: list[str]
    """Refs that this run staged though no tool had shown them; those of a run that it goes on with
    are not looked at."""
    input_tokens: int
    output_tokens: int
    started: str
    """ISO 8601, UTC."""
    seconds: float
    pointer_records: int
    """How many leading records of the session are extracted now."""
    pointer_moved: bool
    pointer_reason: str
    """Why the pointer stands where it does."""

    @property
    def user_share(self) -> float:
        """Share of the user messages that were shown; 1 where there are none."""
        return self.shown_user_entries / self.user_entries if self.user_entries else 1.0

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return asdict(self) | {
            "range": list(self.range),
            "seconds": round(self.seconds, 3),
            "user_share": round(self.user_share, 4),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractResult:
    """The outcome of a run, with its reason, the ids of what it staged, and its report."""

    outcome: Outcome
    reason: str
    """Of `incomplete` one of `INCOMPLETE_REASONS`; else a sentence, or ''."""
    detail: str
    """What is known beyond the reason; for people."""
    staged: tuple[str, ...]
    """Ids of all records of the run, in the order of staging."""
    report: ExtractReport

    @property
    def exit_code(self) -> int:
        """Of the command line: 0 for a normal end, 4 for incomplete, 1 for failed."""
        return EXIT_CODES[self.outcome]

    @property
    def is_hopeless(self) -> bool:
        """The provider refuses whatever it is asked, so another run would end the same way."""
        is_provider = self.outcome == "incomplete" and self.reason == "provider"
        return is_provider and self.detail.partition(":")[0] in _HOPELESS

    def to_json(self) -> dict[str, Any]:
        """`{"outcome", "reason", "detail", "staged", "report"}`."""
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "detail": self.detail,
            "staged": list(self.staged),
            "report": self.report.to_json(),
        }
