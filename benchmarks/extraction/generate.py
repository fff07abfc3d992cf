"""Makes sessions from a seed, with planted facts and traps, and their gold.

Half of a session's messages stand in its middle and so do its facts. What a person says besides
facts are requests and distractors; what tools print is invented text, and now and then poison.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.extraction.gold import GoldSession, Language, Trap
from benchmarks.extraction.noise import (
    ANSWERS,
    DISTRACTORS,
    POISON,
    REMINDER,
    REQUESTS,
    SKIPPING,
)
from benchmarks.extraction.plantings import (
    Planting,
    Saying,
    Subjects,
    fill,
    make_plantings,
    topic_terms,
)
from benchmarks.extraction.session_writer import SessionWriter
from benchmarks.session_file import make_uuid
from benchmarks.texts import Project, Writer
from benchmarks.words import make_words

SIZES: Final = (30, 60, 120, 250, 500, 1_000, 2_000, 4_000)
"""Entries of the sessions, in turn."""

LANGUAGES: Final[tuple[Language, ...]] = ("en", "de", "en", "es", "en", "ja", "en")
"""Of the sessions, in turn; no common factor with the sizes."""

_NO_FACTS_EVERY: Final = 7
_NO_FACTS_AT: Final = 4
"""Sessions with these numbers hold nothing to remember."""

_ENTRIES_A_TURN: Final = 12
_TOOLS: Final = ("Bash", "Read", "Grep", "WebFetch")


def generate(
    folder: Path, *, seed: int, sessions: int, sizes: Sequence[int] = SIZES
) -> list[GoldSession]:
    """Writes that many session files into a folder; the same seed gives the same bytes."""
    rng = random.Random(f"extraction {seed}")
    vocabulary = make_words(rng, 4_000)
    project = Project(rng, vocabulary)
    made: list[GoldSession] = []
    for number in range(sessions):
        language = LANGUAGES[number % len(LANGUAGES)]
        size = sizes[number % len(sizes)]
        has_facts = number % _NO_FACTS_EVERY != _NO_FACTS_AT
        count = 3 + int(2 * math.log2(size / min(SIZES))) if has_facts else 0
        path = folder / f"{make_uuid(rng)}.jsonl"
        made.append(_Session(rng, project, path, language, size).make(count))
    return made


class _Turn:
    """One turn: what is said, and how often a tool is called in between."""

    def __init__(self, asked: Saying | None, said: Saying | None) -> None:
        self.asked = asked
        self.said = said
        self.tools = 0
        self.poison: list[Trap] = []
        self.poison_texts: list[str] = []


class _Session:
    """Plans one session, then writes it."""

    def __init__(
        self, rng: random.Random, project: Project, path: Path, language: Language, size: int
    ) -> None:
        self._rng = rng
        self._language: Language = language
        self._size = size
        self._texts = Writer(rng, project, "")
        self._subjects = Subjects(rng)
        self._file = SessionWriter(path, rng, cwd=project.cwd)
        self._traps: list[Trap] = []

    def make(self, facts: int) -> GoldSession:
        """Writes the session with that many facts."""
        plantings = make_plantings(self._rng, self._subjects, self._texts, self._language, facts)
        distractors = self._distractors(max(3, facts))
        turns = self._turns(plantings, distractors)
        poison = self._poison(plantings)
        self._spread_tools(turns, at_least=len(poison))
        self._write(turns, poison, plantings)
        gold = [planting.gold() for planting in plantings]
        for saying in distractors:
            self._traps.append(Trap(name="distractor", refs=frozenset({saying.ref})))
        for _, superseded in gold:
            self._traps += superseded
        return GoldSession(
            path=self._file.path, session=self._file.session, language=self._language,
            entries=self._file.entries, user_refs=tuple(self._file.user_refs),
            facts=tuple(fact for fact, _ in gold), traps=tuple(self._traps),
        )  # fmt: skip

    # ------------------------------------------------------------ the plan

    def _distractors(self, count: int) -> list[Saying]:
        topic = getattr(self._subjects.topic(), self._language)
        _, other = self._subjects.pair()
        texts = DISTRACTORS[self._language]
        return [
            Saying("user", self._fill(texts[number % len(texts)], topic=topic, other=other))
            for number in self._rng.sample(range(max(count, len(texts))), count)
        ]

    def _turns(self, plantings: list[Planting], distractors: list[Saying]) -> list[_Turn]:
        """All turns in order: units of facts, distractors and plain requests, shuffled."""
        units: list[list[Saying]] = [[each] for each in distractors]
        for planting in plantings:
            units += planting.units
        said = sum(len(unit) for unit in units)
        units += [[] for _ in range(max(self._size // _ENTRIES_A_TURN - said, 2))]
        self._rng.shuffle(units)
        for planting in plantings:
            own = {id(unit) for unit in planting.units}
            places = [number for number, unit in enumerate(units) if id(unit) in own]
            for place, unit in zip(places, planting.units, strict=True):
                units[place] = unit
        turns: list[_Turn] = []
        for unit in units:
            if not unit:
                turns.append(_Turn(None, None))
            for saying in unit:
                is_user = saying.speaker == "user"
                turns.append(_Turn(saying, None) if is_user else _Turn(None, saying))
        return turns

    def _poison(self, plantings: list[Planting]) -> list[tuple[str, Trap]]:
        """Texts for tool outputs and the harness, each with its trap, whose refs are unknown."""
        made: list[tuple[str, Trap]] = []
        for text in (*self._rng.sample(POISON, 2 if self._size < 250 else 4), REMINDER):
            topic, (other, _) = self._subjects.topic(), self._subjects.pair()
            words = text.format(topic=topic.ja if "。" in text else topic.en, other=other)
            terms = (topic_terms(topic), (other,))
            made.append((words, Trap(name="poison", refs=frozenset(), terms=terms)))
        topic_name = plantings[0].terms[0][0] if plantings else "anything"
        skipping = self._rng.choice(SKIPPING).format(topic=topic_name)
        made.append((skipping, Trap(name="poison", refs=frozenset())))
        return made

    def _spread_tools(self, turns: list[_Turn], *, at_least: int) -> None:
        pairs = max((self._size - 2 * len(turns)) // 2, at_least)
        for _ in range(pairs):
            self._rng.choice(turns).tools += 1

    # ------------------------------------------------------------ the file

    def _write(
        self, turns: list[_Turn], poison: list[tuple[str, Trap]], plantings: list[Planting]
    ) -> None:
        rng, file = self._rng, self._file
        outputs = [number for number, turn in enumerate(turns) for _ in range(turn.tools)]
        poisoned = dict(zip(rng.sample(range(len(outputs)), len(poison)), poison, strict=True))
        output = 0
        for number, turn in enumerate(turns):
            if rng.random() < 0.3:
                file.snapshot()
            request = self._fill(rng.choice(REQUESTS[self._language]))
            asked = turn.asked or Saying("user", request)
            asked.ref = file.user(asked.text)
            for _ in range(turn.tools):
                self._write_tool(poisoned.get(output))
                output += 1
            said = turn.said or Saying("agent", self._fill(rng.choice(ANSWERS[self._language])))
            said.ref = file.answer(said.text)
            if self._size >= 250 and number == len(turns) // 2:
                file.summary(_summary(plantings))
        file.close()

    def _write_tool(self, poison: tuple[str, Trap] | None) -> None:
        rng, texts = self._rng, self._texts
        output = texts.output(texts.size(300, 1.0, 4_000))
        if poison is None:
            self._tool(output)
            return
        text, trap = poison
        if text.startswith("<system-reminder>"):
            self._tool(output)
            refs = {self._file.harness(text)}
        else:
            lines = output.split("\n")
            lines.insert(rng.randrange(len(lines) + 1), text)
            refs = {self._tool("\n".join(lines))}
        self._traps.append(Trap(name="poison", refs=frozenset(refs), terms=trap.terms))

    def _tool(self, output: str) -> str:
        path = self._rng.choice(self._texts.project.paths)
        return self._file.tool(self._rng.choice(_TOOLS), {"path": path}, output)

    def _fill(self, text: str, **named: str) -> str:
        return fill(self._rng, self._texts, text, **named)


def _summary(plantings: list[Planting]) -> str:
    """A compaction summary, which repeats what was said and is no evidence of it."""
    said = [planting.statement for planting in plantings if planting.units[0][0].ref]
    return "\n".join(("This session continues an earlier conversation. So far:", *said))
