"""Evidence: where entries stand in their source, and bounded projections of them.

People get files and offsets; a model gets `{session_id, segment_id, entry_range}` only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from sessiondex.errors import InvalidArgument, PastEnd
from sessiondex.indexer.sources.base import SourceFile
from sessiondex.limits import EXCERPT_BYTES, REPLY_BYTES
from sessiondex.model import TEXT_VERSION, EntryRef
from sessiondex.query.cutting import BLOCK_BYTES, Cut, entry_text
from sessiondex.query.entry_view import entry_view, summary
from sessiondex.query.quotes import find_quote, nearest_text
from sessiondex.query.reply import Note, Reply, clamp
from sessiondex.query.selection import as_ref, range_bounds

if TYPE_CHECKING:
    from pathlib import Path

    from sessiondex.indexer.capture import Capture
    from sessiondex.model import Entry

RefOrRange = EntryRef | str | tuple[EntryRef | str, EntryRef | str]
"""One entry, or a range from one through another."""

SOURCE_GONE_NOTE: Final = Note(
    "source_gone", "the source file is no longer there; the library still holds the entry"
)


def resolve(
    capture: Capture,
    refs: str | EntryRef | Iterable[RefOrRange],
    *,
    capture_token: str | None = None,
    for_model: bool = False,
) -> dict[str, Any]:
    """Where an entry, or several, stand in their source, as many as a reply holds.

    What did not fit is counted in `omitted_entries`, and `next_ref` is the first of it.

    Raises:
        NotFound: a ref names no entry (`hidden_entry`, `past_end` where that is why).
        Stale: a ref belongs to a generation that was rewritten since.
    """
    if isinstance(refs, str | EntryRef):
        refs = [refs]
    ranges = [_bounds(capture, ref, capture_token) for ref in refs]
    total = sum(stop - first for first, stop in ranges)
    reply = Reply(REPLY_BYTES.maximum)
    reply.put("session", capture.session)
    reply.put("capture", capture.token)
    reply.put("entries", [])
    place = None if for_model else SourceAnchors(capture)
    if place is not None and place.is_gone:
        reply.note(SOURCE_GONE_NOTE)
    shown = 0
    following: EntryRef | None = None
    for ordinal in (at for first, stop in ranges for at in range(first, stop)):
        entry = capture.entry(ordinal)
        item = {
            "entry_ref": str(entry.ref),
            "entry_range": [entry.ref.record, entry.ref.record],
            "source": model_anchor(capture, entry) if place is None else place.anchor(entry),
        }
        if not reply.add("entries", item):
            following = entry.ref
            break
        shown += 1
    reply.put("truncated", shown < total)
    reply.put("omitted_entries", total - shown)
    reply.put("next_ref", None if following is None else str(following))
    return reply.build()


def evidence(
    capture: Capture,
    ref: EntryRef | str,
    *,
    quote: str | None = None,
    hit: tuple[int, int] | None = None,
    max_bytes: int | None = None,
    capture_token: str | None = None,
    for_model: bool = False,
    reveal: bool = False,
) -> dict[str, Any]:
    """A bounded projection of one entry: its content, its digest and where it stands.

    The excerpt is the beginning of the text, or what stands around a quote or around the bytes
    of a search hit. `excerpt_range` and `sha256` are of the original text, also where the
    excerpt is masked.

    Raises:
        InvalidArgument: the quote does not stand in the entry; names what comes nearest.
        NotFound: the ref names no entry (`hidden_entry`, `past_end` where that is why), or one
            that is provisional (`past_end`).
        Stale: the ref belongs to a generation that was rewritten since.
    """
    ref = as_ref(ref)
    capture.admit(capture_token, [ref])
    entry = capture.entry(capture.ordinal(ref))
    if entry.ordinal >= capture.committed_count:
        raise PastEnd(
            f"entry {entry.ref} is not committed yet and cannot be cited",
            hint="read it, and cite it when its line has ended or its file has been quiet",
        )
    size = clamp(EXCERPT_BYTES, max_bytes, name="max_bytes")
    excerpt = _excerpt(capture, entry, quote, hit, size.value, reveal)
    view = entry_view(capture, entry, reveal=reveal)
    place = None if for_model else SourceAnchors(capture)
    reply = Reply(REPLY_BYTES.maximum)
    reply.note(size.note)
    reply.put("session", capture.session)
    reply.put("capture", capture.token)
    for name in ("entry_ref", "entry_range", "kind", "tool_part", "tool_name", "label"):
        reply.put(name, view[name])
    reply.put("summary", summary(capture, entry, reveal=reveal))
    reply.put("excerpt", excerpt.text)
    reply.put("excerpt_range", [excerpt.start, excerpt.end])
    if excerpt.redacted:
        reply.put("redacted", excerpt.redacted)
    reply.put("sha256", text_digest(capture, entry))
    reply.put("text_version", TEXT_VERSION)
    reply.put("source", model_anchor(capture, entry) if place is None else place.anchor(entry))
    if place is not None and place.is_gone:
        reply.note(SOURCE_GONE_NOTE)
    return reply.build()


def text_digest(capture: Capture, entry: Entry) -> str:
    """SHA-256 of the whole text of an entry, in hexadecimal; in constant memory."""
    digest = hashlib.sha256()
    total = entry.total_bytes
    for start in range(0, total, BLOCK_BYTES * 16):
        digest.update(capture.text(entry, start, min(start + BLOCK_BYTES * 16, total)))
    return digest.hexdigest()


def model_anchor(capture: Capture, entry: Entry) -> dict[str, Any]:
    """The source of an entry as a model may know it."""
    return {
        "session_id": capture.session,
        "segment_id": capture.segment_id or capture.session,
        "entry_range": [entry.ref.record, entry.ref.record],
    }


def source_encoding(path: Path) -> str | None:
    """How the bytes of a source are written: zstd, utf-8, utf-16-le or utf-16-be; None if gone."""
    source = SourceFile(path)
    try:
        if source.is_compressed:
            return "zstd"
        with source.open() as file:
            mark = file.read(2)
    except OSError:
        return None
    return {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(mark, "utf-8")


class SourceAnchors:
    """Source anchors of the entries of one capture."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        place = capture.source_file()
        self.is_gone = bool(place.path) and not place.exists
        self._file = {"root": place.root, "path": place.path, "digest": place.digest}
        self._encoding = source_encoding(place.absolute) if place.exists else None

    def anchor(self, entry: Entry) -> dict[str, Any]:
        """Where an entry stands: bytes of the decompressed stream, or a pointer in a document."""
        record = self._capture.record(entry.ref.record)
        # Documents are rewritten as a whole: a byte offset would name nothing.
        is_line = record.line > 0
        return {
            "file": self._file,
            "record": entry.ref.record,
            "block": entry.ref.block,
            "line": record.line if is_line else None,
            "byte_offset": record.byte_offset if is_line else None,
            "byte_length": record.byte_length if is_line else None,
            "pointer": record.pointer + entry.pointer,
            "encoding": self._encoding,
        }


def _bounds(capture: Capture, ref: RefOrRange, token: str | None) -> tuple[int, int]:
    if isinstance(ref, tuple) and not isinstance(ref, EntryRef):
        begin, end = as_ref(ref[0]), as_ref(ref[1])
        capture.admit(token, (begin, end))
        return range_bounds(capture, begin, end)
    one = as_ref(ref)
    capture.admit(token, [one])
    ordinal = capture.ordinal(one)
    return ordinal, ordinal + 1


def _excerpt(
    capture: Capture,
    entry: Entry,
    quote: str | None,
    hit: tuple[int, int] | None,
    max_bytes: int,
    reveal: bool,
) -> Cut:
    if quote is not None and hit is not None:
        raise InvalidArgument("a quote and a hit were given", hint="give one of them")
    if quote is not None:
        data = capture.text(entry)
        hit = find_quote(data, quote)
        if hit is None:
            nearest = nearest_text(data, quote)
            raise InvalidArgument(
                f"the quote does not stand in entry {entry.ref}",
                hint=f"nearest is: {nearest}" if nearest else "none of its words do",
            )
    if hit is None:
        return entry_text(capture, entry, 0, max_bytes, reveal=reveal).fit(0, max_bytes)
    start, end = hit
    if not 0 <= start <= end <= entry.total_bytes:
        raise InvalidArgument(
            f"bytes {start} to {end} do not lie in entry {entry.ref}",
            hint=f"it has {entry.total_bytes} bytes",
        )
    # Of a long hit only the beginning fits anyway.
    end = min(end, start + max_bytes)
    window = entry_text(capture, entry, max(start - max_bytes, 0), end + max_bytes, reveal=reveal)
    return window.around(start, end, max_bytes)
