"""Verifying: whether what was cited is still what the library and the source hold.

Takes evidence as `evidence` gave it and staging records, many of them mixed. First the stored
entry is looked at, then the source, read anew through its format.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from sessiondex.errors import Failed, InvalidArgument, NotFound
from sessiondex.indexer.sources import format_named
from sessiondex.indexer.sources.base import SessionStub, SourceFile
from sessiondex.limits import STAGING_BYTES
from sessiondex.model import TEXT_VERSION, EntryRef
from sessiondex.query.evidence import text_digest

if TYPE_CHECKING:
    from pathlib import Path

    from sessiondex.indexer.capture import Capture
    from sessiondex.model import Entry

Status = Literal["ok", "missing", "changed"]
SourceStatus = Literal["present", "gone", "changed"]

OpenCapture = Callable[[str], "Capture"]
"""Gives the capture of a session id; raises NotFound where there is none."""

FindSource = Callable[["Capture"], "Path | None"]
"""Finds the source of a capture that is no longer where it was, by its digest."""

BATCH: Final = 500
"""Citations that are checked together, so that each source is read once for all of them."""

_PLACEHOLDER = re.compile(r"\[REDACTED:[a-z_]+\]")
_STAGED_KINDS: Final = {
    "message": frozenset({("user", None), ("assistant", None), ("system", None)}),
    "tool_call": frozenset({("tool", "input")}),
    "tool_result": frozenset({("tool", "output")}),
}
"""The kinds and tool parts of entries that a kind of staged evidence may cite."""


@dataclass(slots=True)
class _Citation:
    """One entry that an evidence or a staging record cites, and what was found of it."""

    session: str
    ref: EntryRef
    excerpt: str = ""
    excerpt_range: tuple[int, int] | None = None
    sha256: str = ""
    """'' where nothing was noted, or where another text version made it."""
    kinds: frozenset[tuple[str, str | None]] = frozenset()
    """Kind and tool part, one of these; empty where none was noted."""
    status: Status = "ok"
    source: SourceStatus = "gone"
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        found = {
            "session": self.session,
            "entry_ref": str(self.ref),
            "status": self.status,
            "source": self.source,
        }
        return found | ({"reason": self.reason} if self.reason else {})


@dataclass(slots=True)
class _Cited:
    """One line of what is to be verified."""

    citations: list[_Citation] = field(default_factory=list)
    staging_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        found = [citation.to_json() for citation in self.citations]
        if self.staging_id is None:
            return found[0]
        worst = max(self.citations, key=lambda citation: _STATUSES.index(citation.status))
        source = max(self.citations, key=lambda citation: _SOURCES.index(citation.source))
        return {
            "id": self.staging_id,
            "status": worst.status,
            "source": source.source,
            "entries": found,
        }


_STATUSES: Final[tuple[Status, ...]] = ("ok", "changed", "missing")
_SOURCES: Final[tuple[SourceStatus, ...]] = ("present", "gone", "changed")


def parse_lines(lines: Iterable[str | bytes]) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file of evidence or staging records, or of one that is indented.

    Raises:
        InvalidArgument: a line is no JSON object; names it.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    is_first = True
    for number, line in numbered:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            value = _indented(line, (rest for _, rest in numbered)) if is_first else None
            if value is None:
                raise InvalidArgument(f"line {number} is no JSON ({error})") from error
        if not isinstance(value, dict):
            raise InvalidArgument(f"line {number} is no JSON object")
        is_first = False
        yield value


def _indented(first: str | bytes, rest: Iterable[str | bytes]) -> Any:
    """The one value that stands on several lines; None if they hold none."""
    held = bytearray()
    for line in chain([first], rest):
        held += line if isinstance(line, bytes) else line.encode("utf-8", "replace")
        if len(held) > 4 * STAGING_BYTES.maximum:
            return None
    try:
        return orjson.loads(held)
    except orjson.JSONDecodeError:
        return None


def verify(
    cited: Iterable[Mapping[str, Any]],
    *,
    open_capture: OpenCapture,
    find_source: FindSource | None = None,
) -> Iterator[dict[str, Any]]:
    """For each evidence or staging record, in order: `{status, source, …}`.

    `status` is of the stored entry: `ok`, `missing`, or `changed` when its text, kind or excerpt
    is not what was cited. `source` is `present` when the source still says the same, `gone` or
    `changed`. Constant memory for any number of them.

    Raises:
        InvalidArgument: something is neither evidence nor a staging record of version 2.
    """
    remaining = iter(cited)
    while batch := [_parse(value) for value in islice(remaining, BATCH)]:
        by_session: dict[str, list[_Citation]] = {}
        for one in batch:
            for citation in one.citations:
                by_session.setdefault(citation.session, []).append(citation)
        for session, citations in by_session.items():
            _check_session(session, citations, open_capture, find_source)
        yield from (one.to_json() for one in batch)


# ---------------------------------------------------------------- what was cited


def _parse(value: Mapping[str, Any]) -> _Cited:
    try:
        if "schema_version" in value:
            return _staging(value)
        return _Cited([_evidence(value)])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"neither evidence nor a staging record ({type(error).__name__}: {error})",
            hint="pass what 'evidence' replied, or a staging record, unchanged",
        ) from error


def _evidence(value: Mapping[str, Any]) -> _Citation:
    start, end = value["excerpt_range"]
    return _Citation(
        session=_text(value["session"]),
        ref=EntryRef.parse(value["entry_ref"]),
        excerpt=_text(value["excerpt"]),
        excerpt_range=(int(start), int(end)),
        sha256=_text(value["sha256"]) if value["text_version"] == TEXT_VERSION else "",
        kinds=frozenset({(_text(value["kind"]), value.get("tool_part"))}),
    )


def _staging(value: Mapping[str, Any]) -> _Cited:
    """The citations of a staging record; digests stand in its `extensions`, by evidence id."""
    if value["schema_version"] != 2:
        raise ValueError(f"schema_version {value['schema_version']} is not 2")
    excerpts = {each["id"]: each.get("excerpt", "") for each in value["evidence"]}
    noted = (value.get("extensions") or {}).get("evidence") or {}
    citations: list[_Citation] = []
    for each in value["source_refs"]:
        name = _text(each["evidence_id"])
        extra = noted.get(name) or {}
        is_same_text = extra.get("text_version") == TEXT_VERSION
        span = extra.get("excerpt_range")
        citations.append(
            _Citation(
                session=_text(each["session_id"]),
                ref=EntryRef.parse(name),
                excerpt=_text(excerpts.get(name, "")),
                excerpt_range=(int(span[0]), int(span[1])) if span and is_same_text else None,
                sha256=_text(extra["sha256"]) if is_same_text and "sha256" in extra else "",
                kinds=_STAGED_KINDS[each["evidence_kind"]],
            )
        )
    if not citations:
        raise ValueError("it cites nothing")
    return _Cited(citations, staging_id=_text(value["id"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


# ---------------------------------------------------------------- the stored entry


def _check_session(
    session: str,
    citations: Sequence[_Citation],
    open_capture: OpenCapture,
    find_source: FindSource | None,
) -> None:
    try:
        capture = open_capture(session)
    except NotFound:
        for citation in citations:
            citation.status, citation.reason = "missing", "the session is not in the library"
        return
    entries: dict[EntryRef, Entry] = {}
    for citation in citations:
        try:
            entry = capture.entry(capture.ordinal(citation.ref))
        except NotFound as error:
            citation.status, citation.reason = "missing", error.message
            continue
        entries[entry.ref] = entry
        citation.reason = _difference(capture, entry, citation)
        if citation.reason:
            citation.status = "changed"
    _check_source(capture, citations, entries, find_source)


def _difference(capture: Capture, entry: Entry, citation: _Citation) -> str:
    """What of an entry is not as it was cited; '' if nothing."""
    if citation.kinds and (entry.kind, entry.tool_part) not in citation.kinds:
        return "it is of another kind"
    if citation.sha256 and citation.sha256 != text_digest(capture, entry):
        return "its text has another digest"
    if citation.excerpt_range is not None and citation.sha256:
        start, end = citation.excerpt_range
        if not 0 <= start <= end <= entry.total_bytes:
            return "the excerpt lies outside its text"
        if not _shows(citation.excerpt, capture.text(entry, start, end), is_whole=True):
            return "the excerpt is not what stands there"
    elif not _shows(citation.excerpt, capture.text(entry), is_whole=False):
        return "the excerpt does not stand in its text"
    return ""


def _shows(excerpt: str, text: bytes, *, is_whole: bool) -> bool:
    """Whether an excerpt shows a text, or a part of it; placeholders stand for anything."""
    parts = [part.encode() for part in _PLACEHOLDER.split(excerpt)]
    at = 0
    if is_whole:
        if len(parts) == 1:
            return text == parts[0]
        if not text.startswith(parts[0]) or not text.endswith(parts[-1]):
            return False
        at, text, parts = len(parts[0]), text[: len(text) - len(parts[-1])], parts[1:-1]
    for part in parts:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return at <= len(text)


# ---------------------------------------------------------------- the source


def _check_source(
    capture: Capture,
    citations: Sequence[_Citation],
    entries: Mapping[EntryRef, Entry],
    find_source: FindSource | None,
) -> None:
    place = capture.source_file()
    path = place.absolute if place.exists else None
    if path is None and place.path and find_source is not None:
        path = find_source(capture)
    if path is None:
        return
    from zstandard import ZstdError

    try:
        said = _read_source(capture, path, {citation.ref for citation in citations})
    except FileNotFoundError:
        return
    except (Failed, OSError, ZstdError):
        said = {}
    for citation in citations:
        entry = entries.get(citation.ref)
        is_same = entry is not None and said.get(entry.ref) == text_digest(capture, entry)
        citation.source = "present" if is_same else "changed"


def _read_source(capture: Capture, path: Path, refs: set[EntryRef]) -> dict[EntryRef, str]:
    """Digests of the texts that a source file gives for refs, read anew through its format.

    A record whose bytes are not those that were indexed gives none.
    """
    place = capture.source_file()
    parser = format_named(place.format).parser(
        SourceFile(path), SessionStub(capture.session, place.selector)
    )
    wanted = {ref.record for ref in refs}
    last = max(wanted)
    found: dict[EntryRef, str] = {}
    for record in parser.records():
        if record.number > last:
            break
        if record.number not in wanted or record.number >= capture.record_count:
            continue
        if record.digest != capture.record(record.number).digest:
            continue
        for item in record.items:
            ref = EntryRef(record.number, item.block)
            if ref in refs:
                found[ref] = hashlib.sha256(item.text.encode()).hexdigest()
    return found
