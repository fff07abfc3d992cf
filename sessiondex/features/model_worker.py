"""`ModelWorker`: a worker that runs on the model loop and whose session is a log of its own.

What it says, calls and is told is committed to its journal as it happens, so that it can be
observed during a turn and after a failure, indexed like any agent's session, and restored. Of
what the model reasoned nothing is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sessiondex.errors import Failed, Incomplete, InvalidArgument, SessiondexError
from sessiondex.features.live_session import LiveSession
from sessiondex.features.loop.budget import Budgets, Meter
from sessiondex.features.loop.loop import LoopEnd, LoopHost, ModelLoop
from sessiondex.features.loop.models import opened
from sessiondex.features.observation import WorkerObservationProvider
from sessiondex.features.registry import Feature, OnFault, Registry
from sessiondex.features.services import ServiceKey, Services
from sessiondex.features.sub_worker import (
    SUB_WORKERS,
    SubWorkerFeature,
    SubWorkerRegistry,
    TurnCompleted,
)
from sessiondex.features.worker_journal import WorkerJournal
from sessiondex.features.worker_observation import PROVIDER, WorkerObservation
from sessiondex.features.worker_records import (
    Value,
    end_record,
    message_records,
    note_record,
    prompt_text,
    user_record,
)
from sessiondex.indexer.capture import Capture
from sessiondex.model import clean_text

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model

    from sessiondex.features.runtime import CreateWorkerRequest
    from sessiondex.features.subjects import SubWorker


class ModelWorker:
    """A worker of `features.turns` whose turns are runs of the model loop: one ends with an answer
    that calls no tool."""

    def __init__(
        self,
        model: Model,
        registry: Registry,
        journal: WorkerJournal,
        *,
        instructions: str,
        host: LoopHost,
        budgets: Budgets | None = None,
        children: SubWorkerRegistry | None = None,
        history: Sequence[ModelMessage] = (),
    ) -> None:
        """`model` is this worker's alone: its client belongs to one turn at a time. `budgets` are
        those of each turn. What is to be told of `children` stands before the next message.
        `history` is what `journal` was resumed with."""
        self._model = model
        self._journal = journal
        self._host = host
        self._budgets = budgets or Budgets()
        self._children = children
        self._live = LiveSession(journal.path, journal.root, journal.stub)
        self._opening: list[Value] = []
        self._untold: list[TurnCompleted] = []
        """Of the notifications that were taken: those that are not committed."""
        self._are_errors: list[bool] = []
        """Of the calls that were served since the last answer."""
        self._is_broken = False
        self._loop = ModelLoop(
            model,
            registry,
            instructions="\n\n".join(
                [instructions, *(each.text for each in registry.instructions)]
            ),
            host=replace(host, on_message=self._keep),
            on_call=lambda call: self._are_errors.append(call.reply.is_error),
            history=history,
        )

    # ------------------------------------------------------------ the worker protocol

    def run_turn(self, message: str) -> None:
        """Works until the model answers without a call, or is cancelled; in a thread that has no
        event loop. A blank message says nothing beyond what is to be told of children. Of that,
        what could not be committed is kept for the next turn, also of a restored worker.

        Raises:
            InvalidArgument: there is nothing to say.
            Incomplete: the turn came to one of its limits.
            Failed: the provider gave no answer, or the session could not be written.
            Busy: another worker is in a turn of this session.
        """
        if self._is_broken:
            raise Failed("the worker broke in an earlier turn", hint="restore it")
        with self._journal.open():
            notes = self._notes()
            if not message.strip() and not notes:
                raise InvalidArgument("the message is blank", hint="say what is to be done")
            said = clean_text(message) if message.strip() else ""
            self._opening = [note_record(each) for each in notes]
            self._opening += [user_record(said)] if said else []
            try:
                end = asyncio.run(self._turn(prompt_text(notes, said)))
                self._write_end(end)
                # What no provider would take back is left out of a restored conversation.
                self._is_broken = end.reason == "protocol"
            except BaseException as error:
                # What the model was told and what is committed may differ.
                self._is_broken = True
                with suppress(SessiondexError):
                    broke = note_record(f"The turn broke: {type(error).__name__}.")
                    self._journal.append([broke, end_record(is_error=True)])
                raise
            finally:
                self._give_back()
        _require_good(end)

    def cancel(self) -> None:
        """Ends a running turn as soon as no tool is at work, and every later one before it begins;
        from any thread, any number of times."""
        self._loop.cancel()

    def capture(self) -> Capture:
        """The committed session at this moment; costs what was written since the last one.

        Raises:
            NotFound: its log is gone.
            Failed: its log cannot be read.
        """
        return self._live.capture(now=self._journal.clock())

    # ------------------------------------------------------------ a turn

    def _notes(self) -> list[str]:
        if self._children is None:
            return []
        self._untold = self._children.take_notifications()
        return [each.text for each in self._untold]

    def _give_back(self) -> None:
        if self._children is not None and self._untold:
            self._children.give_back(self._untold)
        self._untold = []

    async def _turn(self, prompt: str) -> LoopEnd:
        async with opened(self._model):
            return await self._loop.run(prompt, Meter(self._budgets, clock=self._host.clock))

    def _keep(self, message: ModelMessage) -> None:
        """Commits a message before the next thing happens."""
        records = self._opening or message_records(message, self._are_errors)
        if message.kind == "request":
            self._opening, self._are_errors = [], []
        before = self._journal.record_count
        try:
            self._journal.append(records)
        finally:
            # Notifications are the first records of a turn.
            self._untold = self._untold[self._journal.record_count - before :]
        self._host.on_message(message)

    def _write_end(self, end: LoopEnd) -> None:
        if end.reason == "answered":
            self._journal.append([end_record()])
        elif end.reason == "cancelled":
            self._journal.append([note_record("The turn was cancelled."), end_record()])
        else:
            note = note_record(f"The turn failed: {_said(end)}.")
            self._journal.append([note, end_record(is_error=True)])


def _said(end: LoopEnd) -> str:
    return f"{end.reason} ({end.detail})" if end.detail else end.reason


def _require_good(end: LoopEnd) -> None:
    if end.reason in ("answered", "cancelled"):
        return
    if end.reason == "provider":
        raise Failed(f"the provider gave no answer: {end.detail}", hint="restore the worker later")
    raise Incomplete(
        f"the turn was cut short: {_said(end)}",
        hint="restore it with larger budgets, or give it less to do",
    )


# ---------------------------------------------------------------- making them

Tools = Callable[[WorkerObservationProvider | None, SubWorkerRegistry | None], Registry]
"""Makes the registry of one worker from what it may observe and the children it may have."""


def worker_tools(
    provider: WorkerObservationProvider | None,
    children: SubWorkerRegistry | None,
    *,
    features: Sequence[Feature] = (),
    services: dict[ServiceKey[Any], object] | None = None,
    on_fault: OnFault | None = None,
) -> Registry:
    """A registry with worker-observation and sub-worker where there is something for them, and
    the features of the host.

    Raises:
        Failed: a feature was not installed; says why.
    """
    provided: dict[ServiceKey[Any], object] = dict(services or {})
    wanted: list[Feature] = list(features)
    if provider is not None:
        provided[PROVIDER] = provider
        wanted.append(WorkerObservation())
    if children is not None:
        provided[SUB_WORKERS] = children
        wanted.append(SubWorkerFeature())
    registry = Registry(on_fault=on_fault)
    registry.install(wanted, Services(provided)).require_all()
    return registry


@dataclass(frozen=True, kw_only=True)
class ModelWorkers:
    """Makes model-run workers: as children of a worker, or for a `WorkerRuntime`."""

    root: Path
    """Where their sessions are kept."""
    open_model: Callable[[], Model]
    """A model for one worker, that no other one has."""
    instructions: str
    host: LoopHost
    clock: Callable[[], float]
    """Epoch seconds."""
    budgets: Budgets | None = None
    tools: Tools = worker_tools

    def spawn(
        self,
        children: SubWorkerRegistry,
        name: str,
        *,
        parent: str,
        display_name: str = "",
        is_restore: bool = False,
    ) -> SubWorker:
        """Makes a child of a worker and takes it in. `parent` names the worker among all others,
        so that its children have sessions of their own; a restored child goes on with its last.

        Raises:
            InvalidArgument: the name is malformed or taken, or there are too many children.
            NotFound: there is no session to restore.
            Failed: its log cannot be made or read.
        """
        session = worker_session(parent, name)
        journal, worker = self._make(session, None, None, is_restore=is_restore)
        try:
            return children.add(name, worker, display_name=display_name)
        except SessiondexError:
            if not is_restore:
                journal.discard()
            raise

    def __call__(
        self,
        request: CreateWorkerRequest,
        provider: WorkerObservationProvider | None,
        children: SubWorkerRegistry | None,
    ) -> ModelWorker:
        """The `MakeWorker` of a runtime; see `spawn`."""
        session = worker_session(request.runtime_id, request.worker_id)
        return self._make(session, provider, children, is_restore=request.is_restore)[1]

    def _make(
        self,
        session: str,
        provider: WorkerObservationProvider | None,
        children: SubWorkerRegistry | None,
        *,
        is_restore: bool,
    ) -> tuple[WorkerJournal, ModelWorker]:
        registry, model = self.tools(provider, children), self.open_model()
        history: Sequence[ModelMessage] = ()
        if is_restore:
            journal, history = WorkerJournal.resume(
                self.root, session, model=model.model_name, clock=self.clock
            )
        else:
            journal = WorkerJournal.begin(
                self.root, session, model=model.model_name, clock=self.clock
            )
        worker = ModelWorker(
            model, registry, journal, instructions=self.instructions, host=self.host,
            budgets=self.budgets, children=children, history=history,
        )  # fmt: skip
        return journal, worker


SESSION_CHARACTERS: Final = 32


def worker_session(owner: str, name: str) -> str:
    """The name of a worker's session: the same each time, and telling nothing of either."""
    return hashlib.sha256(f"{owner}\0{name}".encode()).hexdigest()[:SESSION_CHARACTERS]
