"""How a text becomes terms, and how a query is cut into the same terms.

Terms are runs of alphanumeric characters of the folded text; in scripts written without spaces
each character is a term. Nothing here is stored: changing it means rebuilding indexes.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final, NamedTuple

import tantivy

from sessiondex.indexer.folding import fold, fold_accents, odd_characters

MAX_TOKEN_BYTES: Final = 1024
"""A longer token is no term: its entry is marked for scanning."""

# Folded text: half-width forms and compatibility jamo are gone. Thai, Lao, Myanmar and Khmer are
# written without spaces too.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"
    "\u3031-\u3035\u3040-\u30ff\u3100-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_SYMBOLS: Final = "\u2600-\u27bf\U0001f000-\U0001fbff"
"""Emoji and the like, which are no alphanumeric characters: each is a term by its code point. Not
arrows and box drawing, of which tool output is full."""

_UNSPACED_RUN: Final = re.compile(f"[{_UNSPACED}{_SYMBOLS}]+")
_SYMBOL: Final = re.compile(f"[{_SYMBOLS}]")

_LONG_ASCII: Final = re.compile(rf"[0-9a-z]{{{MAX_TOKEN_BYTES + 1},}}")
# No token character is a space or ASCII punctuation; 4 bytes a character at most.
_LONG_ANY: Final = re.compile(rf"[^\s\x00-/:-@\[-`{{-\x7f]{{{MAX_TOKEN_BYTES // 4 + 1},}}")


def analyzer() -> tantivy.TextAnalyzer:
    """The analyzer of both text fields."""
    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).build()


def _space(run: re.Match[str]) -> str:
    spaced = f" {' '.join(run[0])} "
    return _SYMBOL.sub(_symbol_term, spaced) if _SYMBOL.search(spaced) else spaced


def _symbol_term(symbol: re.Match[str]) -> str:
    return f"symbol{ord(symbol[0]):x}"


class Terms(NamedTuple):
    """A text as it is handed to the index."""

    body: str
    parts: str
    """The extra terms: camelCase pieces and accent-stripped words; '' if none."""
    has_long_tokens: bool
    """Tokens over `MAX_TOKEN_BYTES` were left out."""


def text_terms(text: str) -> Terms:
    """Prepares a text for indexing."""
    folded = body = fold(text)
    parts = [_spaced_parts(word) for word in humped_words(text)]
    if folded.isascii():
        limit, long_token = MAX_TOKEN_BYTES, _LONG_ASCII
    else:
        limit, long_token = MAX_TOKEN_BYTES // 4, _LONG_ANY
        odd = "".join(odd_characters(folded))
        if _UNSPACED_RUN.search(odd):
            body = _UNSPACED_RUN.sub(_space, folded)
        if _accented().search(odd):
            parts += accentless_words(folded)
    if not _may_be_longer(body, limit):
        return Terms(body, " ".join(parts), False)
    kept = long_token.sub(
        lambda run: " " if len(run[0].encode()) > MAX_TOKEN_BYTES else run[0], body
    )
    return Terms(kept, " ".join(parts), len(kept) != len(body))


def _may_be_longer(text: str, limit: int) -> bool:
    """Whether some token may have more characters than the limit."""
    start = 0
    while start + limit < len(text):
        stop = start + limit + 1
        space = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop))
        if space < 0:
            return True
        start = space + 1
    return False


class QueryToken(NamedTuple):
    """One term of a folded query, and whether the query cuts it."""

    text: str
    left_open: bool
    """The term begins where the query begins: the text's term may begin earlier."""
    right_open: bool
    written: str
    """What stands for it in the folded query."""


def query_tokens(folded: str, words: tantivy.TextAnalyzer) -> list[QueryToken]:
    """The terms of a folded query in order, cut as the index cuts texts."""
    found: list[QueryToken] = []

    def add_words(start: int, stop: int) -> None:
        for token in words.pre_tokenize(folded[start:stop]).tokens:
            begin, end = start + token.char_offset_from, start + token.char_offset_to
            found.append(QueryToken(token.text, begin == 0, end == len(folded), token.text))

    position = 0
    for run in _UNSPACED_RUN.finditer(folded):
        add_words(position, run.start())
        for character in run[0]:
            term = _SYMBOL.sub(_symbol_term, character)
            if words.analyze(term):
                found.append(QueryToken(term, False, False, character))
        position = run.end()
    add_words(position, len(folded))
    return found


# ---------------------------------------------------------------- identifier parts

# What each ASCII character is to camelCase: lower (digits too), upper, or between words.
_SHAPE: Final = bytes(
    ord("a" if chr(c).islower() or chr(c).isdigit() else "A" if chr(c).isupper() else " ")
    if c < 128
    else ord(" ")
    for c in range(256)
)
_HUMPS: Final = (b"aA", b"AAa")
_PIECE: Final = re.compile(r"[A-Z]+(?![^\W_A-Z])|[A-Z]?[^\W_A-Z]+|[A-Z]")
_MAX_IDENTIFIER: Final = 64
"""Characters; longer mixed-case words are data, not names."""


def identifier_parts(word: str) -> list[str]:
    """The folded camelCase pieces of a word, in order: `HTTPServer2x` gives http, server2x."""
    return _spaced_parts(word).split()


@lru_cache(maxsize=1 << 15)
def _spaced_parts(word: str) -> str:
    return fold(" ".join(_PIECE.findall(word)))


def humped_words(text: str) -> set[str]:
    """The words of a text that have camelCase pieces of their own.

    A hump is between ASCII letters; letters beside them belong to the word, also others, but not
    those of scripts that are written without spaces.
    """
    is_ascii = text.isascii()
    if not is_ascii:
        text = unicodedata.normalize("NFKC", text)
    shape = text.encode("ascii", "replace").translate(_SHAPE)
    words: set[str] = set()
    for hump in _HUMPS:
        at = shape.find(hump)
        while at >= 0:
            start = shape.rfind(b" ", 0, at) + 1
            stop = shape.find(b" ", at)
            if stop < 0:
                stop = len(shape)
            if not is_ascii:
                start, stop = _word_around(text, start, stop)
            if stop - start <= _MAX_IDENTIFIER:
                words.add(text[start:stop])
            at = shape.find(hump, stop)
    return words


def _word_around(text: str, start: int, stop: int) -> tuple[int, int]:
    """A stretch with the letters and digits beside it."""
    least, most = max(start - _MAX_IDENTIFIER, 0), min(stop + _MAX_IDENTIFIER, len(text))
    while start > least and _binds(text[start - 1]):
        start -= 1
    while stop < most and _binds(text[stop]):
        stop += 1
    return start, stop


def _binds(character: str) -> bool:
    return character.isalnum() and _UNSPACED_RUN.match(character) is None


@lru_cache(maxsize=1)
def _accented() -> re.Pattern[str]:
    """Letters of folded text that lose an accent: Latin, Greek and the Cyrillic ё."""
    codes = (*range(0xDF, 0x250), *range(0x370, 0x400), 0x451, *range(0x1E00, 0x2000))
    letters = (chr(code) for code in codes)
    return re.compile(
        f"[{''.join(letter for letter in letters if fold_accents(letter) != letter)}]"
    )


def accentless_words(folded: str) -> set[str]:
    """The words of a folded text that have accents, without them."""
    words: set[str] = set()
    stop = 0
    for letter in _accented().finditer(folded):
        if letter.start() < stop:
            continue
        start, stop = letter.span()
        while start and folded[start - 1].isalnum():
            start -= 1
        while stop < len(folded) and folded[stop].isalnum():
            stop += 1
        if stop - start <= _MAX_IDENTIFIER:
            words.add(fold_accents(folded[start:stop]))
    return words
