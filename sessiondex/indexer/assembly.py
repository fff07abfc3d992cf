"""Turns the records of a source into entries.

What all formats share is decided here, once: which items are visible, ordinals, turns and steps,
tool names joined by call id, calls of sessiondex itself, identities. An assembler can be saved
and restored, so that an append is assembled as if the whole session had been read at once.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from sessiondex.model import (
    COPIED,
    OWN_OUTPUT,
    SYNTHETIC,
    Entry,
    EntryRef,
    Item,
    Record,
    ToolPart,
)

OPEN_CALLS: Final = 4096
"""Calls without a result that are remembered for the join by call id."""

ANSWERED_CALLS: Final = 64
"""Answered calls that are still remembered, for a result that is written twice."""

_OWN_COMMAND = re.compile(r"(?:^|[\s;&|(`])(?:uvx\s+|uv\s+run\s+|python3?\s+-m\s+)?sessiondex\s+\w")
_OWN_TOOLS = frozenset(
    "ShowOverview SearchEntries ReadEntry ListWorkerSessions ViewSessionOverview"
    " SearchSessionEntries ReadSessionEntry SearchLibrary ListSessions ShowLibraryOverview"
    " ReadLibraryEntry search_session_log read_session_items".split()
)


class Counts(NamedTuple):
    """Numbers of entries by kind; the two parts of tools apart."""

    user: int = 0
    assistant: int = 0
    system: int = 0
    tool_input: int = 0
    tool_output: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: Counts) -> Counts:
        return Counts(*(a - b for a, b in zip(self, other, strict=True)))

    def by_kind(self) -> dict[str, int]:
        """`{user, assistant, system, tool}`."""
        return {
            "user": self.user,
            "assistant": self.assistant,
            "system": self.system,
            "tool": self.tool_input + self.tool_output,
        }


def kind_code(entry: Entry) -> int:
    """0 user, 1 assistant, 2 system, 3 tool input, 4 tool output: the position in `Counts`."""
    if entry.kind == "tool":
        return 3 if entry.tool_part == "input" else 4
    return 0 if entry.kind == "user" else 1 if entry.kind == "assistant" else 2


class AssembledEntry(NamedTuple):
    """An entry with its whole text, on its way into a store."""

    entry: Entry
    text: str
    data: bytes
    """The text in UTF-8."""


DERIVED_IDENTITY: Final = 1
"""Bit of an identity that a source derived from content: the same one in two sessions means a
copy only where one of them says that it replayed it. An id of the source's own needs no word."""


def _digest(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


class Assembler:
    """Makes the entries of one session, record after record."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        state = state or {}
        self.ordinal: int = state.get("ordinal", 0)
        self.turn: int = state.get("turn", 0)
        self.step: int = state.get("step", 0)
        self._open: dict[str, tuple[str, bool]] = {
            call: (name, own) for call, name, own in state.get("open", ())
        }
        self._answered: dict[str, tuple[str, bool]] = {
            call: (name, own) for call, name, own in state.get("answered", ())
        }

    def state(self) -> dict[str, Any]:
        """JSON-able state from which assembling goes on."""
        return {
            "ordinal": self.ordinal,
            "turn": self.turn,
            "step": self.step,
            "open": [[call, name, own] for call, (name, own) in self._open.items()],
            "answered": [[call, name, own] for call, (name, own) in self._answered.items()],
        }

    def assemble(self, record: Record) -> list[AssembledEntry]:
        """The visible entries of a record, in block order."""
        return [
            self._entry(record, item)
            for item in record.items
            if item.kind != "reasoning" and item.kind != "prompt"
        ]

    def _entry(self, record: Record, item: Item) -> AssembledEntry:
        flags = record.flags | item.flags
        replayed = record.replayed or item.replayed
        if replayed:
            flags |= COPIED
        kind = item.kind
        name = ""
        part: ToolPart | None = None
        step = 0
        is_anchor = False
        text = item.text
        if kind == "tool_call":
            name, part, entry_kind = item.name, "input", "tool"
            if self._is_own(name, text):
                flags |= OWN_OUTPUT
            if item.call_id:
                self._remember(item.call_id, (name, bool(flags & OWN_OUTPUT)))
        elif kind == "tool_result":
            part, entry_kind = "output", "tool"
            joined = self._answer(item.call_id)
            name = item.name or joined[0]
            if joined[1]:
                flags |= OWN_OUTPUT
        elif kind == "user":
            entry_kind = "user"
            if not flags & SYNTHETIC:
                has_text = bool(text.strip())
                is_anchor = has_text and not flags & COPIED
                if has_text or item.attachments:
                    self.turn += 1
                    self.step = 0
        elif kind == "assistant":
            entry_kind = "assistant"
            if text.strip():
                self.step += 1
                step = self.step
                is_anchor = not flags & (SYNTHETIC | COPIED)
        else:
            entry_kind = "system"
        data = text.encode()
        identity = 0
        if item.identity:
            identity = _digest(item.identity) | DERIVED_IDENTITY
        elif record.record_id:
            identity = _digest(f"{record.record_id}.{item.block}") & ~DERIVED_IDENTITY
        entry = Entry(
            ordinal=self.ordinal,
            ref=EntryRef(record.number, item.block),
            kind=entry_kind,  # type: ignore[arg-type]
            tool_part=part,
            tool_name=name,
            call_id=item.call_id,
            error=item.error,
            sub_kind=item.sub_kind,
            flags=flags,
            timestamp=item.timestamp if item.timestamp is not None else record.timestamp,
            turn=self.turn,
            step=step,
            cwd=record.cwd,
            branch=record.branch,
            model=item.model or record.model,
            total_bytes=len(data),
            summary=item.summary,
            attachments=item.attachments,
            is_anchor=is_anchor,
            identity=identity,
            replayed=replayed,
            plan=item.plan,
            pointer=item.pointer,
        )
        self.ordinal += 1
        return AssembledEntry(entry, text, data)

    @staticmethod
    def _is_own(name: str, text: str) -> bool:
        if "sessiondex" in name or name.rsplit("__", 1)[-1] in _OWN_TOOLS:
            return True
        return "sessiondex" in text and _OWN_COMMAND.search(text) is not None

    def _remember(self, call_id: str, call: tuple[str, bool]) -> None:
        self._open[call_id] = call
        if len(self._open) > OPEN_CALLS:
            del self._open[next(iter(self._open))]

    def _answer(self, call_id: str) -> tuple[str, bool]:
        if not call_id:
            return "", False
        call = self._open.pop(call_id, None)
        if call is None:
            return self._answered.get(call_id, ("", False))
        self._answered[call_id] = call
        if len(self._answered) > ANSWERED_CALLS:
            del self._answered[next(iter(self._answered))]
        return call
