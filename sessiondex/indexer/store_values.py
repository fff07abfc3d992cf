"""What the item store keeps of entries and records, as plain values in the order of its columns.

Knows nothing of Arrow, so that a process that only prepares what another one writes stays small.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from sessiondex.model import Attachment, Entry, Record

KIND_CODES: Final[dict[str, int]] = {
    "user": 0,
    "assistant": 1,
    "system": 2,
    "input": 3,
    "output": 4,
}
"""Code of an entry, by its tool part if it has one, else by its kind."""

HEAD_BYTES: Final = 1024
HEAD_ABOVE_BYTES: Final = 2048
"""Texts above this keep a head beside their entry, so that a listing reads no long text."""


class EntryRow(NamedTuple):
    """The columns of an entry but for session and text id, which only the writer knows."""

    before_text: tuple[Any, ...]
    """From the ordinal on."""
    after_text: tuple[Any, ...]
    size: int
    """Characters of its strings."""


def entry_row(entry: Entry, head: bytes | None = None) -> EntryRow:
    """An entry, with `text_head` of its text. A derived summary is left empty."""
    attachments = attachments_json(entry.attachments) if entry.attachments else None
    error = entry.error
    record, block = entry.ref
    return EntryRow(
        (
            entry.ordinal,
            record,
            block,
            KIND_CODES[entry.tool_part or entry.kind],
            entry.tool_name,
            entry.call_id,
            -1 if error is None else int(error),
            entry.sub_kind,
            entry.flags,
            entry.timestamp,
            entry.turn,
            entry.step,
            entry.cwd,
            entry.branch,
            entry.model,
        ),
        (
            entry.total_bytes,
            head,
            entry.summary or None,
            attachments,
            entry.is_anchor,
            entry.identity,
            entry.replayed,
            entry.plan or None,
            entry.pointer or None,
        ),
        len(entry.tool_name)
        + len(entry.call_id)
        + len(entry.sub_kind)
        + len(entry.cwd)
        + len(entry.branch)
        + len(entry.model)
        + len(entry.summary)
        + len(entry.plan)
        + len(entry.pointer)
        + (len(head) if head else 0)
        + (len(attachments) if attachments else 0),
    )


def record_row(record: Record, entries: int) -> tuple[Any, ...]:
    """The columns of a record but for its session; `entries` says how many entries it has."""
    return (
        record.number,
        record.byte_offset,
        record.byte_length,
        record.line,
        record.digest,
        record.blocks,
        entries,
        record.pointer or None,
        record.corrupt or None,
        record.oversized,
    )


def attachments_json(attachments: list[Attachment]) -> str:
    """Attachments as they are kept."""
    return json.dumps([{"media_type": each.media_type, "size": each.size} for each in attachments])


def code_point_cut(data: bytes, stop: int) -> int:
    """The last code point boundary of UTF-8 text that is not behind `stop`."""
    if stop >= len(data):
        return len(data)
    for position in range(stop, max(stop - 4, 0), -1):
        if data[position] & 0xC0 != 0x80:
            return position
    return stop


def text_head(data: bytes) -> bytes | None:
    """The head to keep beside the entry of this text; None if the text is short."""
    if len(data) <= HEAD_ABOVE_BYTES:
        return None
    return data[: code_point_cut(data, HEAD_BYTES)]
