"""How a compaction ended: the summary, or why there is none, and the report that a host keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

Outcome = Literal["written", "incomplete", "failed"]

EXIT_CODES: Final[dict[Outcome, int]] = {"written": 0, "incomplete": 4, "failed": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """One run. Holds refs and numbers, and of the session's text nothing."""

    session: str
    capture: str
    """The identity token of what was summarised."""
    range: tuple[int, int]
    """First and last record, inclusive."""
    model: str
    prompt_digest: str
    max_bytes: int
    """How large the summary could be."""
    summary_bytes: int
    unseen_refs: list[str]
    """Refs in the summary of entries that nothing had shown to the model."""
    turns: int
    calls: int
    refused_calls: int
    """Calls that were answered with an error."""
    shown_bytes: int
    """Of the first message and of all replies of tools."""
    input_tokens: int
    output_tokens: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return asdict(self) | {"range": list(self.range), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The summary, or why there is none."""

    summary: str | None
    """Masked; None unless the outcome is `written`."""
    outcome: Outcome
    reason: str
    """Of `incomplete` a limit, `protocol`, `provider` or `cancelled`; of `failed` a sentence."""
    detail: str
    """What is known beyond the reason; for people."""
    report: CompactionReport

    @property
    def exit_code(self) -> int:
        """Of the command line: 0 for written, 4 for incomplete, 1 for failed."""
        return EXIT_CODES[self.outcome]

    def to_json(self) -> dict[str, Any]:
        """`{"summary", "outcome", "reason", "detail", "report"}`."""
        return {
            "summary": self.summary,
            "outcome": self.outcome,
            "reason": self.reason,
            "detail": self.detail,
            "report": self.report.to_json(),
        }
