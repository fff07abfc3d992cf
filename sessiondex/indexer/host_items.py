"""Captures in memory: of a host's own list of items, and of a file that is in no library.

Both fill an in-memory library through the same writer as any other.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sessiondex.errors import InvalidArgument, NotFound
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.catalog_rows import SourceRow
from sessiondex.indexer.library import Library
from sessiondex.indexer.sources.yoi import history_item as yoi_item
from sessiondex.indexer.writing import LibraryWriter
from sessiondex.model import Item, Record, SessionHeader, clean_text, compact_json

_ITEM_KINDS = frozenset(
    ("user", "assistant", "system", "reasoning", "tool_call", "tool_result", "prompt")
)
_ITEM_FIELDS = frozenset(Item.__slots__)
HEAP_BYTES = 16 * 1024 * 1024


def capture_of_items(
    items: Iterable[Item | Record | Mapping[str, Any]],
    *,
    session_id: str,
    agent: str,
    segment_id: str,
    project: str,
) -> Capture:
    """A capture of a host's list; see `Capture.from_items`."""
    library = Library.in_memory()
    header = SessionHeader(session_id, agent, "items", project=project, segment_id=segment_id)
    source = SourceRow(0, "", "", "items", 1)
    with library.writing() as epoch:
        writer = LibraryWriter(epoch, heap_bytes=HEAP_BYTES, now_ms=lambda: int(time.time() * 1000))
        sink = writer.new_session(
            header, source, parser_version=1, selector="", session_id=session_id
        )
        seen_user = False
        for number, value in enumerate(items):
            record = _record(number, value)
            for item in record.items:
                # Contract 2: what stands before the first user message is the prompt.
                seen_user = seen_user or item.kind == "user"
                if item.kind == "system" and not seen_user and not item.sub_kind:
                    item.kind, item.text = "prompt", ""
            writer.add(sink, record, sink.assembler.assemble(record))
        writer.take_header(sink, header)
        writer.commit([])
        writer.close()
    return library.capture(session_id, live=False)


def _record(number: int, value: Item | Record | Mapping[str, Any]) -> Record:
    if isinstance(value, Record):
        value.number = number
        return value
    item = value if isinstance(value, Item) else _item(number, value)
    digest = hashlib.sha256(
        compact_json([item.kind, item.text, item.call_id, item.name]).encode()
    ).digest()[:8]
    return Record(
        number, 0, 0, 0, digest, items=[item], blocks=item.block + 1, pointer=f"/{number}"
    )


def _item(number: int, given: object) -> Item:
    if not isinstance(given, Mapping):
        raise InvalidArgument(
            f"item {number} is a {type(given).__name__}",
            hint="pass Item objects or mappings with 'kind' or 'type'",
        )
    value: dict[str, Any] = dict(given)
    kind = value.get("kind")
    if kind in _ITEM_KINDS and not isinstance(value.get("content"), list):
        unknown = set(value) - _ITEM_FIELDS - {"kind"}
        if unknown:
            if kind != "tool_result" and kind != "reasoning" and kind != "tool_call":
                raise InvalidArgument(
                    f"item {number} has unknown fields: {', '.join(sorted(unknown))}",
                    hint=f"known are {', '.join(sorted(_ITEM_FIELDS))}",
                )
        else:
            fields: dict[str, Any] = {"block": 0, **value}
            fields["text"] = clean_text(str(fields.get("text", "")))
            if kind in ("reasoning", "prompt"):
                fields["text"] = ""
            return Item(**fields)
    found = yoi_item(value)
    if found is None:
        raise InvalidArgument(
            f"item {number} is of no known kind: {kind or value.get('type')!r}",
            hint="pass Item objects or mappings with 'kind' or 'type'",
        )
    return found


def library_of_path(path: Path, *, root: Path | None = None) -> Library:
    """An in-memory library of the sessions of one file."""
    from sessiondex.indexer.refresh import RefreshOptions, index_library

    library = Library.in_memory()
    report = index_library(library, [path], options=RefreshOptions(heap_bytes=HEAP_BYTES))
    if report.failures:
        raise NotFound(
            f"{path} cannot be read: {report.failures[0]['reason']}", hint="check the file"
        )
    if not report.seen or report.skipped:
        raise NotFound(
            f"{path} holds no session of a known format", hint="see 'sessiondex formats'"
        )
    return library


def capture_of_path(path: Path, *, session: str = "") -> Capture:
    """A capture of a file that is in no library; see `Capture.from_path`."""
    if not path.exists():
        raise NotFound(f"no file {path}", hint="name a session file or a session id")
    snapshot = library_of_path(path).snapshot()
    ids = [row.session for row in snapshot.rows(newest_first=False)]
    if session:
        return snapshot.capture(session)
    if len(ids) > 1:
        raise InvalidArgument(
            f"{path} holds {len(ids)} sessions: {', '.join(ids[:20])}",
            hint="name one of them by its id",
        )
    if not ids:
        raise NotFound(f"{path} holds no committed entry yet", hint="try again when it has grown")
    return snapshot.capture(ids[0])
