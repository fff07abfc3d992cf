"""Names of files that outlive a loss of power."""

from __future__ import annotations

import os
from pathlib import Path


def flush_names(folder: Path) -> None:
    """Flushes which files a folder holds.

    Raises:
        OSError: it cannot be opened or flushed.
    """
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
