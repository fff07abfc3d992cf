"""Which thread a record of a Codex rollout belongs to, in files that replay other threads.

A fork or sub-agent file begins with its own meta, then repeats the parent's file: its meta and
its history, which may itself begin with a replay. No mark stands where the replay ends, so it is
told, in this order, by the ordinal that the meta names, by the time in the turn's id, and by the
record's own time: before the thread was made, or within the one burst that wrote the replay.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

BURST_MILLISECONDS: Final = 1000
"""A replay is written at once; a longer pause between two of its records ends it."""

_UUID7 = re.compile(r"([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-7[0-9a-fA-F]{3}-[0-9a-fA-F]{4}-")


class Thread(NamedTuple):
    """A thread whose meta stands in the file."""

    thread_id: str
    created: int | None
    """Epoch milliseconds; None where nothing says."""


class Place(NamedTuple):
    """The thread of one record, and whether another thread replays it here."""

    thread_id: str
    is_replayed: bool = False
    follows_replay: bool = False
    """The first record of a thread behind those of an older one."""


def uuid_time(uuid: str) -> int | None:
    """Epoch milliseconds in a UUIDv7; None for any other id."""
    found = _UUID7.match(uuid)
    return int(found[1] + found[2], 16) if found else None


class Lineage:
    """Places every record of one file, in order."""

    def __init__(self, saved: dict[str, Any] | None = None) -> None:
        saved = saved or {}
        self._threads = [Thread(*thread) for thread in saved.get("threads", ())]
        self._parent: str = saved.get("parent", "")
        self._start: int | None = saved.get("start")
        self._owner: int = saved.get("owner", 0)
        self._is_open: bool = saved.get("is_open", False)
        self._is_over: bool = saved.get("is_over", False)
        self._keeps_times: bool = saved.get("keeps_times", False)
        self._last: int | None = saved.get("last")

    def save(self) -> dict[str, Any]:
        """JSON-able state, to go on from."""
        return {
            "threads": [list(thread) for thread in self._threads],
            "parent": self._parent,
            "start": self._start,
            "owner": self._owner,
            "is_open": self._is_open,
            "is_over": self._is_over,
            "keeps_times": self._keeps_times,
            "last": self._last,
        }

    @property
    def has_own(self) -> bool:
        """Whether the file's own meta was read."""
        return bool(self._threads)

    @property
    def is_over(self) -> bool:
        """Whether only own records can follow."""
        return self._is_over

    def add_own(self, thread: Thread, *, parent: str, start: int | None) -> None:
        """Takes the file's own meta; `start` is the ordinal of its first own record."""
        self._threads = [thread]
        self._parent = parent
        self._start = start

    def add_ancestor(self, thread: Thread) -> bool:
        """Takes a further meta; says whether it is part of a replay."""
        if self._is_over:
            return False
        if thread.thread_id not in [known.thread_id for known in self._threads]:
            self._threads.append(thread)
            self._owner = len(self._threads) - 1
            self._is_open = True
        return self._is_open

    def place(self, *, ordinal: int | None, timestamp: int | None, turn_id: str) -> Place:
        """Places the next record that is no meta."""
        if not self._threads:
            return Place("")
        own = self._threads[0].thread_id
        if self._is_over:
            return Place(own)
        turn = uuid_time(turn_id)
        if not self._is_replay(ordinal, timestamp, turn):
            self._is_over = True
            return Place(own, follows_replay=self._is_open)
        self._is_open = True
        self._last = timestamp if timestamp is not None else self._last
        before = self._owner
        thread_id = self._replayed_thread(timestamp, turn)
        return Place(thread_id, is_replayed=True, follows_replay=self._owner != before)

    def _is_replay(self, ordinal: int | None, timestamp: int | None, turn: int | None) -> bool:
        own = self._threads[0]
        if self._start is not None and ordinal is not None:
            return ordinal < self._start
        if not (self._is_open or self._parent):
            return False
        minted = uuid_time(own.thread_id)
        if turn is not None and minted is not None:
            return turn < minted
        if timestamp is None or own.created is None:
            return self._is_open
        if timestamp < own.created:
            self._keeps_times = True
            return True
        if not self._is_open or self._keeps_times:
            return False
        return self._last is None or timestamp - self._last <= BURST_MILLISECONDS

    def _replayed_thread(self, timestamp: int | None, turn: int | None) -> str:
        """The youngest ancestor that existed when the record was made."""
        if len(self._threads) == 1:
            return self._parent
        while self._owner > 1:
            younger = self._threads[self._owner - 1]
            if turn is not None:
                made, minted = turn, uuid_time(younger.thread_id)
            else:
                made, minted = timestamp if self._keeps_times else None, younger.created
            if made is None or minted is None or made < minted:
                break
            self._owner -= 1
        return self._threads[self._owner].thread_id
