"""What a place for staging records must do, whatever it is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sessiondex.features.staging.record import StagingRecord


@runtime_checkable
class StagingBackend(Protocol):
    """Takes staging records; asked from one run at a time."""

    def stage(self, record: StagingRecord) -> None:
        """Keeps a record for good. The same record once more changes nothing.

        Raises:
            InvalidArgument: it was rejected; the caller can mend it.
            Failed: it may or may not be kept; the same record can be staged again.
        """
        ...
