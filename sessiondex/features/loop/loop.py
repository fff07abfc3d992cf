"""`ModelLoop`: a model asks, a registry's tools answer, until the run is over or out of budget.

It knows no session, no staging and no provider: it holds a model, a registry and budgets. Every
reply goes through the registry's one gate and says what is left. Provider errors are tried again
by their class; nothing that a model says, and nothing that a provider does, raises out of a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from sessiondex.errors import InvalidArgument
from sessiondex.features.loop.answers import cleaned, tokens, within_calls
from sessiondex.features.loop.budget import LimitReason, Meter
from sessiondex.features.loop.models import ProviderFault, RetryPolicy
from sessiondex.features.registry import Registry
from sessiondex.features.reply import ToolReply
from sessiondex.limits import NUDGES

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, ToolCallPart
    from pydantic_ai.models import Model, ModelRequestParameters

EndReason = Literal["finished", "answered", "protocol", "provider", "cancelled"] | LimitReason
"""`finished`: a tool ended the run; `answered`: an answer without calls did, where it may."""

REQUEST_SECONDS: Final = 180.0
"""How long one request may take before it counts as hanging."""

_NUDGE: Final = (
    "That was text, and nobody reads it. Answer with calls of the tools; {finish} ends the run."
)
_DROPPED: Final = (
    "{dropped} calls of that answer were not looked at: one answer has at most {most}."
)
_ONLY_THE_END: Final = "Only {finish} is served now."


MOST_CALLS: Final = 200
"""Calls of one answer; more are taken out of it, so that no answer costs what it likes."""


class LoopEnd(NamedTuple):
    """How a run ended."""

    reason: EndReason
    detail: str
    """For people; '' where the reason says all. Holds nothing of a session."""


class Call(NamedTuple):
    """One call of a tool and its reply."""

    name: str
    reply: ToolReply

    @property
    def fault(self) -> str:
        """Why it could not be served, for no fault of the model; '' where it was, or could be."""
        if not self.reply.is_error:
            return ""
        error = self.reply.value["error"]
        is_models = error["class"] == "invalid_argument"
        return "" if is_models else f"{self.name} answered {error['kind']}"


@dataclass(frozen=True, kw_only=True)
class LoopHost:
    """What a loop gets of its host: time, chance, patience, and who listens."""

    clock: Callable[[], float]
    """Seconds that never go backward."""
    random: Callable[[], float]
    """Between 0 and 1; for the jitter of back-off."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    request_seconds: float = REQUEST_SECONDS
    on_progress: Callable[[Meter], None] = lambda meter: None
    """Told before every attempt, after every answer and every call."""
    on_message: Callable[[ModelMessage], None] = lambda message: None
    """Told of every message when it is part of the conversation."""


class ModelLoop:
    """One conversation of one model with the tools of one registry.

    `run` may be called again with a further message; a conversation has one run at a time.
    """

    def __init__(
        self,
        model: Model,
        registry: Registry,
        *,
        instructions: str,
        host: LoopHost,
        finishing: Sequence[str] = (),
        is_over: Callable[[], bool] = lambda: False,
        on_call: Callable[[Call], None] = lambda call: None,
        history: Sequence[ModelMessage] = (),
    ) -> None:
        """`finishing` names the tools that end a run; with none an answer without calls ends it.
        `is_over` is asked after each of their calls."""
        self.messages: list[ModelMessage] = list(history)
        self._model = model
        self._registry = registry
        self._instructions = instructions
        self._host = host
        self._finishing = tuple(finishing)
        self._is_over = is_over
        self._on_call = on_call
        # Set and read without a lock, because a signal handler may interrupt either: `run` first
        # says that it runs and then looks for a cancellation, `cancel` does it the other way round.
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[LoopEnd]] | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Ends the run as soon as no tool is at work; from any thread or signal handler, any
        number of times. One that comes when the run is over changes nothing."""
        self._is_cancelled = True
        running = self._running
        if running is not None:
            loop, task = running
            with suppress(RuntimeError):  # the loop was closed meanwhile, so the run is over
                loop.call_soon_threadsafe(task.cancel)

    async def run(self, message: str, meter: Meter) -> LoopEnd:
        """Sends a message and works until the run ends; counts on the meter.

        Cancelling the task that awaits it is no `cancel`: it raises `CancelledError` as ever.
        """
        if self._is_cancelled:
            return LoopEnd("cancelled", "before it began")
        awaiting = asyncio.current_task()
        assert awaiting is not None
        # A task of its own: a late cancellation of the run cannot reach what comes after it.
        task = asyncio.create_task(self._run(message, meter))
        self._running = asyncio.get_running_loop(), task
        if self._is_cancelled:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if awaiting.cancelling():
                raise
            return LoopEnd("cancelled", f"in turn {meter.turns + 1}")
        finally:
            self._running = None

    # ------------------------------------------------------------ turns

    async def _run(self, message: str, meter: Meter) -> LoopEnd:
        from pydantic_ai.messages import ModelRequest, ToolCallPart, UserPromptPart

        nudges = 0
        parts: list[ModelRequestPart] = [UserPromptPart(message)]
        while True:
            self._keep(ModelRequest(parts, instructions=self._instructions))
            limit = meter.exhausted
            if limit is not None:
                return LoopEnd(limit, "")
            is_reserve = meter.reserve is not None  # as the model was told
            answer = await self._answer(meter)
            if isinstance(answer, LoopEnd):
                return answer
            answer, dropped = within_calls(answer, MOST_CALLS)
            meter.add_answer(*tokens(answer, self.messages))
            self._keep(answer)
            self._host.on_progress(meter)
            calls = [part for part in answer.parts if isinstance(part, ToolCallPart)]
            if not all(_is_name(call.tool_name) and _is_name(call.tool_call_id) for call in calls):
                return LoopEnd("protocol", "a call without a name or an id")
            if not calls and not self._finishing:
                return LoopEnd("answered", "")
            if not calls:
                nudges += 1
                if nudges > NUDGES.maximum:
                    return LoopEnd("protocol", f"{nudges} answers without a call of a tool")
                parts = [UserPromptPart(self._with_left(self._nudge(), meter))]
                continue
            parts = []
            for call in calls:
                parts.append(self._serve(call, meter, is_reserve=is_reserve))
                if call.tool_name in self._finishing and self._is_over():
                    return LoopEnd("finished", "")
                await asyncio.sleep(0)  # a cancellation comes between two calls
            if dropped:
                parts.append(UserPromptPart(_DROPPED.format(dropped=dropped, most=MOST_CALLS)))

    def _keep(self, message: ModelMessage) -> None:
        self.messages.append(message)
        self._host.on_message(message)

    def _nudge(self) -> str:
        return _NUDGE.format(finish=" or ".join(self._finishing))

    # ------------------------------------------------------------ calls

    def _serve(self, call: ToolCallPart, meter: Meter, *, is_reserve: bool) -> ModelRequestPart:
        from pydantic_ai.messages import ToolReturnPart

        is_end = call.tool_name in self._finishing
        is_served = is_end or not (is_reserve or meter.spent)
        reply = self._reply(call) if is_served else ToolReply.of_error(_used_up(self._finishing))
        meter.add_reply(len(reply.data), is_served=is_served and not is_end)
        self._on_call(Call(call.tool_name, reply))
        self._host.on_progress(meter)
        # Also an error goes out as it is: marked as failed, some clients would wrap it.
        return ToolReturnPart(
            call.tool_name, self._with_left(reply.data.decode(), meter), call.tool_call_id
        )

    def _reply(self, call: ToolCallPart) -> ToolReply:
        arguments = call.args
        if arguments is None or isinstance(arguments, str):
            return self._registry.call_json(call.tool_name, arguments or "")
        return self._registry.call(call.tool_name, arguments)

    def _with_left(self, text: str, meter: Meter) -> str:
        lines = [text, meter.left.text]
        if meter.reserve is not None:
            finish = " or ".join(self._finishing) or "your answer"
            lines.append(_ONLY_THE_END.format(finish=finish))
        return "\n".join(lines)

    # ------------------------------------------------------------ requests

    async def _answer(self, meter: Meter) -> ModelResponse | LoopEnd:
        """The model's next answer, asked for again where that helps."""
        attempt = 0
        while True:
            attempt += 1
            answer = await self._ask(meter)
            if not isinstance(answer, ProviderFault):
                return cleaned(answer)
            if meter.seconds_left <= 0:
                return LoopEnd("deadline", "in a request")
            delay = self._host.retry.delay(attempt, answer, self._host.random)
            if delay is None:
                return LoopEnd("provider", f"{answer.kind}: {answer.detail}")
            if delay >= meter.seconds_left:
                late = "the next attempt would come after the deadline"
                return LoopEnd("deadline", f"{answer.kind}: {answer.detail}; {late}")
            await self._host.sleep(delay)

    async def _ask(self, meter: Meter) -> ModelResponse | ProviderFault:
        from pydantic_ai.direct import model_request

        from sessiondex.features.loop.models import provider_fault, request_settings

        self._host.on_progress(meter)
        seconds = max(min(self._host.request_seconds, meter.seconds_left), 0.001)
        try:
            async with asyncio.timeout(seconds):
                return await model_request(
                    self._model,
                    self.messages,
                    model_settings=request_settings(seconds),
                    model_request_parameters=self._parameters(),
                )
        except TimeoutError:
            return ProviderFault("timeout", True, None, f"no answer in {seconds:.0f} s")
        except Exception as error:  # noqa: BLE001 - whatever a provider does, a run ends with a reason
            return provider_fault(error)

    def _parameters(self) -> ModelRequestParameters:
        from pydantic_ai.messages import InstructionPart
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.tools import ToolDefinition

        announced = [tool.for_model() for tool in self._registry.tools]
        return ModelRequestParameters(
            function_tools=[
                ToolDefinition(
                    name=each["name"],
                    description=each["description"],
                    parameters_json_schema=each["parameters"],
                    strict=False,
                )
                for each in announced
            ],
            instruction_parts=[InstructionPart(content=self._instructions)],
        )


def _is_name(value: object) -> bool:
    """Whether it is a text with something in it; clients let pass whatever a server wrote."""
    return isinstance(value, str) and value != ""


def _used_up(finishing: Sequence[str]) -> InvalidArgument:
    hint = f"call {' or '.join(finishing)}" if finishing else "answer now"
    return InvalidArgument("what this run may use is used up, but for its end", hint=hint)
