"""A policy as a model: pydantic-ai's `FunctionModel` answers with the calls that it makes.

A policy is handed the first message of the run and then the replies to its calls, as JSON: what
any model sees, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models.function import AgentInfo, FunctionModel

_LEFT: Final = re.compile(r"\[left: (\d+) turns, (\d+) calls, (\d+) KiB")


class ToolCall(NamedTuple):
    """A call that a policy wants to make."""

    name: str
    arguments: dict[str, Any]


class Reply(NamedTuple):
    """What a call was answered with, and what the run has left."""

    name: str
    value: dict[str, Any]
    turns_left: int
    calls_left: int
    kib_left: int

    @property
    def is_error(self) -> bool:
        """The call was refused."""
        return "error" in self.value


Steps = Generator[Sequence[ToolCall], Sequence[Reply], None]
"""Yields the calls of one answer, is sent their replies, and so on until it finishes the run."""

Policy = Callable[[str], Steps]
"""Begins with the first message."""


class ScriptedModel:
    """One conversation of one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._steps: Steps | None = None

    def model(self, name: str) -> FunctionModel:
        """The model to hand to a run."""
        from pydantic_ai.models.function import FunctionModel

        return FunctionModel(self._answer, model_name=name)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, UserPromptPart

        try:
            if self._steps is None:
                part = messages[0].parts[0]
                assert isinstance(part, UserPromptPart) and isinstance(part.content, str)
                self._steps = self._policy(part.content)
                calls = next(self._steps)
            else:
                calls = self._steps.send(_replies(messages[-1]))
        except StopIteration:
            return ModelResponse([TextPart("I have nothing to add.")])
        return ModelResponse([ToolCallPart(call.name, call.arguments) for call in calls])


def _replies(message: ModelMessage) -> list[Reply]:
    from pydantic_ai.messages import ToolReturnPart

    found: list[Reply] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            data, _, rest = str(part.content).partition("\n")
            left = _LEFT.search(rest)
            assert left is not None
            turns, calls, kib = map(int, left.groups())
            found.append(Reply(part.tool_name, json.loads(data), turns, calls, kib))
    return found
