"""Files that commands write, whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sessiondex.errors import Failed


@contextmanager
def written_file(target: str | None) -> Generator[IO[bytes]]:
    """Standard output, or a new private file that takes its name only when it is whole.

    What a link leads to is written, never the link replaced; a device or a pipe is written into.
    """
    if target is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    is_special = os.path.exists(target) and not os.path.isfile(target)
    path = target if is_special else os.path.realpath(target)
    unfinished = path if is_special else f"{path}.unfinished"
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise Failed(f"{target} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        if not is_special:
            os.replace(unfinished, path)
    except BaseException:
        if not is_special:
            Path(unfinished).unlink(missing_ok=True)
        raise
