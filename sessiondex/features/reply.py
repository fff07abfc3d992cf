"""What a call of a tool answers: bounded JSON, or the error object of the contract.

The last gate: whatever a tool did, no reply is larger than its bound, and no error says more
than its class, kind, message and hint, masked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from sessiondex.errors import InternalError, SessiondexError
from sessiondex.limits import REPLY_BYTES
from sessiondex.masking import mask
from sessiondex.model import clean_text
from sessiondex.query.reply import clip_text

ERROR_TEXT_BYTES: Final = 2_000
"""Message and hint of an error, each: they may repeat what the caller said."""

_PATH = re.compile(r"(?<![\w.:/])/[^\s:;,'\"()]+")
"""A path on this machine; people are told where a file is damaged, a model is not."""


@dataclass(frozen=True, slots=True)
class ToolReply:
    """One reply: a JSON object, and the bytes of it that a model gets."""

    value: Mapping[str, Any]
    data: bytes
    """Compact JSON in UTF-8, at most `REPLY_BYTES`."""
    exit_code: int = 0
    """0, or that of the error."""

    @property
    def is_error(self) -> bool:
        """Whether it is the error object."""
        return self.exit_code != 0

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> ToolReply:
        """The reply of a tool that could serve.

        Raises:
            InternalError: it is no JSON, or larger than was promised.
        """
        try:
            data = orjson.dumps(value)
        except TypeError as error:
            raise InternalError("a reply is no JSON") from error
        if len(data) > REPLY_BYTES.maximum:
            raise InternalError(
                f"a reply of {len(data)} bytes passed its bound of {REPLY_BYTES.maximum}"
            )
        return cls(value, data)

    @classmethod
    def of_error(cls, error: SessiondexError) -> ToolReply:
        """The error object, its texts masked and clipped, failures without the paths of files."""
        shown = error.to_json()
        for name in ("message", "hint"):
            text = mask(clean_text(shown["error"][name])).text
            if error.error_class == "failed":
                text = _PATH.sub("…", text)
            shown["error"][name] = clip_text(text, ERROR_TEXT_BYTES)
        return cls(shown, orjson.dumps(shown), error.exit_code)
