"""The instructions of the extract worker."""

from __future__ import annotations

from sessiondex.features.loop.prompt import Prompt, read_prompt


def extract_prompt() -> Prompt:
    """What `prompt.md` says."""
    return read_prompt("sessiondex.features.extract", "prompt.md")
