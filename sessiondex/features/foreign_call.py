"""Calls of code that is not ours: in a thread of their own, so that they can be left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def call_in_thread(function: Callable[[], T], *, name: str) -> Future[T]:
    """Runs a function in a daemon thread; whatever it raises is in the future.

    The thread hinders no exit of the process, so one that hangs can be left.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - handed on, to whoever asks the future
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
