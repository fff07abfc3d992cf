"""What `extract` and `compact` share: which model, what a run may use, and how far it is."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import option, together
from sessiondex.cli.texts import byte_size, count_of
from sessiondex.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from types import FrameType

    from pydantic_ai.models import Model

    from sessiondex.features.loop.budget import Budgets, Meter
    from sessiondex.features.loop.loop import LoopHost
    from sessiondex.query.reply import Note

MODEL_VARIABLE: Final = "SESSIONDEX_WORKER_MODEL"

model_options: Callable[[Any], Any] = together(
    # SESSIONDEX_MODEL is that of the filter --model of searches.
    option("--model", metavar="PROVIDER:NAME", envvar=MODEL_VARIABLE,
           help="The model, like openai-chat:NAME, openai-responses:NAME or anthropic:NAME;"
           " its key is read from the environment. Also read from SESSIONDEX_WORKER_MODEL."),
    option("--base-url", metavar="URL", help="Where the provider's API is served."),
)  # fmt: skip
budget_options: Callable[[Any], Any] = together(
    option("--max-turns", type=int, metavar="N", help="Most answers of the model (24)."),
    option("--max-tokens", type=int, metavar="N",
           help="Most tokens of all requests together (1500000)."),
    option("--max-seconds", type=int, metavar="N", help="Longest run (900)."),
)  # fmt: skip


def open_cli_model(model: str | None, base_url: str | None) -> Model:
    """The model that a command was given; nothing is sent yet.

    Raises:
        UsageError: none was named.
        InvalidArgument: its name or address is unusable, or its key is missing.
        Failed: the packages for it are not installed.
    """
    if not model:
        raise UsageError(
            "no model was named",
            hint="name one with --model PROVIDER:NAME, or in SESSIONDEX_WORKER_MODEL",
        )
    from sessiondex.features.loop.models import open_model

    return open_model(model, base_url=base_url, environ=os.environ)


def asked_budgets(
    *, max_turns: int | None, max_tokens: int | None, max_seconds: int | None
) -> tuple[Budgets, list[Note]]:
    """What a run may use, and a note for each number that was above its maximum.

    Raises:
        InvalidArgument: a number below 1.
    """
    from sessiondex.features.loop.budget import Budgets

    asked = {"turns": max_turns, "tokens": max_tokens, "seconds": max_seconds}
    for name, value in asked.items():
        if value is not None and value < 1:
            raise InvalidArgument(
                f"--max-{name} is {value}", hint="expected a whole number of at least 1"
            )
    return Budgets.of(**asked)


@contextmanager
def ended_by_signals(cancel: Callable[[], None]) -> Generator[None]:
    """Ctrl-C, SIGTERM and a closed terminal end the run that `cancel` cancels; a second one the
    process.

    Where a signal is ignored, as in the background of a script, it stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(number, kept[number])
        cancel()

    kept = {
        int(number): handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(number)) != signal.SIG_IGN
    }
    for number in kept:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def loop_host(on_progress: Callable[[Meter], None] = lambda meter: None) -> LoopHost:
    """The time and the chance of this machine, for the model loop."""
    from sessiondex.features.loop.loop import LoopHost

    return LoopHost(clock=time.monotonic, random=random.random, on_progress=on_progress)


# ---------------------------------------------------------------- progress


class Progress(Protocol):
    """Told how far a run is; from the thread that runs it."""

    def __call__(self, meter: Meter, staged: int | None = None) -> None:
        """What was used, and how many candidates are staged where that is what a run does."""
        ...


@contextmanager
def live_line(invocation: Invocation) -> Generator[Progress]:
    """A line on stderr that is written over as a run goes on, and taken away at its end.

    Only where stderr is a terminal, and not beside JSON; else nothing is said.
    """
    is_live = invocation.output.is_for_people and sys.stderr.isatty()
    last = ""

    def say(meter: Meter, staged: int | None = None) -> None:
        nonlocal last
        text = progress_text(meter, staged)
        if is_live and text != last:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            last = text

    try:
        yield say
    finally:
        if last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def progress_text(meter: Meter, staged: int | None = None) -> str:
    """Turns, bytes shown, tokens, what is staged, and how long it takes."""
    parts = [
        f"turn {meter.turns + 1}",
        count_of(meter.calls, "call"),
        f"{byte_size(meter.shown_bytes)} shown",
        count_of(meter.input_tokens + meter.output_tokens, "token"),
    ]
    if staged is not None:
        parts.append(f"{staged} staged")
    parts.append(f"{int(meter.seconds)} s")
    return ", ".join(parts)
