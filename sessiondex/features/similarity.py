"""When two claims are the same, and when they are alike. A signal, never a reason to merge."""

from __future__ import annotations

import re
from typing import Final

from sessiondex.indexer.folding import fold

ALIKE_SHARE: Final = 0.5
"""Share of their words, of all that either has, that alike claims have in common."""

CONTAINED_SHARE: Final = 0.8
"""Share of the shorter one's words that a longer claim repeats."""

_CONTAINED_WORDS: Final = 4
"""Claims with fewer words stand in too many others."""

_WORD = re.compile(r"[⺀-鿿가-힣豈-﫿]|[^\W_]+")


def normalised_claim(claim: str) -> str:
    """A claim without what does not change what it says: case, width, white space, full stop."""
    return " ".join(fold(claim).split()).rstrip(".!。").strip()


def are_alike(one: str, other: str) -> bool:
    """Whether two claims share so many words that they may say the same."""
    words, others = _words(one), _words(other)
    shared = len(words & others)
    if not shared:
        return False
    shorter = min(len(words), len(others))
    is_contained = shorter >= _CONTAINED_WORDS and shared >= CONTAINED_SHARE * shorter
    return is_contained or shared >= ALIKE_SHARE * len(words | others)


def _words(claim: str) -> set[str]:
    """Words, and single characters of scripts that put no spaces between words."""
    return set(_WORD.findall(fold(claim)))
