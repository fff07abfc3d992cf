"""The life of one worker in this process: its states, and one turn at a time.

States: idle → running → idle or failed; stopping → stopped. What a turn says stays in the
worker's session; here is only that it ran and how it ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, Final, Protocol

from sessiondex.errors import InvalidArgument
from sessiondex.features.foreign_call import call_in_thread
from sessiondex.features.worker_rows import WorkerStatus
from sessiondex.indexer.capture import Capture

STOP_SECONDS: Final = 30.0
"""How long a stop waits for a turn that was cancelled."""

Wait = Callable[[Sequence["Future[Any]"]], None]
"""Waits until all futures are done or the deadline has passed."""


class Worker(Protocol):
    """The worker protocol. Synchronous: a turn runs in a thread of its own, in which a worker
    whose model loop is asynchronous runs its event loop."""

    def run_turn(self, message: str) -> None:
        """Takes a message and works until the turn is over; raises what makes the worker fail."""
        ...

    def cancel(self) -> None:
        """Asks a running turn to end soon; from any thread, any number of times."""
        ...

    def capture(self) -> Capture:
        """The committed session at this moment, also during a turn and after a failure."""
        ...


def until_stopped(futures: Sequence[Future[Any]]) -> None:
    """Waits until all are done, at most `STOP_SECONDS`."""
    wait_for(futures, timeout=STOP_SECONDS)


class WorkerTurns:
    """Runs the turns of one worker. Thread-safe."""

    def __init__(
        self,
        worker: Worker,
        *,
        name: str,
        clock: Callable[[], float],
        on_end: Callable[[WorkerStatus], None] | None = None,
        wait: Wait = until_stopped,
    ) -> None:
        """`on_end` is told, in the thread of the turn, how a turn ended that nobody stopped."""
        self.worker = worker
        self._name = name
        self._clock = clock
        self._on_end = on_end
        self._wait = wait
        self._lock = threading.Lock()
        self._status: WorkerStatus = "idle"
        self._turn: Future[None] | None = None
        self._last_seen = self._now()

    def _now(self) -> int:
        return int(self._clock() * 1000)

    @property
    def status(self) -> WorkerStatus:
        """The state at this moment."""
        return self._status

    @property
    def last_seen(self) -> int:
        """Epoch milliseconds of the last change of state."""
        return self._last_seen

    def send(self, message: str) -> None:
        """Begins a turn with a message; returns at once.

        Raises:
            InvalidArgument: the worker is not idle.
        """
        with self._lock:
            if self._status != "idle":
                raise InvalidArgument(
                    f"{self._name!r} is {self._status}; a message reaches an idle worker only",
                    hint=_HINTS[self._status],
                )
            self._set("running")
            turn = call_in_thread(lambda: self.worker.run_turn(message), name=f"turn-{self._name}")
            self._turn = turn
        turn.add_done_callback(self._ended)

    def stop(self) -> WorkerStatus:
        """Cancels a running turn, waits for its end, and gives the state: stopped, or stopping
        where the turn did not end by the deadline."""
        with self._lock:
            turn = self._turn
            if turn is None or turn.done():
                self._set("stopped")
                return self._status
            if self._status == "running":
                self._set("stopping")
        call_in_thread(self.worker.cancel, name=f"cancel-{self._name}")
        self._wait([turn])
        with self._lock:
            if turn.done():
                self._set("stopped")
            return self._status

    def _ended(self, turn: Future[None]) -> None:
        with self._lock:
            if self._status != "running":
                if self._status == "stopping":
                    self._set("stopped")
                return
            ended: WorkerStatus = "idle" if turn.exception() is None else "failed"
            self._set(ended)
        if self._on_end is not None:
            self._on_end(ended)

    def _set(self, status: WorkerStatus) -> None:
        if status != self._status:
            self._status = status
            self._last_seen = self._now()


_HINTS: Final[dict[WorkerStatus, str]] = {
    "running": "wait until you are told that its turn is over, or stop it",
    "stopping": "it is about to end",
    "stopped": "it takes no more messages",
    "failed": "read its session to learn why, then stop it",
}
