"""The instructions of a worker, and the digest by which its report names them."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple


class Prompt(NamedTuple):
    """The instructions of a run."""

    text: str
    digest: str
    """First 16 hex digits of the SHA-256 of the text."""


@lru_cache(maxsize=16)
def read_prompt(package: str, name: str) -> Prompt:
    """What a file of a package says."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    return Prompt(text, hashlib.sha256(text.encode()).hexdigest()[:16])
