"""The vocabulary: refs, kinds, flags, what a source yields and what an entry keeps.

No I/O and no imports of ours but the errors: everything else builds on this.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from sessiondex.errors import InvalidArgument

Kind = Literal["user", "assistant", "system", "tool"]
ToolPart = Literal["input", "output"]

KINDS: Final[tuple[Kind, ...]] = ("user", "assistant", "system", "tool")
TOOL_PARTS: Final[tuple[ToolPart, ...]] = ("input", "output")

TEXT_VERSION: Final = 1
"""Version of the rule that makes an entry's text from its item."""

# ---------------------------------------------------------------- flags

SYNTHETIC: Final = 1 << 0
SIDECHAIN: Final = 1 << 1
COMPACTION_SUMMARY: Final = 1 << 2
COPIED: Final = 1 << 3
SUPERSEDED: Final = 1 << 4
PROVISIONAL: Final = 1 << 5
OWN_OUTPUT: Final = 1 << 6
OVERSIZED: Final = 1 << 7

FLAG_BITS: Final[dict[str, int]] = {
    "synthetic": SYNTHETIC,
    "sidechain": SIDECHAIN,
    "compaction_summary": COMPACTION_SUMMARY,
    "copied": COPIED,
    "superseded": SUPERSEDED,
    "provisional": PROVISIONAL,
    "own_output": OWN_OUTPUT,
    "oversized": OVERSIZED,
}


def flag_names(bits: int) -> list[str]:
    """The names of the flags that are set, in the order of the vocabulary."""
    return [name for name, bit in FLAG_BITS.items() if bits & bit]


# ---------------------------------------------------------------- entry refs

_REF = re.compile(r"E([0-9]{1,12})(?:\.([0-9]{1,12}))?\Z")


class EntryRef(NamedTuple):
    """`SessionEntryRef`: the stable name of an entry inside its session, `E` + source position.

    Orders numerically by record, then block.
    """

    record: int
    block: int = 0

    @classmethod
    def parse(cls, text: object) -> EntryRef:
        """Parses `E12`, `E00000012`, `E00000012.1` (`.0` is the bare ref).

        Raises:
            InvalidArgument: for anything else; says what was expected.
        """
        found = _REF.match(text) if isinstance(text, str) else None
        if found is None:
            shown = text if isinstance(text, str) and len(text) <= 40 else f"{str(text)[:40]}…"
            raise InvalidArgument(
                f"malformed entry ref {shown!r}",
                hint="expected 'E' and 1 to 12 ASCII digits, then perhaps '.' and a block number,"
                " like E00000012 or E00000012.1",
            )
        return cls(int(found[1]), int(found[2] or 0))

    def __str__(self) -> str:
        return f"E{self.record:08d}.{self.block}" if self.block else f"E{self.record:08d}"


SessionEntryRef = EntryRef

# ---------------------------------------------------------------- what a source yields

ItemKind = Literal["user", "assistant", "system", "reasoning", "tool_call", "tool_result", "prompt"]


@dataclass(slots=True)
class Attachment:
    """What is kept of an attachment: never its body."""

    media_type: str
    size: int
    """Decoded bytes; 0 when the source does not say."""


@dataclass(slots=True)
class Item:
    """One thing that a record holds, as a source hands it over.

    `reasoning` and `prompt` items are hidden: a source yields them with empty text, only so that
    their block is known to exist. `text` of a tool call is ready (see `tool_input_text`).
    """

    block: int
    kind: ItemKind
    text: str = ""
    call_id: str = ""
    name: str = ""
    """Tool name of a call. A result leaves it empty where the source does not repeat it."""
    error: bool | None = None
    """Of tool results: True, False, or None where nothing says."""
    sub_kind: str = ""
    """Of system items: notification, hook, compaction_summary, interrupt, file_attachment, …"""
    flags: int = 0
    summary: str = ""
    """The source's own summary; empty where it has none."""
    attachments: list[Attachment] = field(default_factory=list)
    timestamp: int | None = None
    """Epoch milliseconds, UTC; None falls back to the record's."""
    model: str = ""
    pointer: str = ""
    """JSON pointer inside the record, like `/message/content/1`; '' is the whole record."""
    identity: str = ""
    """Names the same item in every session that replays it; '': the record's id and block do."""
    replayed: bool = False
    """The source says itself that this item was replayed from another session."""
    plan: str = ""
    """The task list or plan that this item sets, rendered as lines; '' if none."""


@dataclass(slots=True)
class Record:
    """One numbered record of a source, visible or not.

    Every committed thing yields one, so that numbers never depend on what a release understands.
    """

    number: int
    byte_offset: int
    """Start in the decompressed stream; for documents the element's index is in `pointer`."""
    byte_length: int
    line: int
    """1-based physical line on which the record starts; 0 for documents."""
    digest: bytes
    """First 8 bytes of SHA-256 over the record's bytes (line formats) or its compact JSON."""
    items: list[Item] = field(default_factory=list)
    blocks: int = 1
    """How many blocks the record has, hidden ones counted; at least 1."""
    timestamp: int | None = None
    record_id: str = ""
    """The source's own id of the record (Claude Code `uuid`); '' where it has none."""
    replayed: bool = False
    cwd: str = ""
    branch: str = ""
    model: str = ""
    flags: int = 0
    """Flags of all its items (sidechain)."""
    pointer: str = ""
    """JSON pointer of the record in its document, like `/steps/3`; '' for line formats."""
    corrupt: str = ""
    """Why the record could not be read; '' if it could."""
    oversized: bool = False
    provisional: bool = False
    """An unterminated tail that parses: takes its number, is not committed."""
    facts: list[Fact] = field(default_factory=list)
    """What this record tells about earlier ones."""
    title: str = ""
    """A session title that this record sets; the last one wins."""
    closes_turn: bool = False
    """This record ends a run of the agent (a finished turn)."""


class Fact(NamedTuple):
    """A flag of earlier records that became true when a later record was read."""

    flag: int
    first_record: int
    last_record: int


@dataclass(slots=True)
class SessionHeader:
    """What a source knows of a session as a whole; grows while it is read."""

    session_id: str
    agent: str
    """claude-code, codex, yoi, harbor, chat"""
    format: str
    """Name of the source module that reads it, like `claude_code`."""
    project: str = ""
    """Working directory of the session (the first one seen)."""
    branch: str = ""
    model: str = ""
    title: str = ""
    """Own title of the session; the catalog falls back to the first real prompt."""
    parent: str = ""
    """Session id of the parent of a sub-agent or fork."""
    segment_id: str = ""
    """Where the source has segments (Yoi); else ''."""
    sub_agent: bool = False
    run: dict[str, Any] = field(default_factory=dict)
    """Run fields of benchmark files: run, task, epoch, scores, status, error, stop_reason."""


# ---------------------------------------------------------------- what an entry keeps


@dataclass(slots=True)
class Entry:
    """A visible item, as it is searched, listed and read. Its text stays in the store.

    `ordinal` counts the visible entries of one generation of one session from 0.
    """

    ordinal: int
    ref: EntryRef
    kind: Kind
    tool_part: ToolPart | None
    tool_name: str
    call_id: str
    error: bool | None
    sub_kind: str
    flags: int
    timestamp: int | None
    turn: int
    """Number of the turn, from 1; 0 before the first real user message."""
    step: int
    """Of assistant messages: its number among those of the turn, from 1; else 0."""
    cwd: str
    branch: str
    model: str
    total_bytes: int
    """UTF-8 bytes of the whole text."""
    summary: str
    """The source's own; '' where it has none and `SessionCapture.summary` derives it."""
    attachments: list[Attachment]
    is_anchor: bool
    """A real user or assistant message: not synthetic, replayed or empty (copies: see capture)."""
    identity: int
    """64-bit digest that names the same item in every session that replays it; 0 if none."""
    replayed: bool
    plan: str
    pointer: str
    """JSON pointer inside the record."""


# ---------------------------------------------------------------- entry text


def compact_json(value: Any) -> str:
    """Compact JSON of any parsed value; keeps order, takes lone surrogates and NaN.

    Raises:
        RecursionError: the value is nested more deeply than it can be followed.
    """
    import orjson

    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):
        import json

        return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def clean_text(text: str) -> str:
    """Text as it can be stored: lone surrogates become U+FFFD; everything else is verbatim."""
    try:
        text.encode()
    except UnicodeEncodeError:
        # A surrogate pair split over two escapes is one character again.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def tool_input_text(name: str, arguments: Any) -> str:
    """Text of a tool call: the name, a newline, then one `key: value` a line, or the raw string."""
    if isinstance(arguments, dict):
        lines = [
            f"{key}: {value if isinstance(value, str) else compact_json(value)}"
            for key, value in arguments.items()
        ]
        return clean_text("\n".join([name, *lines]))
    raw = arguments if isinstance(arguments, str) else compact_json(arguments)
    return clean_text(f"{name}\n{raw}")


_SPACE = re.compile(r"\s+")


def derived_summary(text: str, limit: int = 240) -> str:
    """The first 240 characters of the text with white space folded."""
    # White space can at most vanish, so a generous head is enough.
    head = _SPACE.sub(" ", text[: limit * 8].strip())
    return head[:limit]


# ---------------------------------------------------------------- labels


def entry_label(entry: Entry, is_final: bool) -> str:
    """The label of an entry, for reading only; no tool takes it as input."""
    if entry.kind == "user":
        return "user message"
    if entry.kind == "assistant":
        if is_final:
            return f"final of turn {entry.turn}"
        return f"progress {entry.step} of turn {entry.turn}"
    if entry.kind == "system":
        return f"system: {entry.sub_kind or 'message'}"
    return f"tool {entry.tool_part}: {entry.tool_name or 'unknown'}"
