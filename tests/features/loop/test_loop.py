"""The model loop by itself: budgets, the reserve, retries, deadlines and cancellation."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Annotated, Any

import pydantic_ai.models
import pytest
from pydantic import Field
from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError
from pydantic_ai.models.function import FunctionModel

from sessiondex.errors import InvalidArgument
from sessiondex.features.loop.budget import Budgets, Meter
from sessiondex.features.loop.loop import MOST_CALLS, LoopEnd, LoopHost, ModelLoop
from sessiondex.features.loop.models import RetryPolicy, opened
from sessiondex.features.registry import Contribution, Registry
from sessiondex.features.tool import Text, Tool, ToolInput, ToolOutput
from sessiondex.limits import LOOP_TURNS, REPLY_BYTES
from tests.features.extract.scripted import Scripted, Ticking, calls, prose


@pytest.fixture(autouse=True)
def _no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic_ai.models, "ALLOW_MODEL_REQUESTS", False)


class EchoInput(ToolInput):
    """What to echo."""

    text: Annotated[Text, Field(description="The text.")]


class EchoOutput(ToolOutput):
    """The echo."""

    text: str


ECHO = Tool("Echo", "Says it again.", EchoInput, EchoOutput)
END = Tool("End", "Ends the run.", EchoInput, EchoOutput)


class Stage:
    """A registry with two tools, a clock, and the loops over them."""

    def __init__(self) -> None:
        self.clock = Ticking()
        self.is_over = False
        self.seen: list[str] = []
        self.on_echo: Callable[[str], None] = lambda text: None
        self.registry = Registry()
        self.registry.add(Contribution.of(ECHO, self._echo))
        self.registry.add(Contribution.of(END, self._end))
        self.host = LoopHost(
            clock=self.clock, random=lambda: 0.5, sleep=self.clock.sleep,
            retry=RetryPolicy(attempts=3),
        )  # fmt: skip

    def _echo(self, asked: EchoInput) -> dict[str, Any]:
        self.seen.append(asked.text)
        self.on_echo(asked.text)
        return {"text": asked.text}

    def _end(self, asked: EchoInput) -> dict[str, Any]:
        self.is_over = True
        return {"text": asked.text}

    def loop(self, script: Scripted, *, finishing: tuple[str, ...] = ("End",)) -> ModelLoop:
        return ModelLoop(
            script.model, self.registry, instructions="Echo.", host=self.host,
            finishing=finishing, is_over=lambda: self.is_over,
        )  # fmt: skip

    def run(
        self,
        script: Scripted,
        *,
        finishing: tuple[str, ...] = ("End",),
        **budgets: int,
    ) -> tuple[LoopEnd, Meter]:
        meter = Meter(Budgets(**budgets), clock=self.clock)
        return asyncio.run(self.loop(script, finishing=finishing).run("begin", meter)), meter


def echo(text: str = "again") -> tuple[str, Any]:
    return "Echo", {"text": text}


END_CALL = ("End", {"text": "over"})


def test_a_run_ends_when_a_finishing_tool_says_so() -> None:
    stage = Stage()
    end, meter = stage.run(Scripted([calls(echo()), calls(END_CALL)]))
    assert end == LoopEnd("finished", "") and stage.seen == ["again"]
    assert (meter.turns, meter.calls) == (2, 1)


def test_a_finishing_tool_that_refuses_does_not_end_the_run() -> None:
    stage = Stage()
    end, _ = stage.run(Scripted([calls(("End", {})), calls(END_CALL)]))
    assert end.reason == "finished"


def test_calls_of_one_answer_are_served_in_their_order() -> None:
    stage = Stage()
    stage.run(Scripted([calls(echo("a"), echo("b"), echo("c")), calls(END_CALL)]))
    assert stage.seen == ["a", "b", "c"]


def test_an_answer_without_calls_ends_a_run_that_has_no_finishing_tool() -> None:
    stage = Stage()
    end, _ = stage.run(Scripted([calls(echo()), prose("done")]), finishing=())
    assert end.reason == "answered"


def test_a_loop_keeps_its_conversation_for_a_further_message() -> None:
    stage = Stage()
    script = Scripted([prose("one"), prose("two")])
    loop = stage.loop(script, finishing=())
    for message in ("first", "second"):
        asyncio.run(loop.run(message, Meter(Budgets(), clock=stage.clock)))
    assert len(script.talks[1].messages) == 3 and len(loop.messages) == 4


def test_the_budget_of_calls_refuses_the_rest_of_an_answer() -> None:
    stage = Stage()
    script = Scripted([calls(*(echo(str(n)) for n in range(5))), calls(END_CALL)])
    end, meter = stage.run(script, calls=3)
    assert end.reason == "finished" and stage.seen == ["0", "1", "2"] and meter.calls == 3
    kinds = ["error" in reply for reply in script.talks[1].replies]
    assert kinds == [False, False, False, True, True]


def test_the_budget_of_bytes_is_never_passed() -> None:
    stage = Stage()
    script = Scripted([calls(*(echo("x" * 30_000) for _ in range(10)))])
    end, meter = stage.run(script, shown_bytes=3 * REPLY_BYTES.maximum)
    assert end == LoopEnd("token_limit", "")
    assert meter.shown_bytes <= 3 * REPLY_BYTES.maximum
    assert len(script.talks) == 3  # the answer that used it up, and the reserve


def test_tokens_are_the_providers_and_end_the_run() -> None:
    stage = Stage()
    script = Scripted([calls(echo("y " * 2_000))])
    end, meter = stage.run(script, tokens=20_000)
    assert end.reason == "token_limit"
    assert meter.input_tokens > 0 < meter.output_tokens
    assert "Only End is served now" in str(script.talks[-1].returns[-1].content)


def test_a_run_past_its_wall_clock_ends_at_the_deadline() -> None:
    stage = Stage()

    def late(text: str) -> None:
        stage.clock.now += 40

    stage.on_echo = late
    end, meter = stage.run(Scripted([calls(echo())]), seconds=100)
    assert end.reason == "deadline" and meter.seconds >= 100


def test_the_reserve_is_announced_before_it_applies() -> None:
    stage = Stage()
    script = Scripted([calls(echo())])
    end, _ = stage.run(script, turns=5)
    assert end.reason == "turn_limit" and len(script.talks) == 5
    assert stage.seen == ["again"] * 3
    for talk, is_told in zip(script.talks[1:], [False, False, True, True], strict=True):
        assert ("Only End is served" in str(talk.returns[0].content)) == is_told


def test_budgets_below_one_are_refused_and_above_the_maximum_clamped() -> None:
    with pytest.raises(InvalidArgument, match="turns is 0"):
        Budgets.of(turns=0)
    budgets, notes = Budgets.of(turns=10**9)
    assert budgets.turns == LOOP_TURNS.maximum and [note.code for note in notes] == ["clamped"]
    assert Budgets.of(turns=None) == (Budgets(), [])


def limited(retry_after: float | None = None) -> ModelRateLimitError:
    return ModelRateLimitError(model_name="m", message="slow down", retry_after=retry_after)


def test_a_fault_that_may_pass_is_tried_again_after_a_growing_wait() -> None:
    stage = Stage()
    end, meter = stage.run(Scripted([limited(), limited(), calls(END_CALL)]))
    assert end.reason == "finished" and meter.turns == 1
    first, second = stage.clock.slept
    assert 0 < first < second


def test_the_wait_that_a_provider_asks_for_is_kept() -> None:
    stage = Stage()
    stage.run(Scripted([limited(17.0), calls(END_CALL)]))
    assert stage.clock.slept[0] >= 17.0


def test_a_fault_that_stays_ends_the_run_after_the_last_attempt() -> None:
    stage = Stage()
    script = Scripted([limited()])
    end, _ = stage.run(script)
    assert end.reason == "provider" and end.detail.startswith("rate_limit")
    assert len(script.talks) == 3


def test_a_fault_that_cannot_pass_is_not_tried_again() -> None:
    stage = Stage()
    script = Scripted([ModelHTTPError(status_code=400, model_name="m", body="bad")])
    end, _ = stage.run(script)
    assert end.reason == "provider" and len(script.talks) == 1 and not stage.clock.slept


def test_a_wait_beyond_the_deadline_ends_the_run_there() -> None:
    stage = Stage()
    end, _ = stage.run(Scripted([limited(60.0)]), seconds=30)
    assert end.reason == "deadline" and not stage.clock.slept


def test_a_model_that_hangs_is_given_up_at_the_deadline() -> None:
    stage = Stage()
    released = threading.Event()

    def hang(talk: Any) -> Any:
        stage.clock.now += 100  # the wall clock passes while nothing comes
        released.wait(30)
        return prose()

    stage.host = replace(stage.host, request_seconds=0.05)
    script = Scripted([hang])
    loop = stage.loop(script)

    async def run() -> LoopEnd:
        try:
            return await loop.run("begin", Meter(Budgets(seconds=50), clock=stage.clock))
        finally:
            released.set()

    assert asyncio.run(run()) == LoopEnd("deadline", "in a request")


def test_cancelling_from_another_thread_ends_a_request_that_hangs() -> None:
    stage = Stage()
    asked, released = threading.Event(), threading.Event()

    def hang(talk: Any) -> Any:
        asked.set()
        released.wait(30)
        return prose()

    loop = stage.loop(Scripted([hang]))
    ends: list[LoopEnd] = []

    async def run() -> None:
        try:
            ends.append(await loop.run("begin", Meter(Budgets(), clock=stage.clock)))
        finally:
            released.set()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert asked.wait(30)
    loop.cancel()
    loop.cancel()
    thread.join(30)
    assert ends == [LoopEnd("cancelled", "in turn 1")]


def test_a_loop_that_was_cancelled_before_it_began_asks_nothing() -> None:
    stage = Stage()
    script = Scripted([calls(END_CALL)])
    loop = stage.loop(script)
    loop.cancel()
    end = asyncio.run(loop.run("begin", Meter(Budgets(), clock=stage.clock)))
    assert end.reason == "cancelled" and not script.talks


def test_cancelling_between_two_calls_of_an_answer_leaves_the_second_undone() -> None:
    stage = Stage()
    loops: list[ModelLoop] = []
    stage.on_echo = lambda text: loops[0].cancel()
    loops.append(stage.loop(Scripted([calls(echo("a"), echo("b"))])))
    end = asyncio.run(loops[0].run("begin", Meter(Budgets(), clock=stage.clock)))
    assert end.reason == "cancelled" and stage.seen == ["a"]


def test_progress_is_told_after_every_answer_and_call() -> None:
    stage = Stage()
    told: list[tuple[int, int]] = []
    stage.host = replace(
        stage.host, on_progress=lambda meter: told.append((meter.turns, meter.calls))
    )
    stage.run(Scripted([calls(echo(), echo()), calls(END_CALL)]))
    assert told == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 2), (2, 2), (2, 2)]


def test_only_the_tools_of_the_registry_are_announced() -> None:
    stage = Stage()
    script = Scripted([calls(END_CALL)])
    stage.run(script)
    info = script.talks[0].info
    assert [tool.name for tool in info.function_tools] == ["Echo", "End"]
    assert info.function_tools[0].parameters_json_schema == ECHO.input_schema()
    assert info.instructions == "Echo."


def test_a_cancellation_that_comes_when_the_run_is_over_changes_nothing() -> None:
    stage = Stage()
    loops: list[ModelLoop] = []

    def late(meter: Meter) -> None:
        if stage.is_over:
            loops[0].cancel()

    stage.host = replace(stage.host, on_progress=late)
    loops.append(stage.loop(Scripted([calls(END_CALL)])))

    async def run() -> LoopEnd:
        end = await loops[0].run("begin", Meter(Budgets(), clock=stage.clock))
        await asyncio.sleep(0)  # where a late cancellation would come in
        await asyncio.sleep(0)
        return end

    assert asyncio.run(run()).reason == "finished"


def test_cancelling_the_task_that_awaits_a_run_is_raised_to_it() -> None:
    stage = Stage()
    asked = asyncio.Event()

    async def hang(messages: Any, info: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    loop = ModelLoop(
        FunctionModel(hang), stage.registry, instructions="", host=stage.host, finishing=("End",)
    )

    async def run() -> None:
        task = asyncio.create_task(loop.run("begin", Meter(Budgets(), clock=stage.clock)))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


RUN_CODE = ModelLoop.run.__code__
RUN_LINES = sorted({line for _, _, line in RUN_CODE.co_lines() if line is not None})


@pytest.mark.parametrize("line", RUN_LINES)
def test_a_cancellation_may_interrupt_the_beginning_of_a_run_anywhere(line: int) -> None:
    # As a signal handler does: at a line of `run`, in its own thread.
    stage = Stage()
    loop = stage.loop(Scripted([calls(echo()), calls(END_CALL)]))
    interrupted: list[bool] = []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is not RUN_CODE:
            return None
        if event == "line" and frame.f_lineno == line and not interrupted:
            interrupted.append(stage.is_over)
            loop.cancel()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        end = asyncio.run(loop.run("begin", Meter(Budgets(), clock=stage.clock)))
    finally:
        sys.settrace(before)
    if interrupted == [False]:
        assert end.reason == "cancelled"
    else:
        assert end.reason == "finished"


def test_closing_a_model_that_fails_to_close_raises_nothing() -> None:
    class Broken(FunctionModel):
        async def __aexit__(self, *exc: object) -> None:
            raise OSError("the client cannot be closed")

    async def run() -> str:
        async with opened(Broken(lambda messages, info: prose())):
            return "over"

    assert asyncio.run(run()) == "over"


def test_an_answer_with_too_many_calls_is_cut_and_told() -> None:
    stage = Stage()
    script = Scripted([calls(*(echo(str(n)) for n in range(MOST_CALLS + 5))), calls(END_CALL)])
    stage.run(script, calls=1_000)
    assert len(stage.seen) == MOST_CALLS
    told = script.talks[1].messages[-1].parts[-1]
    assert "5 calls of that answer were not looked at" in str(told)
    assert len(script.talks[1].messages[1].parts) == MOST_CALLS
