"""Writes one session as a file of Claude Code's form, and knows the ref of everything in it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.session_file import iso, make_uuid
from sessiondex.model import EntryRef

_BEGAN: Final = 1_767_600_000_000
"""Epoch milliseconds: the first days of 2026."""


class SessionWriter:
    """One session while it is written. Each method appends one record and gives its entry's ref."""

    def __init__(self, path: Path, rng: random.Random, *, cwd: str) -> None:
        self.path = path
        self.session = path.stem
        self.entries = 0
        self.user_refs: list[str] = []
        self._rng = rng
        self._cwd = cwd
        self._lines: list[bytes] = []
        self._parent: str | None = None
        self._now = _BEGAN + rng.randrange(10**10)

    def user(self, text: str) -> str:
        """What a person typed."""
        ref = self._node({"type": "user", "message": {"role": "user", "content": text}}, 90.0)
        self.user_refs.append(ref)
        return ref

    def harness(self, text: str) -> str:
        """What the harness put into a user role."""
        message = {"role": "user", "content": text}
        return self._node({"type": "user", "isMeta": True, "message": message})

    def summary(self, text: str) -> str:
        """A compaction summary."""
        message = {"role": "user", "content": text}
        return self._node({"type": "user", "isCompactSummary": True, "message": message})

    def answer(self, text: str) -> str:
        """What the agent said."""
        return self._assistant({"type": "text", "text": text}, "end_turn")

    def tool(self, name: str, arguments: dict[str, str], output: str) -> str:
        """A call and its result; gives the ref of the result."""
        call_id = f"toolu_{self._rng.getrandbits(80):020x}"
        self._assistant({"type": "tool_use", "id": call_id, "name": name, "input": arguments}, None)
        block = {"type": "tool_result", "tool_use_id": call_id, "content": output}
        return self._node({"type": "user", "message": {"role": "user", "content": [block]}})

    def snapshot(self) -> None:
        """A record without an entry, so that refs are no ordinals."""
        record = {"type": "file-history-snapshot", "messageId": make_uuid(self._rng)}
        self._lines.append(orjson.dumps(record | {"snapshot": {}, "isSnapshotUpdate": False}))

    def close(self) -> None:
        """Writes the file."""
        self.path.write_bytes(b"".join(line + b"\n" for line in self._lines))

    def _assistant(self, block: dict[str, Any], stop: str | None) -> str:
        message = {
            "id": f"msg_{self._rng.getrandbits(80):020x}", "type": "message", "role": "assistant",
            "model": "invented-1", "content": [block], "stop_reason": stop,
        }  # fmt: skip
        return self._node({"type": "assistant", "message": message})

    def _node(self, fields: dict[str, Any], seconds: float = 4.0) -> str:
        self._now += 20 + int(self._rng.expovariate(1 / (seconds * 1000)))
        uuid = make_uuid(self._rng)
        envelope = {
            "parentUuid": self._parent, "isSidechain": False, "userType": "external",
            "cwd": self._cwd, "sessionId": self.session, "version": "2.1.1", "gitBranch": "main",
        }  # fmt: skip
        record = envelope | fields | {"uuid": uuid, "timestamp": iso(self._now)}
        self._lines.append(orjson.dumps(record))
        self._parent = uuid
        self.entries += 1
        return str(EntryRef(len(self._lines) - 1))
