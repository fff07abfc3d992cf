"""`builtin:sub-worker`: the children of a worker, and the tools for their life cycle.

No tool here returns what a child said: that is read through worker-observation, as evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from sessiondex.errors import InvalidArgument, NotFound
from sessiondex.features.observation import ObservableWorker
from sessiondex.features.registry import Contribution, FeatureDescriptor, Skipped
from sessiondex.features.services import ServiceKey, Services
from sessiondex.features.subjects import SubWorker, sub_worker
from sessiondex.features.tool import Annotations, Text, Tool, ToolInput, ToolOutput
from sessiondex.features.turns import Wait, Worker, WorkerTurns, until_stopped
from sessiondex.features.worker_rows import WorkerStatus
from sessiondex.limits import CHILD_MESSAGE, SUBJECTS
from sessiondex.query.entry_view import shown_field

# ---------------------------------------------------------------- the registry of children


class TurnCompleted(NamedTuple):
    """A notification that a child's turn is over; carries nothing of what was said."""

    subject: SubWorker
    status: WorkerStatus
    """idle, or failed."""

    @property
    def text(self) -> str:
        """The notification as a host puts it before the parent."""
        how = "has finished its turn" if self.status == "idle" else "has failed in its turn"
        return (
            f"Sub-worker {self.subject.name!r} {how} and is {self.status}."
            f" Its session may be read with the subject {self.subject.model_dump_json()}."
        )


class ChildState(NamedTuple):
    """A child and its state at this moment."""

    subject: SubWorker
    display_name: str
    status: WorkerStatus
    last_seen: int
    """Epoch milliseconds."""


class _Child(NamedTuple):
    subject: SubWorker
    display_name: str
    turns: WorkerTurns

    def state(self) -> ChildState:
        return ChildState(self.subject, self.display_name, self.turns.status, self.turns.last_seen)


class SubWorkerRegistry:
    """The children of one worker. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float], wait: Wait = until_stopped) -> None:
        self._clock = clock
        self._wait = wait
        self._lock = threading.Lock()
        self._children: dict[str, _Child] = {}
        self._notifications: list[TurnCompleted] = []

    def add(self, name: str, worker: Worker, *, display_name: str = "") -> SubWorker:
        """Takes in an idle child. The name of a stopped one may be used again.

        Raises:
            InvalidArgument: the name is malformed or taken, or there are too many children.
        """
        subject = sub_worker(name)
        turns = WorkerTurns(
            worker, name=name, clock=self._clock, wait=self._wait,
            on_end=lambda status: self._notify(TurnCompleted(subject, status)),
        )  # fmt: skip
        with self._lock:
            for other, child in list(self._children.items()):
                if child.turns.status == "stopped" and (
                    other == name or len(self._children) >= SUBJECTS.maximum
                ):
                    del self._children[other]
            if name in self._children:
                raise InvalidArgument(
                    f"a sub-worker {name!r} is there already", hint="choose another name"
                )
            if len(self._children) >= SUBJECTS.maximum:
                raise InvalidArgument(
                    f"there are {SUBJECTS.maximum} sub-workers already", hint="stop one first"
                )
            self._children[name] = _Child(subject, display_name or name, turns)
        return subject

    def children(self) -> list[ChildState]:
        """All children, the stopped ones too, those that changed last first."""
        with self._lock:
            found = [child.state() for child in self._children.values()]
        return sorted(found, key=lambda child: -child.last_seen)

    def send(self, name: str, message: str) -> ChildState:
        """Begins a turn of an idle child; returns at once.

        Raises:
            NotFound: there is no such child.
            InvalidArgument: it is not idle, or the message is blank or too long.
        """
        size = len(message.encode("utf-8", "replace"))
        if not message.strip():
            raise InvalidArgument("the message is blank", hint="say what the child is to do")
        if size > CHILD_MESSAGE.maximum:
            raise InvalidArgument(
                f"the message has {size} bytes", hint=f"expected at most {CHILD_MESSAGE.maximum}"
            )
        child = self._child(name)
        child.turns.send(message)
        return child.state()

    def stop(self, name: str) -> ChildState:
        """Cancels the child's turn, if one runs, and waits for its end; see `WorkerTurns.stop`.

        Raises:
            NotFound: there is no such child.
        """
        child = self._child(name)
        child.turns.stop()
        return child.state()

    def take_notifications(self) -> list[TurnCompleted]:
        """What ended since the last call; a host asks between the turns of the parent."""
        with self._lock:
            taken, self._notifications = self._notifications, []
        return taken

    def give_back(self, notifications: Sequence[TurnCompleted]) -> None:
        """Keeps notifications that were taken and not told to the parent, before later ones."""
        with self._lock:
            self._notifications[:0] = notifications

    def _notify(self, notification: TurnCompleted) -> None:
        with self._lock:
            self._notifications.append(notification)

    def _child(self, name: str) -> _Child:
        with self._lock:
            child = self._children.get(name)
        if child is None:
            raise NotFound("no such sub-worker", hint="use a name that SubWorkerList returned")
        return child

    # ------------------------------------------------------------ observation

    def observable(self) -> Sequence[ObservableWorker]:
        """The children that are not stopped: failed ones stay until they are."""
        with self._lock:
            children = list(self._children.values())
        return [_observable(child) for child in children if child.turns.status != "stopped"]

    def observable_one(self, name: str) -> ObservableWorker | None:
        """One child that is not stopped."""
        with self._lock:
            child = self._children.get(name)
        if child is None or child.turns.status == "stopped":
            return None
        return _observable(child)


def _observable(child: _Child) -> ObservableWorker:
    state = child.state()
    return ObservableWorker(
        child.subject.name, state.display_name, state.status, state.last_seen, child.turns.worker
    )


# ---------------------------------------------------------------- the tools


class SubWorkerListInput(ToolInput):
    """No arguments."""


class _NamedInput(ToolInput):
    name: Annotated[Text, Field(description="Name of the child, as SubWorkerList returned it.")]


class SubWorkerSendInput(_NamedInput):
    """A child and what it is told."""

    message: Annotated[
        Text,
        Field(description=f"What the child is to do; at most {CHILD_MESSAGE.maximum:,} bytes."),
    ]


class SubWorkerStopInput(_NamedInput):
    """A child."""


class ChildOutput(ToolOutput):
    """One child."""

    subject: SubWorker
    display_name: str
    status: WorkerStatus


class ChildrenOutput(ToolOutput):
    """All children."""

    children: list[ChildOutput]


LIST_TOOL: Final = Tool(
    "SubWorkerList",
    "Lists your sub-workers and their states: idle, running, stopping, stopped, failed."
    " What they said is read with ViewSessionOverview, SearchSessionEntries, ReadSessionEntry.",
    SubWorkerListInput,
    ChildrenOutput,
)

SEND_TOOL: Final = Tool(
    "SubWorkerSend",
    "Sends a message to an idle sub-worker, which begins a turn; returns at once. You are told"
    " when the turn is over.",
    SubWorkerSendInput,
    ChildOutput,
    Annotations(read_only=False, idempotent=False),
)

STOP_TOOL: Final = Tool(
    "SubWorkerStop",
    "Stops a sub-worker for good: cancels its turn, if one runs, and waits for the end. A stopped"
    " sub-worker can no longer be observed; read a failed one first.",
    SubWorkerStopInput,
    ChildOutput,
    Annotations(read_only=False, destructive=True),
)

SUB_WORKERS: Final = ServiceKey("sub_workers", SubWorkerRegistry)


class SubWorkerFeature:
    """Installs the tools for the children in the service `sub_workers`."""

    descriptor = FeatureDescriptor(
        id="builtin:sub-worker",
        display_name="Sub-workers",
        description="Life cycle of the children of a worker.",
        tools=(LIST_TOOL, SEND_TOOL, STOP_TOOL),
        requires=(SUB_WORKERS,),
    )

    def contribute(self, services: Services) -> Sequence[Contribution[Any] | Skipped]:
        """The three tools."""
        children = services.require(SUB_WORKERS)

        def list_children(_: SubWorkerListInput) -> dict[str, Any]:
            return {"children": [_shown(child) for child in children.children()]}

        def send(asked: SubWorkerSendInput) -> dict[str, Any]:
            return _shown(children.send(asked.name, asked.message))

        def stop(asked: SubWorkerStopInput) -> dict[str, Any]:
            return _shown(children.stop(asked.name))

        return (
            Contribution.of(LIST_TOOL, list_children),
            Contribution.of(SEND_TOOL, send),
            Contribution.of(STOP_TOOL, stop),
        )


def _shown(child: ChildState) -> dict[str, Any]:
    return {
        "subject": child.subject.model_dump(),
        "display_name": shown_field(child.display_name),
        "status": child.status,
    }
