"""The one tree of errors.

Every face (Python, command line, tools for models) renders the same object:

    SessiondexError
    ├── UsageError              usage                exit 2   invalid_argument
    ├── InvalidArgument         invalid_argument     exit 2   invalid_argument
    ├── NotFound                not_found            exit 3   invalid_argument
    │   ├── HiddenEntry         hidden_entry         exit 3   invalid_argument
    │   └── PastEnd             past_end             exit 3   invalid_argument
    ├── Stale                   stale                exit 1   invalid_argument
    ├── Busy                    busy                 exit 1   failed
    ├── Failed                  failed               exit 1   failed
    ├── UnsupportedVersion      unsupported_version  exit 1   failed
    ├── Incomplete              incomplete           exit 4   failed
    ├── Damaged                 damaged              exit 5   failed
    └── InternalError           internal             exit 1   internal
"""

from __future__ import annotations

from typing import ClassVar


class SessiondexError(Exception):
    """Base of all errors. `message` says what happened, `hint` what to do about it."""

    kind: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1
    error_class: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def to_json(self) -> dict[str, dict[str, str]]:
        """The error object of the contract, `{"error": {class, kind, message, hint}}`."""
        return {
            "error": {
                "class": self.error_class,
                "kind": self.kind,
                "message": self.message,
                "hint": self.hint,
            }
        }


class UsageError(SessiondexError):
    """The command line or call has the wrong form."""

    kind = "usage"
    exit_code = 2
    error_class = "invalid_argument"


class InvalidArgument(SessiondexError):
    """An argument has a value that cannot be served; the message names it."""

    kind = "invalid_argument"
    exit_code = 2
    error_class = "invalid_argument"


class NotFound(SessiondexError):
    """Nothing of that name is there, or it may not be seen: one class, one text."""

    kind = "not_found"
    exit_code = 3
    error_class = "invalid_argument"


class HiddenEntry(NotFound):
    """The source position exists but is never shown (reasoning, prompt, metadata, corrupt)."""

    kind = "hidden_entry"


class PastEnd(NotFound):
    """The ref lies behind the last record of the capture."""

    kind = "past_end"


class Stale(SessiondexError):
    """The ref or cursor belongs to a generation that was rewritten since."""

    kind = "stale"
    error_class = "invalid_argument"


class Busy(SessiondexError):
    """Another process holds the writer lock; the message names it."""

    kind = "busy"
    error_class = "failed"


class Failed(SessiondexError):
    """The request was right but could not be served (disk, network, another service)."""

    kind = "failed"
    error_class = "failed"


class UnsupportedVersion(SessiondexError):
    """The library was written by a newer release."""

    kind = "unsupported_version"
    error_class = "failed"


class Incomplete(SessiondexError):
    """A limit cut the work short, or part of the library cannot be read."""

    kind = "incomplete"
    exit_code = 4
    error_class = "failed"


class Damaged(SessiondexError):
    """Stored bytes differ from what was written. Names file, offset and check."""

    kind = "damaged"
    exit_code = 5
    error_class = "failed"


class InternalError(SessiondexError):
    """A fault of sessiondex itself."""
