"""Replies of the tools that look at one capture, with the field names of the contract.

These models announce what a reply holds; tests check every reply against them.
"""

from __future__ import annotations

from typing import Literal

from sessiondex.features.tool import ToolOutput

Kind = Literal["user", "assistant", "system", "tool"]


class NoteOutput(ToolOutput):
    """Something to know about a reply."""

    code: Literal[
        "clamped", "parsed_as_words", "relaxed", "typo", "ranking_changed", "unindexed_tail",
        "source_gone", "partial", "provisional",
    ]  # fmt: skip
    message: str


class CountsOutput(ToolOutput):
    """Numbers of entries by kind."""

    user: int
    assistant: int
    system: int
    tool: int


class AnchorOutput(ToolOutput):
    """A real user or assistant message, and what stands between it and the next anchor."""

    entry_ref: str
    entry_range: list[int]
    kind: Literal["user", "assistant"]
    label: str
    turn: int
    timestamp: str | None
    text: str
    total_bytes: int
    intervening_entries: int
    intervening: CountsOutput
    redacted: int | None = None


class TaskContextOutput(ToolOutput):
    """The last committed task list or plan of a range."""

    entry_ref: str
    entry_range: list[int]
    text: str
    total_bytes: int


class OverviewOutput(ToolOutput):
    """A page of the table of contents."""

    session: str
    capture: str
    anchors: list[AnchorOutput]
    before: int
    after: int
    stride: int
    total: int
    task_context: TaskContextOutput | None
    returned: int
    has_more: bool
    next_cursor: str | None
    stopped: Literal["bytes"] | None = None
    notes: list[NoteOutput]


class AttachmentOutput(ToolOutput):
    """What is kept of an attachment: never its body."""

    media_type: str
    size: int


class EntryOutput(ToolOutput):
    """What every hit and every entry of a reading says of itself."""

    entry_ref: str
    entry_range: list[int]
    kind: Kind
    tool_part: Literal["input", "output"] | None
    tool_name: str | None
    call_id: str | None
    error: bool | None
    timestamp: str | None
    label: str
    flags: list[str]
    sub_kind: str | None = None
    attachments: list[AttachmentOutput] | None = None
    attachments_total: int | None = None


class MatchOutput(ToolOutput):
    """Where a match stands: characters of the snippet, bytes of the entry."""

    start: int
    end: int
    byte_start: int
    byte_end: int


class SnippetOutput(ToolOutput):
    """The text around a match."""

    text: str
    matches: list[MatchOutput]
    more_matches: int


class HitOutput(EntryOutput):
    """A hit of a search, or a line of a listing, which has `text`."""

    session: str
    snippet: SnippetOutput | None = None
    text: str | None = None
    also_in: list[str] | None = None
    also_in_total: int | None = None


class StatsOutput(ToolOutput):
    """What a page cost."""

    entries_considered: int
    batches_read: int
    bytes_read: int


class SearchOutput(ToolOutput):
    """A page of hits."""

    hits: list[HitOutput]
    session: str | None = None
    returned: int
    has_more: bool
    next_cursor: str | None
    total: int | None = None
    total_at_least: int | None = None
    stopped: Literal["bytes", "work"] | None = None
    capture: str
    stats: StatsOutput
    notes: list[NoteOutput]


class LeftOutOutput(ToolOutput):
    """What a compact reading leaves out of an entry."""

    part: Literal["arguments", "result"]
    bytes: int


class ReadEntryOutput(EntryOutput):
    """An entry with as much of its text as fitted; `next_byte` is where to go on inside it."""

    context: bool | None = None
    from_byte: int | None = None
    text: str
    total_bytes: int
    returned_bytes: int
    next_byte: int | None
    redacted: int | None = None
    left_out: LeftOutOutput | None = None
    summary: str | None = None


class ReadOutput(ToolOutput):
    """Entries with their text, and what was left out of what was asked for."""

    session: str
    capture: str
    entries: list[ReadEntryOutput]
    truncated: bool
    omitted_entries: int
    next_ref: str | None
    stopped: Literal["items", "bytes", "tokens"] | None
    notes: list[NoteOutput]
