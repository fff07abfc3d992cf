"""The instructions of the extract worker, and the digest by which a report names them."""

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


@lru_cache(maxsize=1)
def extract_prompt() -> Prompt:
    """What `prompt.md` says."""
    text = files("sessiondex.features.extract").joinpath("prompt.md").read_text(encoding="utf-8")
    return Prompt(text, hashlib.sha256(text.encode()).hexdigest()[:16])
