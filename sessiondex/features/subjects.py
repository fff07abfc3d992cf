"""Subject references: how a worker whose session may be observed is named.

A reference is opaque and bounded, and grants nothing by itself: what it leads to is decided by
the provider that is asked, each time.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sessiondex.errors import InvalidArgument
from sessiondex.limits import SUBJECT_PART

LOCAL_RUNTIME: Final = "local:"
"""Prefix of the runtime ids of local agent sessions, `local:<agent>`."""


def _checked_part(part: str) -> str:
    """A part of a reference, bounded in bytes.

    Control characters are refused, so that a reference stays short in JSON too.
    """
    if not part.strip():
        raise ValueError("must not be blank")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in part):
        raise ValueError("must not hold control characters or lone surrogates")
    size = len(part.encode())
    if size > SUBJECT_PART.maximum:
        raise ValueError(f"has {size} bytes; expected at most {SUBJECT_PART.maximum}")
    return part


Part = Annotated[
    str,
    AfterValidator(_checked_part),
    Field(description=f"Opaque; at most {SUBJECT_PART.maximum} bytes. Use it exactly as listed."),
]


class _Reference(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RuntimeWorker(_Reference):
    """A worker of a runtime: a peer in this process, a local agent session, or one elsewhere."""

    kind: Literal["runtime_worker"]
    runtime_id: Part
    worker_id: Part


class SubWorker(_Reference):
    """A child of the observing worker."""

    kind: Literal["sub_worker"]
    name: Part


Subject = Annotated[RuntimeWorker | SubWorker, Field(discriminator="kind")]
"""Any subject reference, as a field of a model."""

_ANY: TypeAdapter[RuntimeWorker | SubWorker] = TypeAdapter(Subject)


def runtime_worker(runtime_id: str, worker_id: str) -> RuntimeWorker:
    """The reference of a worker of a runtime.

    Raises:
        InvalidArgument: a part is blank, too long, or holds control characters.
    """
    return parse_runtime_worker(
        {"kind": "runtime_worker", "runtime_id": runtime_id, "worker_id": worker_id}
    )


def sub_worker(name: str) -> SubWorker:
    """The reference of a child.

    Raises:
        InvalidArgument: the name is blank, too long, or holds control characters.
    """
    found = parse_subject({"kind": "sub_worker", "name": name})
    assert isinstance(found, SubWorker)
    return found


def parse_subject(value: Mapping[str, Any] | Subject) -> Subject:
    """A reference from parsed JSON.

    Raises:
        InvalidArgument: it is of no known form, or has an unknown field, which is named.
    """
    try:
        return _ANY.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # The place begins with the tag of the union, which is no field.
        place = [str(part) for part in first["loc"] if part not in ("runtime_worker", "sub_worker")]
        where = ".".join(place) or "subject"
        raise InvalidArgument(
            f"malformed subject: {where}: {first['msg']}",
            hint='expected {"kind":"runtime_worker","runtime_id":"…","worker_id":"…"}'
            ' or {"kind":"sub_worker","name":"…"}',
        ) from None


def parse_runtime_worker(value: Mapping[str, Any] | RuntimeWorker) -> RuntimeWorker:
    """A reference that must be of a worker of a runtime.

    Raises:
        InvalidArgument: as `parse_subject`, and for a child.
    """
    found = parse_subject(value)
    if not isinstance(found, RuntimeWorker):
        raise InvalidArgument(
            "malformed subject: only a runtime_worker can be named here",
            hint='expected {"kind":"runtime_worker","runtime_id":"…","worker_id":"…"}',
        )
    return found


def subject_key(subject: Subject) -> str:
    """One text for each subject, by which it is stored and compared."""
    return subject.model_dump_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSubject:
    """A subject as a provider lists it."""

    subject: Subject
    display_name: str
    relation: str
    """What it is to the observer: child, peer, local, workspace."""
    status: str
    last_seen: int
    """Epoch milliseconds of its last sign of life; lists are sorted by it, newest first."""
