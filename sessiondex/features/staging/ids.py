"""Ids of staging records: UUIDv7, so that their order is the order of staging."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Final
from uuid import UUID

_RANDOM_BITS: Final = 74
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class RecordIds:
    """Makes ids, each greater than the last, also within a millisecond. Thread-safe."""

    def __init__(self, *, now_ms: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._last = 0

    def __call__(self) -> str:
        """The next id."""
        with self._lock:
            random = int.from_bytes(self._random_bytes(10), "big") % (1 << _RANDOM_BITS)
            self._last = max(self._now_ms() << _RANDOM_BITS | random, self._last + 1)
            return _uuid7(self._last)


def is_record_id(text: str) -> bool:
    """Whether a text is a UUIDv7 in its canonical form, and so a safe file name."""
    return _UUID7.fullmatch(text) is not None


def _uuid7(value: int) -> str:
    """48 bits of milliseconds and 74 random bits with version and variant between (RFC 9562)."""
    time, random = value >> _RANDOM_BITS, value % (1 << _RANDOM_BITS)
    high, low = random >> 62, random % (1 << 62)
    return str(UUID(int=time % (1 << 48) << 80 | 7 << 76 | high << 64 | 2 << 62 | low))
