"""The folder backend: one file a record, and a folder of those that were closed.

    staging/<id>.json               a candidate that waits
    staging/resolutions/<id>.json   one that was closed; how and why stands in its `extensions`

A file is whole or not there: written beside its place, flushed and renamed. Nothing here deletes
what it cannot read.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from sessiondex.errors import Failed, InvalidArgument, NotFound
from sessiondex.features.durable import flush_names
from sessiondex.features.staging.ids import is_record_id
from sessiondex.features.staging.record import StagingRecord, parse_record
from sessiondex.limits import CLAIM, STAGING_BYTES
from sessiondex.masking import mask

Outcome = Literal["applied", "discarded", "invalid", "duplicate", "already_covered"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

_RESOLVED_BYTES: Final = STAGING_BYTES.maximum + 16 * 1024
"""A closed record has room for its reason."""


class Unreadable(NamedTuple):
    """A file in the folder that is no staging record, and why."""

    file: str
    reason: str


class Listing(NamedTuple):
    """What a folder holds, in the order of staging."""

    records: list[StagingRecord]
    unreadable: list[Unreadable]

    def to_json(self) -> dict[str, Any]:
        """`{"records": […], "unreadable": […]}`."""
        return {
            "records": [record.to_json() for record in self.records],
            "unreadable": [each._asdict() for each in self.unreadable],
        }


class StagingFolder:
    """Staging records in a folder; see `StagingBackend`. Made when the first record comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._resolutions = folder / "resolutions"

    @classmethod
    def beside(cls, library: Path) -> StagingFolder:
        """The staging of a library: `staging` in its folder."""
        return cls(library / "staging")

    # ------------------------------------------------------------ staging

    def stage(self, record: StagingRecord) -> None:
        """Keeps a record durably; see `StagingBackend`. One that was closed stays closed."""
        data = record.to_bytes()
        if len(data) > STAGING_BYTES.maximum:
            raise InvalidArgument(
                f"the staging record has {len(data)} bytes",
                hint=f"expected at most {STAGING_BYTES.maximum}",
            )
        if self._read(self._resolutions, record.id) is not None:
            return
        known = self._read(self.folder, record.id)
        if known is None:
            _write(self.folder, record.id, data)
        elif known.is_same(record):
            _make_durable(self.folder)  # what was renamed before may not have been flushed
        else:
            raise InvalidArgument(f"another record has the id {record.id}", hint="make a new id")

    # ------------------------------------------------------------ listing

    def waiting(self) -> Listing:
        """The records that wait, and the files that are none."""
        return _list(self.folder, STAGING_BYTES.maximum)

    def closed(self) -> Listing:
        """The records that were closed, and the files that are none."""
        return _list(self._resolutions, _RESOLVED_BYTES)

    def of_run(self, extract_run_id: str) -> Iterator[StagingRecord]:
        """What a run has staged that waits or was closed, for one that goes on with it."""
        held = {record.id: record for record in self.waiting().records}
        held.update((record.id, record) for record in self.closed().records)
        for _, record in sorted(held.items()):
            if record.extract_run_id == extract_run_id:
                yield record

    def show(self, id: str) -> StagingRecord:
        """One record, waiting or closed.

        Raises:
            NotFound: there is none of that id.
            Failed: its file cannot be read as a record.
        """
        found = self._read(self.folder, id) or self._read(self._resolutions, id)
        if found is None:
            raise NotFound(f"no staging record {id[:80]!r}", hint="see 'sessiondex staging list'")
        return found

    # ------------------------------------------------------------ closing

    def close(self, id: str, outcome: Outcome, reason: str, *, closed_at: str) -> StagingRecord:
        """Moves a record to the resolutions, with how and why it was closed; writes nothing else.

        Closing it once more the same way changes nothing.

        Raises:
            InvalidArgument: unknown outcome, no reason, or it was closed in another way.
            NotFound: there is none of that id.
        """
        if outcome not in OUTCOMES:
            raise InvalidArgument(
                f"unknown outcome {outcome!r}", hint=f"expected {', '.join(OUTCOMES)}"
            )
        said = mask(reason.strip()).text
        if not said or len(said) > CLAIM.maximum:
            raise InvalidArgument(
                "closing needs a reason", hint=f"give 1 to {CLAIM.maximum} characters"
            )
        closed = self._read(self._resolutions, id)
        if closed is None:
            resolution = {"outcome": outcome, "reason": said, "closed_at": closed_at}
            closed = self.show(id).extended(resolution=resolution)
            _write(self._resolutions, id, closed.to_bytes())
        known = closed.extensions.get("resolution", {})
        if (known.get("outcome"), known.get("reason")) != (outcome, said):
            raise InvalidArgument(
                f"staging record {id} was closed as {known.get('outcome')!r} already",
                hint="a closed record stays as it is",
            )
        try:
            # A crash between the two leaves it in both; it is closed then, and this mends it.
            (self.folder / f"{id}.json").unlink(missing_ok=True)
        except OSError as error:
            raise _failure(error) from error
        _make_durable(self.folder)
        return closed

    def _read(self, folder: Path, id: str) -> StagingRecord | None:
        if not is_record_id(id):
            return None
        path = folder / f"{id}.json"
        try:
            return _parse(path, _RESOLVED_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failure(error) from error
        except InvalidArgument as error:
            raise Failed(f"{path} cannot be read: {error}", hint="mend or move it") from error


# ---------------------------------------------------------------- files


def _list(folder: Path, max_bytes: int) -> Listing:
    records: list[StagingRecord] = []
    unreadable: list[Unreadable] = []
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return Listing([], [])
    except OSError as error:
        raise _failure(error) from error
    for name in names:
        path = folder / name
        if name.startswith(".") or (name == "resolutions" and path.is_dir()):
            continue
        try:
            records.append(_parse(path, max_bytes))
        except FileNotFoundError:
            continue  # closed meanwhile
        except OSError as error:
            unreadable.append(Unreadable(name, error.strerror or str(error)))
        except InvalidArgument as error:
            unreadable.append(Unreadable(name, error.message))
    return Listing(records, unreadable)


def _parse(path: Path, max_bytes: int) -> StagingRecord:
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise InvalidArgument("not a regular file")
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    record = parse_record(data, max_bytes=max_bytes)
    if path.name != f"{record.id}.json":
        raise InvalidArgument(f"the file holds record {record.id}, which its name does not say")
    return record


def _write(folder: Path, id: str, data: bytes) -> None:
    """Writes a file that is whole or not there, durable when it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        number, temporary = tempfile.mkstemp(prefix=f".{id}.", dir=folder)  # 0600
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, folder / f"{id}.json")
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _failure(error) from error
    _make_durable(folder)


def _make_durable(folder: Path) -> None:
    """Flushes the names of a folder."""
    try:
        flush_names(folder)
    except OSError as error:
        raise _failure(error) from error


def _failure(error: OSError) -> Failed:
    return Failed(
        f"the staging folder cannot be used: {error.strerror or error}",
        hint="check its disk and permissions, then try again",
    )
