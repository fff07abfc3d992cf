"""What an observer was last shown of each subject, so that refs of a rewritten session are refused.

A capture token says of which generation a ref is. A model that passes none is protected once: the
first ref that it uses after a rewrite is refused, and from then on it was told.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from sessiondex.errors import Stale
from sessiondex.features.subjects import Subject, subject_key
from sessiondex.indexer.capture import Capture

REMEMBERED_SUBJECTS: Final = 1_000


class _Shown(NamedTuple):
    session: str
    generation: int
    records: int
    last_digest: bytes
    """Of the last record: finds a rewrite also where a host counts no generations."""
    token: str

    @classmethod
    def of(cls, capture: Capture) -> _Shown:
        count = capture.record_count
        digest = capture.record(count - 1).digest if count else b""
        return cls(capture.session, capture.generation, count, digest, capture.token)

    def is_continued_by(self, capture: Capture) -> bool:
        """Whether the capture still begins with what was shown."""
        if (self.session, self.generation) != (capture.session, capture.generation):
            return False
        if self.records > capture.record_count:
            return False
        return not self.records or capture.record(self.records - 1).digest == self.last_digest


class IdentityMemory:
    """The generation of each subject that was last shown. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: dict[str, _Shown] = {}

    def check(
        self, subject: Subject, capture: Capture, *, has_refs: bool, token: str | None
    ) -> None:
        """Checks refs that came without a token; those with one are the capture's to check.

        Raises:
            Stale: the session was rewritten since it was last shown; only once for a rewrite.
        """
        shown = self._shown.get(subject_key(subject))
        if shown is None or not has_refs or shown.is_continued_by(capture):
            return
        is_known_by_generation = shown.generation != capture.generation
        if token and (is_known_by_generation or token != shown.token):
            return
        self.remember(subject, capture)
        raise Stale(
            "the session was rewritten since it was last shown; entry refs may name other entries",
            hint="look again with ViewSessionOverview or SearchSessionEntries, and pass 'capture'",
        )

    def remember(self, subject: Subject, capture: Capture) -> None:
        """Keeps that the capture was shown."""
        key = subject_key(subject)
        with self._lock:
            self._shown.pop(key, None)
            self._shown[key] = _Shown.of(capture)
            if len(self._shown) > REMEMBERED_SUBJECTS:
                del self._shown[next(iter(self._shown))]
