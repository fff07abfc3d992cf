"""`builtin:memory-extract`: an extract worker proposes memories; it writes only staging.

Shares with session-explore the capture and nothing else. It reads no memory and changes none:
what is staged waits until someone else closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import Field

from sessiondex.errors import InvalidArgument
from sessiondex.features.candidates import (
    QUOTE_BYTES,
    Candidate,
    checked_text,
    cited_entries,
    quote_places,
)
from sessiondex.features.extract_run import EXTRACT_RUN, ExtractRun
from sessiondex.features.registry import Contribution, FeatureDescriptor, Skipped
from sessiondex.features.services import CAPTURE, RUN_RANGE, Services
from sessiondex.features.staging.record import CandidateKind, StagingRecord
from sessiondex.features.tool import (
    Annotations,
    Text,
    Texts,
    Tool,
    ToolInput,
    ToolOutput,
    Whole,
)
from sessiondex.limits import CANDIDATE_REFS, CANDIDATES, CLAIM, STALENESS
from sessiondex.model import EntryRef
from sessiondex.query.reply import clip_text

SHOWN_SIMILAR: Final = 5
_SHOWN_CLAIM_BYTES: Final = 300


class QuoteInput(ToolInput):
    """Words of a cited entry."""

    entry_ref: Annotated[Text, Field(description="One of entry_refs.")]
    quote: Annotated[
        Text,
        Field(
            description="Words exactly as they stand in the entry; white space may differ. At most"
            f" {QUOTE_BYTES:,} bytes."
        ),
    ]


class StageInput(ToolInput):
    """One candidate."""

    kind: Annotated[CandidateKind, Field(description="What kind of memory it would be.")]
    claim: Annotated[
        Text,
        Field(
            description="The memory itself, in full sentences that are understood without the"
            f" session. At most {CLAIM.maximum:,} characters; longer is refused."
        ),
    ]
    why_useful: Annotated[
        Text,
        Field(
            description=f"What it would change later. At most {CLAIM.maximum:,} characters; longer"
            " is refused."
        ),
    ]
    staleness: Annotated[
        Text | None,
        Field(
            description="When it would no longer hold, if that can be said. At most"
            f" {STALENESS.maximum:,} characters; longer is refused."
        ),
    ] = None
    entry_refs: Annotated[
        Texts,
        Field(
            description="Refs of the entries that the claim rests on, as a tool returned them;"
            f" 1 to {CANDIDATE_REFS.maximum}."
        ),
    ]
    quotes: Annotated[
        list[QuoteInput] | None,
        Field(
            description="The words that show it, by entry; the excerpt is taken around them. At"
            f" most {CANDIDATE_REFS.maximum}."
        ),
    ] = None


class SimilarClaim(ToolOutput):
    """A staged record whose claim is like the new one."""

    id: str
    kind: CandidateKind
    claim: str | None = None
    """Left out where another run staged it."""


class StageOutput(ToolOutput):
    """What was staged."""

    id: str
    already_staged: bool
    """This run had staged the same claim before; nothing was written."""
    staged_count: int
    """What this run has staged so far."""
    remaining: int
    similar: list[SimilarClaim]
    similar_total: int


class FinishInput(ToolInput):
    """The end of a run."""

    staged_count: Annotated[
        Whole, Field(description="How many candidates this run has staged, as the last reply said.")
    ]
    no_candidates_reason: Annotated[
        Text | None,
        Field(
            description="Why the session holds no candidate; needed where nothing was staged. At"
            f" most {CLAIM.maximum:,} characters."
        ),
    ] = None


class FinishOutput(ToolOutput):
    """The run is sealed."""

    sealed: bool
    staged_count: int
    no_candidates_reason: str | None = None


STAGE: Final = Tool(
    name="StageMemoryCandidate",
    description="Stage one possible memory with the entries of this session that show it. One call,"
    f" one candidate; at most {CANDIDATES.maximum} in a run. The same claim again in a run is"
    " not staged twice. Similar claims are named in the reply; they are not merged.",
    input=StageInput,
    output=StageOutput,
    annotations=Annotations(read_only=False, idempotent=True),
)

FINISH: Final = Tool(
    name="FinishMemoryExtraction",
    description="End the run, once, when everything was staged. Nothing can be staged after it."
    " Where nothing was staged, say why.",
    input=FinishInput,
    output=FinishOutput,
    annotations=Annotations(read_only=False, idempotent=False),
)


class MemoryExtract:
    """The feature. Its run must be of the very capture that session-explore shows."""

    descriptor: FeatureDescriptor = FeatureDescriptor(
        id="builtin:memory-extract",
        display_name="Memory extraction",
        description="Stages possible memories from one session, each with its evidence.",
        tools=(STAGE, FINISH),
        requires=(CAPTURE, EXTRACT_RUN),
        optional=(RUN_RANGE,),
    )

    def contribute(self, services: Services) -> Sequence[Contribution[Any] | Skipped]:
        """Its two tools over the run.

        Raises:
            InvalidArgument: the run is of another capture or range than the tools that read.
        """
        run = services.require(EXTRACT_RUN)
        if run.capture is not services.require(CAPTURE):
            raise InvalidArgument(
                "the extract run holds another capture than the tools that read",
                hint="make the run with the capture that is provided",
            )
        # Without one the tools that read show the whole capture.
        shown = services.get(RUN_RANGE) or (0, run.capture.record_count - 1)
        if tuple(shown) != tuple(run.range):
            raise InvalidArgument(
                "the extract run covers other records than the tools that read",
                hint="make the run with the range that is provided",
            )
        return (
            Contribution.of(STAGE, lambda call: _stage(run, call)),
            Contribution.of(FINISH, lambda call: _finish(run, call)),
        )


def _stage(run: ExtractRun, call: StageInput) -> dict[str, Any]:
    run.require_open()
    entries = cited_entries(
        run.capture, run.range, [EntryRef.parse(ref) for ref in call.entry_refs]
    )
    quotes = [(EntryRef.parse(each.entry_ref), each.quote) for each in call.quotes or ()]
    staleness = call.staleness
    candidate = Candidate(
        kind=call.kind,
        claim=checked_text("claim", call.claim),
        why_useful=checked_text("why_useful", call.why_useful),
        staleness=""
        if staleness is None
        else checked_text("staleness", staleness, max_characters=STALENESS.maximum),
        entries=entries,
        quotes=quote_places(run.capture, entries, quotes),
    )
    staged = run.stage(candidate)
    shown = [_similar_claim(run, each) for each in staged.similar[:SHOWN_SIMILAR]]
    return {
        "id": staged.record.id,
        "already_staged": staged.is_repeat,
        "staged_count": staged.staged_count,
        "remaining": CANDIDATES.maximum - staged.staged_count,
        "similar": shown,
        "similar_total": len(staged.similar),
    }


def _similar_claim(run: ExtractRun, record: StagingRecord) -> dict[str, Any]:
    named: dict[str, Any] = {"id": record.id, "kind": record.kind}
    # What another run staged comes from a session that this one may not see.
    if record.extract_run_id == run.id:
        named["claim"] = clip_text(record.claim, _SHOWN_CLAIM_BYTES)
    return named


def _finish(run: ExtractRun, call: FinishInput) -> dict[str, Any]:
    run.require_open()
    reason = (call.no_candidates_reason or "").strip()
    finished = run.finish(
        call.staged_count, checked_text("no_candidates_reason", reason) if reason else ""
    )
    reply: dict[str, Any] = {"sealed": True, "staged_count": finished.staged_count}
    if finished.no_candidates_reason:
        reply["no_candidates_reason"] = finished.no_candidates_reason
    return reply
