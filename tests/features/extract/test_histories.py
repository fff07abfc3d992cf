"""Whatever happens to a source and to the runs over it: nothing is passed over, and while nothing
is rewritten nothing is staged twice."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessiondex.errors import Failed, InvalidArgument
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.ledger_rows import RunRow
from sessiondex.features.extract.runner import LEASE_SECONDS
from sessiondex.indexer.capture import Capture
from sessiondex.model import Entry, EntryRef
from tests.features.extract.made_sources import HOLDS, TEXTS, Source
from tests.features.extract.scripted import Talk, calls, finish, read, stage

pytestmark = pytest.mark.usefixtures("no_requests")


GROW = st.tuples(st.just("grow"), st.integers(1, 3))
REWRITE = st.tuples(st.just("rewrite"), st.integers(0, 9), st.integers(0, 3))
"""From which text on, and how many new ones follow."""

EVENTS = GROW | REWRITE | st.sampled_from([("index",), ("vanish",), ("come back",)])
RUNS = st.tuples(
    st.sampled_from(["finish", "finish", "crash", "be killed"]),
    st.integers(0, 3),
    EVENTS | st.none(),
)
"""How a run ends, how many it stages if it does not finish, and what happens during it."""

STEPS = st.lists(EVENTS | RUNS, min_size=3, max_size=12)


class Killed(BaseException):
    """Ends a run as a kill does."""


class Dead(ExtractLedger):
    """A ledger that a killed run can no longer write its end to."""

    def end(self, *arguments: Any, **named: Any) -> RunRow:
        raise Failed("the process was killed")


class History:
    """A source, what it says now, and what happened to it."""

    def __init__(self, folder: Path, format: str) -> None:
        self.source = Source(folder, format)
        self.texts = list(TEXTS)
        self.has_lost_any = False
        """Whether something was rewritten or gone, so that a text may be staged again."""
        self._gone = b""
        self._numbers = itertools.count(1)

    def _new(self, count: int) -> list[str]:
        return [f"Rule number {next(self._numbers)} is a new one." for _ in range(count)]

    def happens(self, event: tuple[Any, ...]) -> None:
        source, (name, *numbers) = self.source, event
        exists = source.path.exists()
        if name == "index":
            source.index()
        elif name == "come back" and not exists:
            source.path.write_bytes(self._gone)
        elif name == "grow" and exists:
            self.texts += self._new(numbers[0])
            source.grow(self.texts)
        elif name == "rewrite" and exists:
            self.has_lost_any = True
            self.texts = self.texts[: numbers[0]] + self._new(numbers[1]) or self._new(1)
            source.write(self.texts)
        elif name == "vanish" and exists:
            self.has_lost_any = True
            self._gone = source.path.read_bytes()
            source.path.unlink()

    def run(self, end: str, count: int, during: tuple[Any, ...] | None) -> None:
        """A run that stages all that it covers and finishes, or stages some and dies."""
        world, capture = self.source.world, self.source.capture().committed()

        def stages(talk: Talk) -> Any:
            if during is not None:
                self.happens(during)
            entries = _covered(talk, capture)
            some = entries if end == "finish" else entries[:count]
            named = [stage(HOLDS + capture.text(each).decode(), str(each.ref)) for each in some]
            return calls(*named) if named else calls(read("E1"))

        def ends(talk: Talk) -> Any:
            if end == "crash":
                return ZeroDivisionError()
            if end == "be killed":
                raise Killed
            return calls(finish(talk.staged_count, "nothing durable was said"))

        ledger = Dead(world.ledger._state) if end == "be killed" else world.ledger
        try:
            world.run(capture, [stages, ends], current=self.source.capture, ledger=ledger)
        except Killed:
            world.now += int(LEASE_SECONDS * 1000)
        except InvalidArgument as error:
            assert "nothing was added" in error.message

    def assert_true(self) -> None:
        """What counts as done was staged; what only grew was staged once."""
        capture = self.source.capture().committed()
        done = self.source.world.ledger.done_records(capture).records
        claimed = self.source.claimed()
        for entry in capture.entries(0, capture.entry_count):
            assert entry.ref.record >= done or capture.text(entry).decode() in claimed
        assert self.has_lost_any or len(set(claimed)) == len(claimed)


def _covered(talk: Talk, capture: Capture) -> list[Entry]:
    """The entries in the range that the first message names."""
    facts = orjson.loads(talk.first.split("\n")[1])
    first, last = (EntryRef.parse(ref).record for ref in facts["range"])
    entries = capture.entries(0, capture.entry_count)
    return [entry for entry in entries if first <= entry.ref.record <= last]


@pytest.mark.parametrize("format", ["codex", "chat"])
@settings(max_examples=8, deadline=None)
@given(steps=STEPS)
@example([("rewrite", 0, 0), ("finish", 0, None), ("rewrite", 0, 3), ("index",), ("rewrite", 1, 0)])
@example([("grow", 2), ("be killed", 3, ("grow", 1)), ("crash", 2, ("index",))])
def test_in_any_history_nothing_is_passed_over_and_the_end_is_reached(
    format: str, steps: list[tuple[Any, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), format)
        for step in steps:
            if step[0] in ("finish", "crash", "be killed"):
                history.run(*step)
            else:
                history.happens(step)
            history.assert_true()
        history.happens(("come back",))
        # The first may go on with a run that covered less.
        for _ in range(2):
            history.run("finish", 0, None)
            history.assert_true()
        assert history.source.next_texts() == []
        assert set(history.texts) <= set(history.source.claimed())
        history.source.library.close()
