"""Models that say what a test wrote for them; nothing is ever sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sessiondex.features.loop.loop import LoopHost
from tests.features.made_workers import PATIENCE

Answer = (
    str | ToolCallPart | ModelResponsePart | Sequence[ModelResponsePart] | Exception
    | Callable[[list[ModelMessage]], Any]
)  # fmt: skip
"""A text, a call, several parts, an error of the provider, or a function of what was said."""


class Script:
    """Answers one after the other; the last one again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[list[ModelMessage]] = []
        self.infos: list[AgentInfo] = []
        self.is_asked = threading.Event()
        self.model = FunctionModel(self._answer, model_name="script")

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(list(messages))
        self.infos.append(info)
        self.is_asked.set()
        answer: Any = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer = answer(messages)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            answer = TextPart(answer)
        return ModelResponse(list(answer) if isinstance(answer, (list, tuple)) else [answer])


def call(name: str, id: str = "c1", /, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(name, arguments, tool_call_id=id)


async def never(*_: Any) -> str:
    """An answer that does not come."""
    await asyncio.Event().wait()
    return ""


def noted(event: threading.Event, answer: Callable[..., Any]) -> Callable[..., Any]:
    """The same answer; the event is set when it is asked for."""

    def noting(messages: list[ModelMessage]) -> Any:
        event.set()
        return answer(messages)

    return noting


def held(goes_on: threading.Event, text: str) -> Callable[[list[ModelMessage]], Any]:
    """An answer that comes when a test lets it."""

    async def answer() -> str:
        assert await asyncio.to_thread(goes_on.wait, PATIENCE)
        return text

    return lambda messages: answer()


def told(messages: Sequence[ModelMessage]) -> list[str]:
    """What a model was told by people and host."""
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def results(messages: Sequence[ModelMessage]) -> list[str]:
    """What tools have answered to a model."""
    return [
        str(part.content)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


class StillClock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def no_sleep(seconds: float) -> None:
    """Waits for nothing."""


def loop_host(**options: Any) -> LoopHost:
    options.setdefault("clock", StillClock())
    return LoopHost(random=lambda: 0.5, sleep=no_sleep, **options)
