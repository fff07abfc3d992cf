"""Whether a run of an agent has ended, as far as the file of its session tells.

Nothing is extracted while an agent works. The last records of a line format say whether it does;
where they do not, and in documents, only quiet does. Reads a bounded end of the file and writes
nothing.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.sources import claude_code, codex, yoi
from sessiondex.indexer.sources.base import SourceFile
from sessiondex.indexer.sources.lines import RawValue, read_values

RECORDS_BACK: Final = 16
"""Records at the end of a file that are asked: metadata that says nothing may follow a turn."""

BYTES_BACK: Final = 1 << 20

_ENDS_RUN: Final[dict[str, Callable[..., bool | None]]] = {
    claude_code.CLAUDE_CODE.name: claude_code.ends_run,
    codex.CODEX.name: codex.ends_run,
    yoi.YOI.name: yoi.ends_run,
}
"""By format: whether a raw record ends a run (True), is inside one (False), or says nothing."""


def has_run_ended(capture: Capture, *, now: float, settle_seconds: float) -> bool:
    """Whether the session's source ends with a closed turn, or has not grown for a while.

    `now` is in epoch seconds. The file is asked as it is now, so a capture that is behind it is
    not mistaken for its end. A record that is still being written closes nothing. A source that
    is gone has ended. One that cannot be read has not: nobody can tell.

    Raises:
        InvalidArgument: the capture was made from items, which no file holds: the host that made
            it knows whether its agent works.
    """
    if not capture.source:
        raise InvalidArgument(
            f"session {capture.session!r} has no source file that could tell whether a run ended",
            hint="say it where the capture was made",
        )
    path = Path(capture.source)
    try:
        found = os.stat(path)
        if now - found.st_mtime >= settle_seconds:
            return True
        file = SourceFile(path, Path(capture.row.source_root))
        return _ends_with_closed_turn(capture, file, found.st_size)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


def _ends_with_closed_turn(capture: Capture, file: SourceFile, size: int) -> bool:
    ends_run = _ENDS_RUN.get(capture.row.format)
    if ends_run is None or file.is_compressed:
        return False
    for value in reversed(_last_values(capture, file, size)):
        if value.corrupt or value.oversized or value.provisional:
            return False
        if isinstance(value.value, dict):
            said = ends_run(value.value, is_sub_agent=capture.sub_agent)
            if said is not None:
                return said
    return False


def _last_values(capture: Capture, file: SourceFile, size: int) -> list[RawValue]:
    """The last records of the file as it is now; none where they cannot be told.

    They are found from a record of the capture on, if it still stands where it stood.
    """
    first = None
    for number in range(capture.record_count - 1, -1, -1)[:RECORDS_BACK]:
        record = capture.record(number)
        if size - record.byte_offset > BYTES_BACK:
            break
        first = record
    if first is None:
        return []
    values: deque[RawValue] = deque(maxlen=RECORDS_BACK)
    is_first = True
    for value in read_values(file, offset=first.byte_offset, number=first.number, line=first.line):
        if is_first and value.digest != first.digest:
            return []
        is_first = False
        values.append(value)
    # What was begun and does not parse yet is no value, but the file goes on behind the last.
    return list(values) if values and values[-1].end >= size else []
