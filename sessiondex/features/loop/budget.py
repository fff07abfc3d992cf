"""What a run of the model loop may use, and what is left of it.

A run that comes near one of its limits enters the *reserve*: from then on it is served only the
tools that end it, and has a few turns for that. So no limit is passed, and a run that listens ends
as it should.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sessiondex.limits import (
    KIB,
    LOOP_CALLS,
    LOOP_SECONDS,
    LOOP_SHOWN_BYTES,
    LOOP_TOKENS,
    LOOP_TURNS,
    REPLY_BYTES,
    Limit,
)
from sessiondex.query.reply import Note, clamp

LimitReason = Literal["turn_limit", "token_limit", "deadline"]

RESERVE_TURNS: Final = 2
"""Turns that are kept for ending the run."""

_RESERVE_SHARE: Final = 0.1
"""Of the tokens and of the time, kept for ending the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The limits of one run."""

    turns: int = LOOP_TURNS.default
    """Answers of the model."""
    calls: int = LOOP_CALLS.default
    """Calls of tools that are served; the one that ends the run not counted."""
    shown_bytes: int = LOOP_SHOWN_BYTES.default
    """Bytes of all replies of tools."""
    tokens: int = LOOP_TOKENS.default
    """Of all requests and answers, as the provider counts them."""
    seconds: int = LOOP_SECONDS.default
    """Wall clock."""

    @classmethod
    def of(cls, **asked: int | None) -> tuple[Budgets, list[Note]]:
        """The budgets that are asked for, and a note for each that was above its maximum.

        Raises:
            InvalidArgument: a value below 1.
        """
        given: dict[str, int] = {}
        notes: list[Note] = []
        for name, value in asked.items():
            if value is not None:
                served = clamp(_LIMITS[name], value, name=name)
                given[name] = served.value
                notes += [served.note] if served.note else []
        return cls(**given), notes


_LIMITS: Final[dict[str, Limit]] = {
    "turns": LOOP_TURNS,
    "calls": LOOP_CALLS,
    "shown_bytes": LOOP_SHOWN_BYTES,
    "tokens": LOOP_TOKENS,
    "seconds": LOOP_SECONDS,
}


class Left(NamedTuple):
    """What is left at one moment; never below 0."""

    turns: int
    calls: int
    shown_bytes: int
    tokens: int
    seconds: int

    @property
    def text(self) -> str:
        """As a model reads it behind every reply."""
        return (
            f"[left: {self.turns} turns, {self.calls} calls, {self.shown_bytes // KIB} KiB,"
            f" {self.tokens} tokens, {self.seconds} s]"
        )


class Meter:
    """What one run has used."""

    def __init__(self, budgets: Budgets, *, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that never go backward; the run begins now."""
        self.budgets = budgets
        self.turns = 0
        self.calls = 0
        self.shown_bytes = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self._clock = clock
        self._began = clock()
        self._reserve: LimitReason | None = None
        self._last_turn = budgets.turns
        self._largest_request = 0

    @property
    def seconds(self) -> float:
        """Wall clock since the run began."""
        return self._clock() - self._began

    @property
    def seconds_left(self) -> float:
        """Until the deadline; 0 or less behind it."""
        return self.budgets.seconds - self.seconds

    @property
    def left(self) -> Left:
        """What is left."""
        budgets = self.budgets
        return Left(
            turns=max(self._last_turn - self.turns, 0),
            calls=max(budgets.calls - self.calls, 0),
            shown_bytes=max(budgets.shown_bytes - self.shown_bytes, 0),
            tokens=max(budgets.tokens - self.input_tokens - self.output_tokens, 0),
            seconds=max(int(self.seconds_left), 0),
        )

    def add_answer(self, input_tokens: int, output_tokens: int) -> None:
        """Counts one answer of the model and what it cost."""
        self.turns += 1
        self.input_tokens += input_tokens
        self.output_tokens += output_tokens
        self._largest_request = max(self._largest_request, input_tokens + output_tokens)

    def add_reply(self, size: int, *, is_served: bool) -> None:
        """Counts the reply of a tool in bytes; a refused call is no call."""
        self.calls += is_served
        self.shown_bytes += size

    @property
    def reserve(self) -> LimitReason | None:
        """Why only the end is served from now on; None while anything is. Never goes back."""
        if self._reserve is None:
            self._reserve = self._near()
            if self._reserve is not None:
                self._last_turn = min(self._last_turn, self.turns + RESERVE_TURNS)
        return self._reserve

    def _near(self) -> LimitReason | None:
        left, budgets = self.left, self.budgets
        if left.turns <= RESERVE_TURNS:
            return "turn_limit"
        if self.spent is not None:
            return self.spent
        # The next request costs at least as much as the largest one so far, for each turn kept.
        kept = max(budgets.tokens * _RESERVE_SHARE, self._largest_request * (RESERVE_TURNS + 1))
        if left.tokens <= kept:
            return "token_limit"
        if self.seconds_left <= budgets.seconds * _RESERVE_SHARE:
            return "deadline"
        return None

    @property
    def spent(self) -> LimitReason | None:
        """Why not one more call can be served; None while one can."""
        left = self.left
        if not left.calls:
            return "turn_limit"
        if left.shown_bytes < REPLY_BYTES.maximum:
            return "token_limit"
        return "deadline" if self.seconds_left <= 0 else None

    @property
    def exhausted(self) -> LimitReason | None:
        """The limit that ends the run now; None while there is room for one more answer."""
        if self.seconds_left <= 0:
            return "deadline"
        if not self.left.tokens or not self.left.shown_bytes:
            return "token_limit"
        if not self.left.turns:
            return self._reserve or "turn_limit"
        return None
