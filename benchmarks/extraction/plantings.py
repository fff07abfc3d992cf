"""Facts as they are said in a session: by whom, in how many messages, and the gold of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from benchmarks.extraction.gold import STYLES, Fact, Language, Style, Terms, Trap
from benchmarks.extraction.noise import ASIDES
from benchmarks.extraction.phrases import FACTS, PAIRS, TOPICS, Topic, Wordings
from benchmarks.texts import Writer
from sessiondex.features.staging.record import CANDIDATE_KINDS, CandidateKind

Value = TypeVar("Value")

_ARTICLES: Final = ("the ", "el ", "la ", "los ", "las ")


@dataclass(slots=True)
class Saying:
    """One message; its ref is known when it was written."""

    speaker: Literal["user", "agent"]
    text: str
    ref: str = ""


@dataclass(slots=True)
class Planting:
    """A fact and its sayings. `units` are told in their order; those of one unit in a row."""

    kind: CandidateKind
    style: Style
    language: Language
    statement: str
    terms: Terms
    units: list[list[Saying]]
    superseded: Terms = field(default=())
    """Terms of what the first unit said, where the second corrects it."""

    def gold(self) -> tuple[Fact, list[Trap]]:
        """What is to be found of it, now that all was written."""
        first, last = self.units[0], self.units[-1]
        refs, support, traps = {last[-1].ref}, {each.ref for each in last[:-1]}, list[Trap]()
        if self.style == "repeated":
            refs.add(first[0].ref)
        if self.style == "corrected":
            traps.append(
                Trap(name="superseded", refs=frozenset({first[0].ref}), terms=self.superseded)
            )
            support.add(first[0].ref)
        fact = Fact(
            kind=self.kind, style=self.style, language=self.language, statement=self.statement,
            terms=self.terms, refs=frozenset(refs), support=frozenset(support),
            authority="derived" if self.style == "derived" else "user",
        )  # fmt: skip
        return fact, traps


class Subjects:
    """Topics and pairs of one session; each is given out once."""

    def __init__(self, rng: random.Random) -> None:
        self._topics = rng.sample(TOPICS, len(TOPICS))
        self._pairs = rng.sample(PAIRS, len(PAIRS))

    def topic(self) -> Topic:
        """A topic that nothing in the session is about yet."""
        return self._topics.pop()

    def pair(self) -> tuple[str, str]:
        """Two technologies that nothing in the session names yet."""
        return self._pairs.pop()


def topic_terms(topic: Topic) -> tuple[str, ...]:
    """The spellings of a topic, without articles."""
    return tuple(_bare(name) for name in topic)


def _bare(name: str) -> str:
    return next((name[len(each) :] for each in _ARTICLES if name.startswith(each)), name)


def make_plantings(
    rng: random.Random, subjects: Subjects, writer: Writer, language: Language, count: int
) -> list[Planting]:
    """Facts of all kinds in turn, in the ways in which their language can say them."""
    styles = _endless(rng, STYLES)
    kinds = _endless(rng, CANDIDATE_KINDS)
    made: list[Planting] = []
    for _ in range(count):
        kind: CandidateKind = next(kinds)
        wordings = FACTS[language][kind]
        style: Style = next(each for each in styles if _can_say(wordings, each))
        made.append(_planting(rng, subjects, writer, language, kind, style))
    return made


def _endless(rng: random.Random, values: Sequence[Value]) -> Iterator[Value]:
    while True:
        yield from rng.sample(values, len(values))


def _can_say(wordings: Wordings, style: Style) -> bool:
    if style == "corrected":
        return "correction" in wordings
    return style in ("buried", "repeated") or style in wordings


def _planting(
    rng: random.Random,
    subjects: Subjects,
    writer: Writer,
    language: Language,
    kind: CandidateKind,
    style: Style,
) -> Planting:
    wordings, topic = FACTS[language][kind], subjects.topic()
    wanted, other = subjects.pair()
    if rng.random() < 0.5:
        wanted, other = other, wanted
    named = {"topic": getattr(topic, language), "wanted": wanted, "other": other}
    swapped = named | {"wanted": other, "other": wanted}

    def words(name: str, values: dict[str, str] = named) -> str:
        text = rng.choice(wordings[name]).format(**values)
        return text[:1].upper() + text[1:]

    terms: Terms = (topic_terms(topic), (wanted,))
    if kind == "open_question":
        terms = (*terms, (other,))
    user, superseded = "user", _terms(topic, other)
    if style == "split":
        head, rest = (text.format(**named) for text in wordings["split"])
        statement, units = rest, [[Saying(user, head), Saying(user, rest)]]
    elif style == "repeated":
        statement = words("direct")
        again = words("repeat" if "repeat" in wordings else "hedged")
        units = [[Saying(user, statement)], [Saying(user, again)]]
    elif style == "corrected":
        statement = words("correction")
        units = [[Saying(user, words("direct", swapped))], [Saying(user, statement)]]
    elif style == "derived":
        statement = words("derived")
        units = [[Saying("agent", statement)]]
    elif style == "buried":
        statement = words("direct")
        units = [[Saying(user, _buried(rng, writer, language, statement))]]
    else:
        statement = words(style)
        units = [[Saying(user, statement)]]
    return Planting(
        kind, style, language, statement, terms, units,
        superseded=superseded if style == "corrected" else (),
    )  # fmt: skip


def _terms(topic: Topic, name: str) -> Terms:
    return topic_terms(topic), (name,)


def _buried(rng: random.Random, writer: Writer, language: Language, statement: str) -> str:
    """A long message with the statement in its middle, behind what a clipped message shows."""

    def asides(count: int) -> str:
        gap = "" if language == "ja" else " "
        return gap.join(aside(rng, writer, language) for _ in range(count))

    pasted = f"\n\n```\n{writer.log(rng.randrange(300, 2_000))}\n```\n\n"
    gap = "" if language == "ja" else " "
    middle = gap.join((asides(2), statement, asides(2)))
    before = f"{asides(rng.randrange(10, 16))}\n\n"
    parts = [before, middle, pasted] if rng.random() < 0.5 else [before, pasted, middle]
    return "".join((*parts, "\n\n", asides(rng.randrange(3, 9))))


def aside(rng: random.Random, writer: Writer, language: Language) -> str:
    """A sentence that says nothing to remember."""
    return fill(rng, writer, rng.choice(ASIDES[language]))


def fill(rng: random.Random, writer: Writer, text: str, **named: str) -> str:
    """A text with names of the project."""
    project = writer.project
    return text.format(
        path=rng.choice(project.paths), name=rng.choice(project.snake), n=rng.randrange(2, 400),
        **named,
    )  # fmt: skip
