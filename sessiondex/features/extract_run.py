"""One extract run: open until it is finished, then sealed; what it has staged so far.

A host makes a run for a capture and a range of its records, with the backend that keeps what is
staged. A run that was given up can be taken over with its id and its records, so that nothing is
staged twice.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from sessiondex.errors import InvalidArgument
from sessiondex.features.candidates import Candidate
from sessiondex.features.services import RunRange, ServiceKey
from sessiondex.features.similarity import are_alike, normalised_claim
from sessiondex.features.staging.backend import StagingBackend
from sessiondex.features.staging.ids import RecordIds
from sessiondex.features.staging.record import StagingRecord
from sessiondex.features.staging_records import staging_record
from sessiondex.features.state import checked_name
from sessiondex.indexer.capture import Capture
from sessiondex.limits import CANDIDATES


class Staged(NamedTuple):
    """How staging a candidate went."""

    record: StagingRecord
    is_repeat: bool
    """The run had staged the same claim before; nothing was written."""
    similar: tuple[StagingRecord, ...]
    """Records with claims like it, that this run or an earlier one staged."""
    staged_count: int


class Finished(NamedTuple):
    """How a run ended."""

    staged_count: int
    no_candidates_reason: str
    """'' where none was given."""


Reserve = Callable[[str, str], str]
"""Takes the digest of a claim and a new id; gives the id under which the run stages the claim, the
same one each time. Raises where the run may no longer stage."""

Find = Callable[[str], StagingRecord | None]
"""The record that is kept under an id that the run reserved; None where there is none."""

Seal = Callable[[Finished], None]
"""Makes the end of a run durable; the run stays open where it raises."""


class ExtractRun:
    """The state of one run. Thread-safe; candidates are staged one at a time."""

    def __init__(
        self,
        capture: Capture,
        *,
        run_id: str,
        backend: StagingBackend,
        ids: RecordIds,
        run_range: RunRange | None = None,
        adopted: Iterable[StagingRecord] = (),
        earlier: Iterable[StagingRecord] = (),
        reserve: Reserve = lambda digest, id: id,
        find: Find = lambda id: None,
        seal: Seal = lambda finished: None,
    ) -> None:
        """`run_range` is the whole capture unless given; `adopted` are the records of a run whose
        id this one goes on with; with the claims of `earlier` ones new claims are compared.

        Raises:
            InvalidArgument: the capture holds what is not committed, the range is none of its
                records, the id is malformed, or an adopted record is of another run.
        """
        if capture.committed_count < capture.entry_count:
            raise InvalidArgument(
                "the capture holds an entry that is not committed", hint="pass its committed()"
            )
        last = capture.record_count - 1
        self.capture = capture
        self.range = RunRange(0, last) if run_range is None else run_range
        if not 0 <= self.range.first <= self.range.last <= last:
            raise InvalidArgument(
                f"records {self.range.first} to {self.range.last} are no range of the capture",
                hint=f"its last record is {last}",
            )
        self.id = checked_name(run_id, "run id")
        self.finished: Finished | None = None
        self._backend = backend
        self._ids = ids
        self._reserve = reserve
        self._find = find
        self._seal = seal
        self._lock = threading.Lock()
        self._earlier = tuple(earlier)
        self._staged: dict[str, StagingRecord] = {}
        self._unsure: dict[str, StagingRecord] = {}
        """Records whose staging failed: they may have been kept, so they are sent as they were."""
        for record in adopted:
            if record.extract_run_id != self.id:
                raise InvalidArgument(
                    f"record {record.id} is of run {record.extract_run_id!r}, not of {self.id!r}"
                )
            self._staged[_key(record.kind, record.claim)] = record

    @property
    def is_sealed(self) -> bool:
        """Whether the run was finished."""
        return self.finished is not None

    @property
    def staged(self) -> tuple[StagingRecord, ...]:
        """The records of the run, in the order of staging."""
        return tuple(self._staged.values())

    @property
    def unsure(self) -> tuple[StagingRecord, ...]:
        """Records whose staging failed and was not tried again: they may be kept, or not."""
        return tuple(self._unsure.values())

    def stage(self, candidate: Candidate) -> Staged:
        """Stages a candidate, or finds the record of an exact repeat.

        Raises:
            InvalidArgument: the run is sealed, has staged its maximum, or the backend refuses.
            Failed: the backend could not be asked; the same candidate can be staged again.
        """
        with self._lock:
            self.require_open()
            key = _key(candidate.kind, candidate.claim)
            similar = self._similar(key, candidate.claim)
            known = self._staged.get(key)
            if known is not None:
                return Staged(known, True, similar, len(self._staged))
            if len(self._staged) >= CANDIDATES.maximum:
                raise InvalidArgument(
                    f"this run has staged {CANDIDATES.maximum} candidates, the most it may",
                    hint="call FinishMemoryExtraction",
                )
            id = self._reserve(hashlib.sha256(key.encode()).hexdigest(), self._ids())
            record = self._unsure.get(key) or staging_record(
                self.capture, candidate, id=id, extract_run_id=self.id,
                run_range=self.range, similar=[each.id for each in similar],
            )  # fmt: skip
            self._unsure[key] = record
            try:
                self._backend.stage(record)
            except InvalidArgument:
                del self._unsure[key]
                # Whom this run took over may have been writing the claim until now.
                kept = self._find(id)
                if kept is None or _key(kept.kind, kept.claim) != key:
                    raise
                self._staged[key] = kept
                return Staged(kept, True, similar, len(self._staged))
            self._staged[key] = self._unsure.pop(key)
            return Staged(record, False, similar, len(self._staged))

    def finish(self, staged_count: int, no_candidates_reason: str) -> Finished:
        """Seals the run.

        Raises:
            InvalidArgument: it is sealed already, the count is not what it staged, or it staged
                nothing and no reason was given.
            SessiondexError: the end could not be made durable; the run is open still.
        """
        with self._lock:
            self.require_open()
            count = len(self._staged)
            if staged_count != count:
                raise InvalidArgument(
                    f"staged_count is {staged_count}, but this run has staged {count}",
                    hint=f"stage what is missing, or finish with {count}",
                )
            if not count and not no_candidates_reason:
                raise InvalidArgument(
                    "nothing was staged and no reason was given",
                    hint="say in no_candidates_reason why the session holds no candidate",
                )
            finished = Finished(count, no_candidates_reason)
            self._seal(finished)
            self.finished = finished
            return finished

    def require_open(self) -> None:
        """Raises:
        InvalidArgument: the run is sealed.
        """
        if self.is_sealed:
            raise InvalidArgument("this run is finished", hint="nothing more can be staged")

    def _similar(self, key: str, claim: str) -> tuple[StagingRecord, ...]:
        own = [record for name, record in self._staged.items() if name != key]
        return tuple(each for each in (*own, *self._earlier) if are_alike(each.claim, claim))


EXTRACT_RUN: Final = ServiceKey("extract_run", ExtractRun)


def _key(kind: str, claim: str) -> str:
    return f"{kind} {normalised_claim(claim)}"
