"""Scripted models with a character, and a host that runs the extract worker with them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.report import ExtractResult
from sessiondex.features.extract.runner import ExtractHost, Extraction
from sessiondex.features.loop.budget import Budgets
from sessiondex.features.loop.loop import LoopHost
from sessiondex.features.loop.models import RetryPolicy
from sessiondex.features.services import Clock, RunRange
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.staging.ids import RecordIds
from sessiondex.features.state import State
from sessiondex.indexer.capture import Capture
from tests.features.extract_runs import NOW_MS

Answer = ModelResponse | Exception
Turn = Callable[["Talk"], Answer]


class Talk:
    """What a scripted model sees when it is to answer."""

    def __init__(self, messages: list[ModelMessage], info: AgentInfo) -> None:
        self.messages = messages
        self.info = info

    @property
    def first(self) -> str:
        """The first message."""
        part = self.messages[0].parts[0]
        assert isinstance(part, UserPromptPart) and isinstance(part.content, str)
        return part.content

    @property
    def returns(self) -> list[ToolReturnPart]:
        """The replies to the last answer's calls."""
        last = self.messages[-1]
        assert isinstance(last, ModelRequest)
        return [part for part in last.parts if isinstance(part, ToolReturnPart)]

    @property
    def replies(self) -> list[dict[str, Any]]:
        """The same as JSON, without what is left."""
        return [json.loads(str(part.content).partition("\n")[0]) for part in self.returns]

    @property
    def staged_count(self) -> int:
        """As the last reply that names it said."""
        for message in reversed(self.messages):
            for part in reversed(message.parts):
                if isinstance(part, ToolReturnPart):
                    value = json.loads(str(part.content).partition("\n")[0])
                    if "staged_count" in value:
                        return value["staged_count"]
        return 0


def calls(*named: tuple[str, dict[str, Any] | str]) -> ModelResponse:
    """An answer with calls."""
    return ModelResponse([ToolCallPart(name, arguments) for name, arguments in named])


def prose(text: str = "I think there is nothing to do.") -> ModelResponse:
    return ModelResponse([TextPart(text)])


def stage(claim: str, *refs: str, kind: str = "constraint", **more: Any) -> tuple[str, Any]:
    arguments = {
        "kind": kind, "claim": claim, "why_useful": "It would be done wrong otherwise.",
        "entry_refs": list(refs), **more,
    }  # fmt: skip
    return "StageMemoryCandidate", arguments


def read(*refs: str) -> tuple[str, Any]:
    return "ReadEntry", {"entry_refs": list(refs)}


def finish(count: int, reason: str | None = None) -> tuple[str, Any]:
    return "FinishMemoryExtraction", {"staged_count": count} | (
        {} if reason is None else {"no_candidates_reason": reason}
    )


class Scripted:
    """A model that answers by turns; the last turn is repeated. Keeps what it was asked."""

    def __init__(self, turns: Sequence[Turn | Answer]) -> None:
        self._turns = list(turns)
        self.talks: list[Talk] = []
        self.model = FunctionModel(self._answer, model_name="scripted")

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        talk = Talk(list(messages), info)
        turn = self._turns[min(len(self.talks), len(self._turns) - 1)]
        self.talks.append(talk)
        answer = turn if isinstance(turn, ModelResponse | Exception) else turn(talk)
        if isinstance(answer, Exception):
            raise answer
        # Each answer is made anew: a message belongs to one conversation.
        return replace(answer, parts=[replace(part) for part in answer.parts])


class Ticking:
    """Seconds that pass only when a test or a sleep says so."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class World:
    """A state, a staging folder and a clock, in which extractions run."""

    def __init__(self, folder: Path, *, state: Path | None = None) -> None:
        self.folder = folder
        self.ledger = ExtractLedger(State.open(state))
        self.staging = StagingFolder(folder / "staging")
        self.clock = Ticking()
        self.now = NOW_MS
        self.faults: list[Exception] = []
        self._numbers = itertools.count(1)
        self.run_ids = (f"run-{number}" for number in itertools.count(1))

    def now_ms(self) -> int:
        return self.now

    def host(self, current: Callable[[], Capture], **changes: Any) -> ExtractHost:
        host = ExtractHost(
            ledger=self.ledger,
            backend=self.staging,
            records_of_run=self.staging.of_run,
            current=current,
            ids=RecordIds(
                now_ms=self.now_ms, random_bytes=lambda n: next(self._numbers).to_bytes(n, "big")
            ),
            run_id=next(self.run_ids),
            holder="tester",
            now_ms=self.now_ms,
            loop=LoopHost(
                clock=self.clock, random=lambda: 0.5, sleep=self.clock.sleep,
                retry=RetryPolicy(attempts=3),
            ),
            clock=Clock(),
            on_fault=lambda name, error: self.faults.append(error),
        )  # fmt: skip
        return replace(host, **changes)

    def extraction(
        self,
        capture: Capture,
        script: Scripted,
        *,
        run_range: RunRange | None = None,
        budgets: Budgets | None = None,
        current: Callable[[], Capture] | None = None,
        **changes: Any,
    ) -> Extraction:
        return Extraction(
            capture, script.model, self.host(current or (lambda: capture), **changes),
            model_name="scripted", run_range=run_range, budgets=budgets,
        )  # fmt: skip

    def run(
        self, capture: Capture, turns: Scripted | Iterable[Turn | Answer], **options: Any
    ) -> ExtractResult:
        script = turns if isinstance(turns, Scripted) else Scripted(list(turns))
        return self.extraction(capture, script, **options).run()

    def claims(self) -> list[str]:
        """The claims that wait in the staging folder."""
        return [record.claim for record in self.staging.waiting().records]

    def pointer(self, session: str = "s1") -> int | None:
        found = self.ledger.pointer(session)
        return None if found is None else found.records
