"""How our scripted policies read messages: sentences with a cue, corrections, repeats.

One reader for all of them, so that they differ in what they get to see and in nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from benchmarks.extraction.cues import (
    AGENT_CUES,
    AGENT_SAID,
    BACKWARD,
    CORRECTIONS,
    CUES,
    PASSING,
    language_of,
)
from sessiondex.features.staging.record import CandidateKind

_FENCED: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_QUOTED: Final = re.compile(r"^>.*$", re.MULTILINE)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_CODE: Final = re.compile(r"`|\S/\S+\.\w+")

_RUN: Final = re.compile(r"[A-Za-z0-9]{2,}|[一-鿿]{2,}|[ァ-ヶー]{2,}|[^\W_A-Za-z0-9ぁ-ヶー一-鿿]+")
_INNER_CAPITAL: Final = re.compile(r"\b[A-Za-z]*(?:[a-z][A-Z]|[A-Z]{2})[A-Za-z0-9]*")
_NAME: Final = re.compile(_INNER_CAPITAL.pattern + r"|(?<=\S )\b[A-Z][A-Za-z0-9]+")
_LEAST_BYTES: Final = 18
_OPENER_BYTES: Final = 120
_QUOTE_CHARACTERS: Final = 500
_SAME_SHARE: Final = 0.6
_CORRECTED_SHARE: Final = 0.45
_LESS_WITH_NAME: Final = 0.2


class Message(NamedTuple):
    """A message as a policy got to see it."""

    ref: str
    is_user: bool
    text: str


@dataclass(slots=True)
class Finding:
    """A possible memory."""

    kind: CandidateKind
    claim: str
    quotes: list[tuple[str, str]]
    """Ref and words."""
    language: str
    is_correction: bool
    points_back: bool
    """It speaks of something that an earlier message named."""

    @property
    def refs(self) -> list[str]:
        """The entries it rests on, each once."""
        return list(dict.fromkeys(ref for ref, _ in self.quotes))


def findings(message: Message) -> list[Finding]:
    """What one message seems to say for good; neighbouring sentences with a cue are one."""
    text = _QUOTED.sub("\n", _FENCED.sub("\n", message.text))
    language = language_of(text)
    found: list[Finding] = []
    is_running = False
    for sentence in (each.strip() for each in _SENTENCE.split(text)):
        kind = _kind(sentence, language, is_user=message.is_user)
        if kind is None:
            is_running = is_running and not sentence
            continue
        if is_running:
            gap = "" if language == "ja" else " "
            found[-1].claim += gap + sentence
            found[-1].quotes.append((message.ref, sentence[:_QUOTE_CHARACTERS]))
            found[-1].is_correction |= _has(CORRECTIONS[language], sentence)
            continue
        head = re.split(r"[,:;、]", sentence)[0]
        found.append(
            Finding(
                kind, sentence, [(message.ref, sentence[:_QUOTE_CHARACTERS])], language,
                is_correction=_has(CORRECTIONS[language], sentence),
                points_back=message.is_user and _has(BACKWARD[language], head),
            )
        )  # fmt: skip
        is_running = True
    if not message.is_user:
        for each in found:
            each.claim = AGENT_SAID[language].format(claim=each.claim)
    return found


def opened_by(finding: Finding, before: Message) -> Finding:
    """The finding with the message before it where that only names what it is about."""
    opener = before.text.strip()
    is_opener = (
        before.is_user
        and _LEAST_BYTES <= len(opener.encode()) <= _OPENER_BYTES
        and opener.endswith((".", "。"))
        and not _CODE.search(opener) and "\n" not in opener
    )  # fmt: skip
    if not (finding.points_back and is_opener):
        return finding
    finding.claim = f"{opener} {finding.claim}"
    finding.quotes.append((before.ref, opener))
    return finding


def settled(found: Iterable[Finding]) -> list[Finding]:
    """Findings in the order in which they were said, without what was corrected or repeated."""
    kept: list[Finding] = []
    for finding in found:
        if finding.is_correction:
            same = [each for each in kept if _is_of_same(each, finding, _CORRECTED_SHARE)]
            kept = [each for each in kept if not any(each is one for one in same)]
        else:
            same = [each for each in kept if _is_of_same(each, finding, _SAME_SHARE)]
            if same and same[-1].kind == finding.kind:
                same[-1].quotes += finding.quotes
                continue
        kept.append(finding)
    return kept


def _kind(sentence: str, language: str, *, is_user: bool) -> CandidateKind | None:
    if len(sentence.encode()) < _LEAST_BYTES or _CODE.search(sentence):
        return None
    if _has(PASSING[language], sentence):
        return None
    if not is_user and not _has(AGENT_CUES[language], sentence):
        return None
    cues = CUES[language].items()
    return next((kind for kind, pattern in cues if _has(pattern, sentence)), None)


def _has(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _is_of_same(one: Finding, other: Finding, least: float) -> bool:
    """Whether two findings speak of the same thing: by their words, and by names they share."""
    words, others = _words(one.claim), _words(other.claim)
    share = len(words & others) / (min(len(words), len(others)) or 1)
    names, other_names = _names(one), _names(other)
    if names and other_names and not names & other_names:
        return False
    return share >= (least - _LESS_WITH_NAME if names & other_names else least)


def _names(finding: Finding) -> set[str]:
    # German writes every noun with a capital.
    pattern = _INNER_CAPITAL if finding.language == "de" else _NAME
    return set(pattern.findall(finding.claim))


def _words(claim: str) -> set[str]:
    """Words of a claim that are no cues."""
    plain = claim
    for patterns in CUES.values():
        for pattern in patterns.values():
            plain = re.sub(pattern, " ", plain, flags=re.IGNORECASE)
    return {each.casefold() for each in _RUN.findall(plain) if len(each) > 3 or not each.isascii()}


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Messages as they stand in the session; of what was seen twice, the longer text."""
    longest: dict[str, Message] = {}
    for each in messages:
        known = longest.get(each.ref)
        if known is None or len(known.text) < len(each.text):
            longest[each.ref] = each
    return [longest[ref] for ref in sorted(longest)]
