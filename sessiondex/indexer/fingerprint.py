"""Recognises a file that only grew: by its first bytes and those before where reading stopped."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
from pathlib import Path
from typing import Any, Final

FINGERPRINT_BYTES: Final = 4096


def open_regular(path: Path) -> io.FileIO:
    """Opens a file for reading, unbuffered. A pipe in its place is not waited for.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def resume_offset(state: dict[str, Any]) -> int:
    """The byte up to which all sessions of a line file were read; 0 for documents."""
    return max((part["parser"].get("offset", 0) for part in state.values()), default=0)


def fingerprint(path: Path, offset: int) -> bytes:
    """Digest of the first bytes of a file and of those before an offset; b'' if it is shorter."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        for start in (0, max(0, offset - FINGERPRINT_BYTES)):
            file.seek(start)
            wanted = min(FINGERPRINT_BYTES, offset - start)
            data = file.read(wanted)
            if len(data) < wanted:
                return b""
            digest.update(data)
    return digest.digest()
