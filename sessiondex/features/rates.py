"""How often a caller may ask: one bucket of tokens for each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple


class Rate(NamedTuple):
    """A steady rate, and how much may be asked at once after a pause."""

    per_second: float
    burst: int


class Rates:
    """Admits or refuses, by key. Thread-safe; holds the keys that asked last."""

    def __init__(
        self, rate: Rate, *, monotonic: Callable[[], float], kept_keys: int = 10_000
    ) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._kept_keys = kept_keys
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Key → what is left, and when that was."""

    def wait_seconds(self, key: str) -> float:
        """0 if one more may be asked now, which is then counted; else how long to wait."""
        now = self._monotonic()
        with self._lock:
            left, then = self._buckets.pop(key, (float(self._rate.burst), now))
            left = min(left + (now - then) * self._rate.per_second, float(self._rate.burst))
            is_admitted = left >= 1
            self._buckets[key] = (left - 1 if is_admitted else left, now)
            if len(self._buckets) > self._kept_keys:
                self._buckets.popitem(last=False)
        return 0.0 if is_admitted else (1 - left) / self._rate.per_second
