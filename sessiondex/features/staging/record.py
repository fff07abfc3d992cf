"""The staging record, `schema_version` 2: one flat JSON object, exactly as the contract has it.

Field names are shared with what reads the records elsewhere. What is ours alone stands under
`extensions`; optional fields are left out when empty.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from sessiondex.errors import InvalidArgument
from sessiondex.features.staging.ids import is_record_id
from sessiondex.limits import CANDIDATE_REFS, STAGING_BYTES
from sessiondex.masking import mask
from sessiondex.model import EntryRef

CandidateKind = Literal[
    "preference", "working_assumption", "constraint", "decision", "open_question", "lesson"
]
CANDIDATE_KINDS: Final[tuple[CandidateKind, ...]] = get_args(CandidateKind)

EvidenceKind = Literal["message", "tool_call", "tool_result"]
"""`message` is also that of system entries."""


def _record_id(text: str) -> str:
    if not is_record_id(text):
        raise ValueError("is no UUIDv7 in lower case")
    return text


def _entry_ref(text: str) -> str:
    if str(EntryRef.parse(text)) != text:
        raise ValueError("is no canonical entry ref")
    return text


def _named(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _range(value: list[int]) -> list[int]:
    if len(value) != 2 or not 0 <= value[0] <= value[1]:
        raise ValueError("is no range of record numbers")
    return value


RecordId = Annotated[str, AfterValidator(_record_id)]
Ref = Annotated[str, AfterValidator(_entry_ref)]
Name = Annotated[str, AfterValidator(_named)]
RecordRange = Annotated[list[int], AfterValidator(_range)]
"""First and last record number, inclusive, of the whole session."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RunSource(_Part):
    """What the run covered."""

    segment_id: Name
    range: RecordRange


class StagedEvidence(_Part):
    """One cited entry, projected and bounded."""

    id: Ref
    kind: EvidenceKind
    entry_range: RecordRange
    excerpt: str = ""
    summary: str = ""


class SourceRef(_Part):
    """Where a cited entry stands."""

    session_id: Name
    segment_id: Name
    entry_range: RecordRange
    evidence_id: Ref
    evidence_kind: EvidenceKind
    label: str = ""
    summary: str = ""


class StagingRecord(_Part):
    """One candidate as it is written down. Immutable."""

    schema_version: Literal[2] = 2
    id: RecordId
    extract_run_id: Name
    source: RunSource
    kind: CandidateKind
    claim: Name
    why_useful: Name
    staleness: str = ""
    evidence: list[StagedEvidence]
    source_refs: list[SourceRef]
    extensions: dict[str, Any] = {}

    @model_validator(mode="after")
    def _cites_what_it_holds(self) -> StagingRecord:
        held = [each.id for each in self.evidence]
        cited = [each.evidence_id for each in self.source_refs]
        if not held or len(held) > CANDIDATE_REFS.maximum or len(set(held)) < len(held):
            raise ValueError(f"needs 1 to {CANDIDATE_REFS.maximum} evidences, each once")
        if sorted(held) != sorted(cited):
            raise ValueError("source_refs and evidence do not name the same entries")
        return self

    def to_json(self) -> dict[str, Any]:
        """The record as JSON, without what is optional and empty."""
        return _without_empty(self.model_dump())

    def to_bytes(self) -> bytes:
        """The record as it is written down: compact JSON and a newline."""
        return orjson.dumps(self.to_json()) + b"\n"

    def is_same(self, other: StagingRecord) -> bool:
        """Whether two records say the same, however they came to be."""
        return self.to_json() == other.to_json()

    def extended(self, **extensions: Any) -> StagingRecord:
        """The record with more of our own fields."""
        return self.model_copy(update={"extensions": {**self.extensions, **extensions}})

    def masked(self) -> StagingRecord:
        """The record without values that look like credentials; itself where it has none."""
        shown = _masked(self.to_json())
        return self if shown == self.to_json() else parse_record(orjson.dumps(shown))


_OPTIONAL: Final = frozenset({"staleness", "excerpt", "summary", "label", "extensions"})


def _without_empty(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    if isinstance(value, dict):
        return {
            name: each if name == "extensions" else _without_empty(each)
            for name, each in value.items()
            if each or name not in _OPTIONAL
        }
    return value


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask(value).text
    if isinstance(value, list):
        return [_masked(each) for each in value]
    if isinstance(value, dict):
        return {name: _masked(each) for name, each in value.items()}
    return value


def parse_record(data: bytes, *, max_bytes: int = STAGING_BYTES.maximum) -> StagingRecord:
    """A staging record from its JSON.

    Raises:
        InvalidArgument: it is larger than its bound, no JSON, or not of version 2; says why.
    """
    if len(data) > max_bytes:
        raise InvalidArgument(f"the staging record is larger than {max_bytes} bytes")
    try:
        return StagingRecord.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "record"
        message = first["msg"].removeprefix("Value error, ")
        raise InvalidArgument(
            f"not a staging record of version 2: {where}: {message}",
            hint="see the staging record in the contract of sessiondex",
        ) from None
