"""The one place where what tantivy raises becomes an error of ours."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sessiondex.errors import Busy, Damaged, Failed, SessiondexError


@contextmanager
def engine_errors(what: str) -> Generator[None]:
    """Turns what tantivy raises into our errors; its panics mean damaged files.

    Raises:
        Busy: another writer holds the index.
        Failed: the disk or the engine refused.
        Damaged: the engine panicked, or says that a file is corrupt.
    """
    try:
        yield
    except SessiondexError:
        raise
    except (ValueError, OSError) as error:
        if "LockBusy" in str(error):
            raise Busy(f"cannot {what}: another writer holds the index") from error
        if "corrupt" in str(error):
            raise _damaged(what, error) from error
        raise Failed(f"cannot {what}: {error}") from error
    except BaseException as error:
        # pyo3's PanicException is no Exception and cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise _damaged(what, error) from error


def _damaged(what: str, error: BaseException) -> Damaged:
    return Damaged(f"cannot {what}: {error}", hint="run 'sessiondex check --repair'")
