"""Keeps the lease of a run alive, and ends the run that lost it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from sessiondex.errors import Busy, Failed
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.ledger_rows import Lease

_RENEW_SHARE: Final = 0.2
"""Of the lease; it is renewed when so much of it is used."""

T = TypeVar("T")


class LeaseKeeper:
    """The lease of one run while it works."""

    def __init__(
        self,
        ledger: ExtractLedger,
        lease: Lease,
        *,
        lease_ms: int,
        now_ms: Callable[[], int],
        on_lost: Callable[[], None],
    ) -> None:
        self.lease = lease
        self.lost = ""
        """Why the run may write no more; '' while it may."""
        self._ledger = ledger
        self._lease_ms = lease_ms
        self._now_ms = now_ms
        self._on_lost = on_lost
        self._renewed_at = now_ms()

    def guard(self, action: Callable[[Lease, int], T]) -> T:
        """Does something at this moment under the lease.

        Raises:
            Busy: another run has taken the session over; this one ends.
        """
        try:
            return action(self.lease, self._now_ms())
        except Busy as error:
            self.lost = error.message
            self._on_lost()
            raise

    def reserve(self, digest: str, id: str) -> str:
        """The id under which a claim is staged; see `ExtractLedger.reserve`."""
        kept = self.guard(
            lambda lease, now: self._ledger.reserve(
                lease, digest, id, now=now, lease_ms=self._lease_ms
            )
        )
        self._renewed_at = self._now_ms()
        return kept

    def beat(self) -> None:
        """Says that the run is alive, if it has not lately; one that lost its lease ends.

        A state that is busy just now is told at the next beat.
        """
        if self.lost or self._now_ms() - self._renewed_at < self._lease_ms * _RENEW_SHARE:
            return
        with suppress(Busy, Failed):
            self.guard(
                lambda lease, now: self._ledger.renew(lease, now=now, lease_ms=self._lease_ms)
            )
            self._renewed_at = self._now_ms()
