"""Runs a policy or a model over generated sessions through the real runner, and scores it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.extraction.gold import GoldSession
from benchmarks.extraction.policies import explorer, head_only, one_shot
from benchmarks.extraction.scores import PolicyScores, judge
from benchmarks.extraction.scripted_model import ScriptedModel
from benchmarks.extraction.transcript import Transcript, cut_transcript
from sessiondex.features.extract.first_message import first_message
from sessiondex.features.extract.ledger import ExtractLedger
from sessiondex.features.extract.report import ExtractResult
from sessiondex.features.extract.runner import ExtractHost, Extraction
from sessiondex.features.loop.loop import LoopHost
from sessiondex.features.services import Clock, RunRange
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.staging.ids import RecordIds
from sessiondex.features.state import State
from sessiondex.indexer.capture import Capture

if TYPE_CHECKING:
    from pydantic_ai.models import Model

SCRIPTED: Final = ("explorer", "one-shot", "head-only")

_NOW_MS: Final = 1_780_000_000_000
"""All runs are at one time, so that a report says the same each time."""


class Ran(NamedTuple):
    """One run over one session, and what the policy was shown."""

    result: ExtractResult
    shown_bytes: int
    shown_user_entries: int


class World:
    """A ledger and a staging folder of one policy's own, in a folder that is empty before."""

    def __init__(self, folder: Path, policy: str) -> None:
        self._policy = policy
        self._ledger = ExtractLedger(State.open(None))
        self.staging = StagingFolder(folder)
        self._numbers = itertools.count(1)
        self._runs = itertools.count(1)

    def run(self, gold: GoldSession, capture: Capture, model: Model | None = None) -> Ran:
        """One run of the policy, or of a real model."""
        transcript = cut_transcript(capture) if self._policy == "one-shot" else None
        host = ExtractHost(
            ledger=self._ledger,
            backend=self.staging,
            records_of_run=self.staging.of_run,
            current=lambda: capture,
            ids=RecordIds(
                now_ms=lambda: _NOW_MS,
                random_bytes=lambda size: next(self._numbers).to_bytes(size, "big"),
            ),
            run_id=f"run-{next(self._runs)}",
            holder="benchmark",
            now_ms=lambda: _NOW_MS,
            loop=LoopHost(clock=time.monotonic if model else lambda: 0.0, random=lambda: 0.5),
            clock=Clock(),
            on_fault=_raise,
        )
        used = model or self._scripted(transcript)
        result = Extraction(capture, used, host, model_name=self._policy).run()
        if transcript is None:
            report = result.report
            return Ran(result, report.shown_bytes, report.shown_user_entries)
        # It is handed the transcript in the place of the first message.
        unread = first_message(capture, RunRange(0, capture.record_count - 1)).text
        shown = result.report.shown_bytes - len(unread.encode()) + len(transcript.text.encode())
        return Ran(result, shown, len(transcript.shown.intersection(gold.user_refs)))

    def _scripted(self, transcript: Transcript | None) -> Model:
        if transcript is not None:
            policy = one_shot(transcript.text)
        else:
            policy = {"explorer": explorer, "head-only": head_only}[self._policy]
        return ScriptedModel(policy).model(self._policy)


def _raise(name: str, error: Exception) -> None:
    raise AssertionError(f"{name} broke") from error


def evaluate(
    golds: Sequence[GoldSession],
    folder: Path,
    *,
    policies: Sequence[str] = SCRIPTED,
    open_model: Callable[[], Model] | None = None,
) -> list[PolicyScores]:
    """The scores of each policy over all sessions; of `open_model` are the runs of the last one.

    `folder` is empty and is filled. Each session is captured once.
    """
    worlds = [World(folder / str(number), name) for number, name in enumerate(policies)]
    scores = [PolicyScores(policy=name) for name in policies]
    for gold in golds:
        capture = Capture.from_path(gold.path)
        for world, each in zip(worlds, scores, strict=True):
            model = open_model() if open_model is not None and each is scores[-1] else None
            ran = world.run(gold, capture, model)
            result = ran.result
            is_cut = result.outcome == "incomplete"
            each.outcomes[f"incomplete({result.reason})" if is_cut else result.outcome] += 1
            each.shown_bytes += ran.shown_bytes
            each.user_entries += result.report.user_entries
            each.shown_user_entries += ran.shown_user_entries
            by_id = {record.id: record for record in world.staging.of_run(result.report.run_id)}
            judged = judge(gold, [by_id[id] for id in result.staged])
            each.add(gold, judged, capture)
    return scores
