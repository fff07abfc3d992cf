"""The staging record of a candidate.

A model says what it claims and which entries it rests on; digests, ranges, excerpts and authority
are looked up. Nothing of a record is longer than its bound: excerpts shrink first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sessiondex.features.authority import authority
from sessiondex.features.candidates import Candidate
from sessiondex.features.staging.record import (
    EvidenceKind,
    RunSource,
    SourceRef,
    StagedEvidence,
    StagingRecord,
)
from sessiondex.limits import EXCERPT_BYTES, STAGING_BYTES, SUMMARY
from sessiondex.model import TEXT_VERSION
from sessiondex.query.cutting import Cut, entry_text
from sessiondex.query.entry_view import label, summary
from sessiondex.query.evidence import text_digest

if TYPE_CHECKING:
    from sessiondex.features.services import RunRange
    from sessiondex.indexer.capture import Capture
    from sessiondex.model import Entry
    from sessiondex.query.quotes import QuotePlace


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cited:
    """What a record says of one entry, but for its excerpt."""

    entry: Entry
    kind: EvidenceKind
    label: str
    summary: str
    sha256: str
    quotes: tuple[QuotePlace, ...]


def staging_record(
    capture: Capture,
    candidate: Candidate,
    *,
    id: str,
    extract_run_id: str,
    run_range: RunRange,
    similar: Sequence[str] = (),
) -> StagingRecord:
    """The record of a candidate; excerpts, then summaries shrink until it keeps its bound."""
    cited = [_cited(capture, entry, candidate) for entry in candidate.entries]
    segment = capture.segment_id or capture.session
    extensions: dict[str, Any] = {
        "authority": authority(capture, candidate.entries),
        "capture": capture.token,
    } | ({"similar": list(similar)} if similar else {})

    def record(excerpt_bytes: int, summary_characters: int) -> StagingRecord:
        evidence: list[StagedEvidence] = []
        refs: list[SourceRef] = []
        noted: dict[str, Any] = {}
        for each in cited:
            name, records = str(each.entry.ref), [each.entry.ref.record] * 2
            cut = _excerpt(capture, each, excerpt_bytes)
            shown = each.summary[:summary_characters]
            evidence.append(
                StagedEvidence(
                    id=name, kind=each.kind, entry_range=records, excerpt=cut.text, summary=shown
                )
            )
            refs.append(
                SourceRef(
                    session_id=capture.session, segment_id=segment, entry_range=records,
                    evidence_id=name, evidence_kind=each.kind, label=each.label, summary=shown,
                )
            )  # fmt: skip
            noted[name] = {
                "sha256": each.sha256,
                "text_version": TEXT_VERSION,
                "excerpt_range": [cut.start, cut.end],
            } | ({"quotes": [list(place) for place in each.quotes]} if each.quotes else {})
        return StagingRecord(
            id=id, extract_run_id=extract_run_id,
            source=RunSource(segment_id=segment, range=[run_range.first, run_range.last]),
            kind=candidate.kind, claim=candidate.claim, why_useful=candidate.why_useful,
            staleness=candidate.staleness, evidence=evidence, source_refs=refs,
            extensions=extensions | {"evidence": noted},
        )  # fmt: skip

    excerpt = _largest(EXCERPT_BYTES.default, lambda size: _fits(record(size, SUMMARY.maximum)))
    length = SUMMARY.maximum
    if not excerpt:
        length = _largest(length, lambda characters: _fits(record(0, characters)))
    return record(excerpt, length)


def _cited(capture: Capture, entry: Entry, candidate: Candidate) -> _Cited:
    kinds: dict[str | None, EvidenceKind] = {"input": "tool_call", "output": "tool_result"}
    return _Cited(
        entry=entry,
        kind=kinds.get(entry.tool_part, "message"),
        label=label(capture, entry),
        summary=summary(capture, entry),
        sha256=text_digest(capture, entry),
        quotes=candidate.quotes.get(entry.ref, ()),
    )


def _excerpt(capture: Capture, cited: _Cited, max_bytes: int) -> Cut:
    """What stands around the first quote, else the beginning; masked."""
    if not cited.quotes:
        return entry_text(capture, cited.entry, 0, max_bytes).fit(0, max_bytes)
    start, end = cited.quotes[0]
    end = min(end, start + max_bytes)
    window = entry_text(capture, cited.entry, max(start - max_bytes, 0), end + max_bytes)
    return window.around(start, end, max_bytes)


def _fits(record: StagingRecord) -> bool:
    return len(record.to_bytes()) <= STAGING_BYTES.maximum


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits; 0 where none does."""
    if fits(most):
        return most
    low, high = 0, most - 1
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
