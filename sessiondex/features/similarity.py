"""When two claims are the same, and when they are alike. A signal, never a reason to merge."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from sessiondex.indexer.folding import fold

ALIKE_SHARE: Final = 0.5
"""Share of their words, of all that either has, that alike claims have in common."""

CONTAINED_SHARE: Final = 0.8
"""Share of the shorter one's words that a longer claim repeats."""

_CONTAINED_WORDS: Final = 4
"""Claims with fewer words stand in too many others."""

_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")
"""Letters of Hangul that are blank."""

_WORD = re.compile(r"[⺀-鿿가-힣豈-﫿]|[^\W_]+")


def normalised_claim(claim: str) -> str:
    """A claim without what does not change what it says: case, width, white space, full stop, and
    characters that nobody sees."""
    return " ".join(fold(visible_text(claim)).split()).rstrip(".!。").strip()


def visible_text(text: str) -> str:
    """A text without the characters that only say how it is set: zero width, direction, fillers."""
    if text.isascii():
        return text
    return "".join(
        each for each in text if unicodedata.category(each) != "Cf" and each not in _FILLERS
    )


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
    return set(_WORD.findall(fold(visible_text(claim))))
