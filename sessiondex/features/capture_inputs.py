"""Arguments of the tools that look at one capture: overview, search, reading.

Shared by every feature that serves a capture; a feature adds the argument that names its session
or subject. Maxima stand in the descriptions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from sessiondex.features.tool import LIST_ITEMS, Text, Texts, ToolInput, Whole
from sessiondex.limits import PAGE, QUERY_BYTES, READ_BYTES, READ_ENTRIES, READ_TOKENS

KindName = Literal["user", "assistant", "agent", "system", "tool"]
FlagName = Literal[
    "synthetic", "sidechain", "compaction_summary", "copied", "superseded", "provisional",
    "own_output", "oversized",
]  # fmt: skip
PartName = Literal["input", "output", "both"]


def _few(value: list[Any]) -> list[Any]:
    return list(dict.fromkeys(value))


Kinds = KindName | Annotated[list[KindName], AfterValidator(_few)]
Flags = FlagName | Annotated[list[FlagName], AfterValidator(_few)]

_FROM = "First entry ref of a range, inclusive, like E00000012."
_THROUGH = "Last entry ref of a range, inclusive; without a block number all blocks are in it."
_CAPTURE = "The 'capture' of the reply that the refs come from; optional, makes stale refs known."
_CURSOR = "The 'next_cursor' of the last page, unchanged, with the same other arguments."
_KIND = "Only entries of this kind, or of these kinds ('agent' is 'assistant')."
_PART = "Of tool entries only the calls (input), the results (output), or both."
_LIMIT = f"at most {PAGE.maximum}; default {PAGE.default}."
TIME = "An age like 2d or 3h, 'yesterday', a date, or a time like 2026-03-09T14:30:00Z (UTC)."


class OverviewInput(ToolInput):
    """What part of the table of contents to show, and how densely."""

    stride: Whole | None = Field(
        None, description="Show every n-th anchor, from 1; default 8, and 1 between near anchors."
    )
    from_ref: Text | None = Field(None, alias="from", description=_FROM)
    through_ref: Text | None = Field(None, alias="through", description=_THROUGH)
    limit: Whole | None = Field(None, description=f"Anchors in a page, {_LIMIT}")
    cursor: Text | None = Field(None, description=_CURSOR)
    capture: Text | None = Field(None, description=_CAPTURE)


class SearchInput(ToolInput):
    """What to search for, or without a query to list, and where."""

    query: Text | None = Field(
        None,
        description="What to search for; without it the entries are listed, one line each."
        f" At most {QUERY_BYTES.maximum} bytes.",
    )
    match: Literal["literal", "ranked", "regex"] | None = Field(
        None,
        description="literal: the whole query as it is, without case (default inside one session)."
        ' ranked: words, "phrases", prefix*, -exclusion, OR, field:value. regex: RE2.',
    )
    kind: Kinds | None = Field(None, description=_KIND)
    tool_part: PartName | None = Field(None, description=_PART)
    tool_name: Text | Texts | None = Field(
        None, description="Only calls and results of this tool, or of these tools."
    )
    call_id: Text | None = Field(None, description="Only the call with this id and its result.")
    error: bool | None = Field(
        None, description="true: only results that failed; false: only those that did not."
    )
    flags: Flags | None = Field(None, description="Only entries that have all of these flags.")
    entry_refs: Text | Texts | None = Field(
        None, description=f"Only these entries; at most {LIST_ITEMS}."
    )
    from_ref: Text | None = Field(None, alias="from", description=_FROM)
    through_ref: Text | None = Field(None, alias="through", description=_THROUGH)
    since: Text | None = Field(None, description=f"Not before. {TIME}")
    until: Text | None = Field(None, description=f"Not after. {TIME}")
    order: Literal["source", "relevance", "newest"] | None = Field(
        None, description="source (default inside one session), relevance, or newest."
    )
    limit: Whole | None = Field(None, description=f"Hits in a page, {_LIMIT}")
    cursor: Text | None = Field(None, description=_CURSOR)
    capture: Text | None = Field(None, description=_CAPTURE)


class ReadInput(ToolInput):
    """What to read, and how much of it."""

    entry_ref: Text | None = Field(
        None,
        description="The entry to read. Give exactly one of entry_ref, entry_refs, or from with"
        " through.",
    )
    entry_refs: Texts | None = Field(
        None, description=f"The entries to read; at most {LIST_ITEMS}."
    )
    from_ref: Text | None = Field(None, alias="from", description=_FROM)
    through_ref: Text | None = Field(None, alias="through", description=_THROUGH)
    kind: Kinds | None = Field(None, description=f"{_KIND} Binds ranges and neighbours.")
    include_tools: bool = Field(True, description="false leaves tool entries out of ranges.")
    tool_part: PartName | None = Field(None, description=_PART)
    mode: Literal["full", "compact"] = Field(
        "full",
        description="compact leaves out arguments and results of tools and says their sizes.",
    )
    max_items: Whole | None = Field(
        None,
        description=f"Entries, at most {READ_ENTRIES.maximum}; default {READ_ENTRIES.default}.",
    )
    max_bytes: Whole | None = Field(
        None,
        description=f"Bytes of the whole reply, at most {READ_BYTES.maximum};"
        f" default {READ_BYTES.default}.",
    )
    max_tokens: Whole | None = Field(
        None,
        description=f"Tokens of the whole reply, taken as 4 bytes each, at most"
        f" {READ_TOKENS.maximum}; the smaller budget wins.",
    )
    from_byte: Whole = Field(
        0, description="Go on inside one long entry: the 'next_byte' of an earlier reply."
    )
    context: Whole = Field(0, description="Also this many neighbours on both sides.")
    capture: Text | None = Field(None, description=_CAPTURE)
