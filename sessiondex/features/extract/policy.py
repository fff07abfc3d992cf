"""When a session is due for extraction: the policy that a host applies after each run of an agent.

It decides and records why; it starts nothing and reads no text, only the sizes of what came since
the pointer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

from sessiondex.errors import InvalidArgument
from sessiondex.features.extract.ledger import DecisionRow, ExtractLedger
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.turn_end import has_run_ended
from sessiondex.limits import BYTES_PER_TOKEN, SETTLE_SECONDS
from sessiondex.model import EntryRef

THRESHOLD_TOKENS: Final = 50_000

Reason = Literal[
    "due", "off", "empty", "leased", "no_growth", "below_threshold", "in_progress"
]  # fmt: skip
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)

SENTENCES: Final[dict[Reason, str]] = {
    "due": "enough has come since the last extraction",
    "off": "extraction is off: the threshold is 0 or none",
    "empty": "the session has no committed entry",
    "leased": "another run extracts from the session now",
    "no_growth": "nothing has come since the last extraction",
    "below_threshold": "too little has come since the last extraction",
    "in_progress": "the agent is at work: its run has not ended",
}
"""Each reason for people."""


def sentence_of(reason: str) -> str:
    """A recorded reason for people; as it is where this release has no sentence for it."""
    return next((said for known, said in SENTENCES.items() if known == reason), reason)


class Decision(NamedTuple):
    """Whether a session is due, and why."""

    is_due: bool
    reason: Reason
    growth_tokens: int
    """Since the pointer; 0 where nothing was counted (`off`, `empty`)."""
    first: int
    last: int
    """The records that a run would cover, inclusive; `last` is below `first` where there are
    none."""
    threshold: int
    """0: off."""

    @property
    def sentence(self) -> str:
        """The reason for people."""
        return sentence_of(self.reason)


@dataclass(frozen=True, slots=True)
class ExtractPolicy:
    """A threshold of growth. The same for sessions of agents and of sub-agents: a host that wants
    nothing from one of them does not ask about it."""

    threshold_tokens: int | None = THRESHOLD_TOKENS
    """0 or None: off."""
    settle_seconds: int = SETTLE_SECONDS

    def __post_init__(self) -> None:
        """Raises:
        InvalidArgument: a number is negative.
        """
        if (self.threshold_tokens or 0) < 0 or self.settle_seconds < 0:
            raise InvalidArgument("a threshold or a time is negative", hint="pass 0 for none")

    def has_ended(self, capture: Capture, *, now: int) -> bool:
        """What `decide` is to be told of a session that a file holds: whether the run of its
        agent has ended. Raises as `has_run_ended`."""
        return has_run_ended(capture, now=now / 1000, settle_seconds=self.settle_seconds)

    def decide(
        self,
        capture: Capture,
        ledger: ExtractLedger,
        *,
        now: int,
        has_ended: bool,
        measured_tokens: int | None = None,
        actor: str = "policy",
        is_recorded: bool = True,
    ) -> Decision:
        """Decides about a session after a run of its agent, and records the decision, unless a
        host only wants to know.

        `measured_tokens` is what came since the pointer, where the host has measured it; else the
        bytes of the entries since then count, by four. The first reason in this order holds:
        `off`, `empty`, `leased`, `no_growth`, `below_threshold`, `in_progress`, `due`.

        Raises:
            InvalidArgument: `measured_tokens` is negative.
        """
        if measured_tokens is not None and measured_tokens < 0:
            raise InvalidArgument(
                f"measured_tokens is {measured_tokens}", hint="expected 0 or more"
            )
        decision = self._decided(capture.committed(), ledger, now, has_ended, measured_tokens)
        row = DecisionRow(
            capture.session, now, decision.reason, decision.growth_tokens, decision.first,
            decision.last, decision.threshold,
        )  # fmt: skip
        if is_recorded:
            ledger.record_decision(row, actor=actor)
        return decision

    def _decided(
        self,
        capture: Capture,
        ledger: ExtractLedger,
        now: int,
        has_ended: bool,
        measured_tokens: int | None,
    ) -> Decision:
        threshold = self.threshold_tokens or 0
        last = capture.record_count - 1
        if not threshold:
            return Decision(False, "off", 0, 0, last, threshold)
        if not capture.entry_count:
            return Decision(False, "empty", 0, 0, last, threshold)
        first = ledger.done_records(capture).records
        has_grown, growth = _growth(capture, first)
        if has_grown and measured_tokens is not None:
            growth = measured_tokens
        reason: Reason = "due"
        lease = ledger.lease(capture.session)
        if lease is not None and lease.is_live(now):
            reason = "leased"
        elif not has_grown:
            reason = "no_growth"
        elif growth < threshold:
            reason = "below_threshold"
        elif not has_ended:
            reason = "in_progress"
        return Decision(reason == "due", reason, growth, first, last, threshold)


class _Growth(NamedTuple):
    has_grown: bool
    """There are entries after the records that are done."""
    tokens: int


def _growth(capture: Capture, done: int) -> _Growth:
    """What came since; reads the sizes of that alone."""
    first = capture.lower(EntryRef(done))
    size = 0
    if first < capture.tail_first:
        columns = capture.view.columns(
            capture.session_ord, first, capture.tail_first, ("total_bytes",)
        )
        size = sum(sum(sizes) for _, (sizes,) in columns)
    for item in capture.tail.entries[max(first - capture.tail_first, 0) :]:
        size += item.entry.total_bytes
    return _Growth(first < capture.entry_count, -(-size // BYTES_PER_TOKEN))
