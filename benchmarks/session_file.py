"""What both session writers share: the file that grows, its counts, and needles put into texts."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from benchmarks.needles import Needle, Queue, Slot


def iso(milliseconds: int) -> str:
    """`2026-01-08T14:41:01.692Z`."""
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC).isoformat()
    return f"{moment[:19]}.{milliseconds % 1000:03d}Z"


def make_uuid(rng: random.Random) -> str:
    """A version 4 UUID from the generator's own randomness."""
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


@dataclass
class SessionFile:
    """One session file while it is written, and what is known of it afterwards."""

    session_id: str
    path: Path
    queue: Queue
    now: int
    """Epoch milliseconds of the last record."""
    lines: list[bytes] = field(default_factory=list)
    entries: list[tuple[int, str]] = field(default_factory=list)
    """Line index and kind (user, assistant, system, tool_input, tool_output) of each entry."""
    size: int = 0
    planted: list[tuple[int, Needle]] = field(default_factory=list)
    """Needles with the index of the line that holds each."""

    def put(self, record: dict[str, Any]) -> None:
        """Appends one record."""
        line = orjson.dumps(record)
        self.lines.append(line)
        self.size += len(line) + 1

    def plant(self, text: str, slots: Sequence[Slot]) -> str:
        """The text for the record that is put next, with a waiting needle of these slots in it."""
        needle = self.queue.take(*slots)
        if needle is None:
            return text
        self.planted.append((len(self.lines), needle))
        needle.sessions.append(self.session_id)
        cut = text.find(" ", len(text) // 2)
        if cut < 0:
            return f"{text}\n{needle.planted}"
        return f"{text[:cut]} {needle.planted} {text[cut + 1 :]}"

    def tick(self, rng: random.Random, seconds: float) -> str:
        """Lets about that many seconds pass and gives the new time."""
        self.now += 20 + int(rng.expovariate(1 / (seconds * 1000)))
        return iso(self.now)

    def count(self, kind: str) -> None:
        """Notes that the record put last holds one entry of that kind."""
        self.entries.append((len(self.lines) - 1, kind))

    def counts(self) -> Counter[str]:
        """How many entries it has, by kind."""
        return Counter(kind for _, kind in self.entries)

    def replay(self, source: SessionFile, lines: int) -> None:
        """Repeats the first lines of another session under this one's id, as a fork does."""
        old, new = source.session_id.encode(), self.session_id.encode()
        self.lines = [line.replace(old, new) for line in source.lines[:lines]]
        self.size = sum(map(len, self.lines)) + lines
        self.entries = [entry for entry in source.entries if entry[0] < lines]
        for index, needle in source.planted:
            if index < lines and not needle.is_hidden:
                self.planted.append((index, needle))
                needle.sessions.append(self.session_id)

    def save(self) -> None:
        """Writes the lines; the file's times are those of its last record."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"\n".join(self.lines) + b"\n")
        os.utime(self.path, (self.now / 1000, self.now / 1000))
