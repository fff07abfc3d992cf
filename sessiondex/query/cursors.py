"""Cursors: opaque places between two hits, bound to what was asked and to a state.

A cursor is no secret and no permission. Its digest only tells a whole one from a mangled one.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Any, Final

import orjson

from sessiondex.errors import InvalidArgument

_VERSION: Final = 1
_DIGEST_BYTES: Final = 6
_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page ended, and the state that its first page saw."""

    state: tuple[int, ...]
    """Of a capture: generation, entries, mark; of a library: epoch, mark."""
    seen: int
    """Hits on the pages before."""
    step: int
    """Which relaxation of a ranked query found something."""
    position: tuple[int, ...]
    """Source order: the key; newest: time and key; relevance: the rank; of the last hit shown."""


def fingerprint(asked: list[Any]) -> str:
    """A short name of what was asked."""
    data = orjson.dumps(asked)
    return base64.urlsafe_b64encode(blake2b(data, digest_size=_DIGEST_BYTES).digest()).decode()


def encode(cursor: Cursor, asked: str) -> str:
    """The cursor as text, bound to a fingerprint."""
    body = orjson.dumps([_VERSION, asked, *astuple(cursor)])
    return "c" + base64.urlsafe_b64encode(_digest(body) + body).decode().rstrip("=")


def decode(text: str, asked: str) -> Cursor:
    """Reads a cursor.

    Raises:
        InvalidArgument: it is malformed, or of another query.
    """
    try:
        if not _ALPHABET.fullmatch(text):
            raise ValueError("alphabet")
        text = text[1:]  # the letter in front: no cursor looks like an option
        data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if digest != _digest(body):
            raise ValueError("digest")
        version, bound, state, seen, step, position = orjson.loads(body)
        if version != _VERSION:
            raise ValueError("version")
    except (ValueError, binascii.Error) as error:
        raise InvalidArgument(
            "malformed cursor", hint="pass the 'next_cursor' of a reply unchanged, or none"
        ) from error
    if bound != asked:
        raise InvalidArgument(
            "the cursor belongs to another query",
            hint="repeat the query and filters of the first page, or leave the cursor out",
        )
    return Cursor(tuple(state), seen, step, tuple(position))


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
