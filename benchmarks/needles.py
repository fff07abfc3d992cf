"""Planted strings that occur nowhere else, each with the query that must find it.

A needle names the sessions that hold it and how the entry looks, so that benchmarks measure hits
instead of misses and tests know the right answer. Hidden needles stand in thinking, twins and
prompts and must never be found.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Final, Literal

from benchmarks.words import SYLLABLES

Slot = Literal[
    "user", "assistant", "tool_input", "tool_output", "sub_agent", "fork", "large_output",
    "codex_user", "codex_input", "codex_output",
    "thinking", "twin", "progress", "codex_reasoning", "codex_prompt",
]  # fmt: skip
"""Where a needle is put."""

HIDDEN_SLOTS: Final[tuple[Slot, ...]] = (
    "thinking", "twin", "progress", "codex_reasoning", "codex_prompt",
)  # fmt: skip

# Characters that no other text of the generator uses.
RARE_CHINESE: Final = "鹮鹬鹭鹳鹈鹕鸬鹚鹎鹟鹡鸰鹨鹩鹪鹫鹰鹱鹲鹴"
RARE_JAPANESE: Final = "ぬぺゑゐヱヰヹヸぢづゔヵ"
RARE_KOREAN: Final = "뷁쀍쀓쨔쯩콰퇘펴횃휑"
RARE_CYRILLIC: Final = "щюыэъ"
RARE_EMOJI: Final = "🦩🪁🦫🪀🦥🪃🦦🪂🦨🪄"


@dataclass
class Needle:
    """One planted string."""

    category: str
    slot: Slot
    planted: str
    """What stands in the text."""
    query: str
    """A literal query that finds it."""
    ranked: str = ""
    """A ranked query that finds it where that differs (no accents, one typo)."""
    sessions: list[str] = field(default_factory=list)
    """Ids of the sessions that hold it, the owner first, then forks; empty until planted."""

    @property
    def is_hidden(self) -> bool:
        """Stands only where nothing may be found."""
        return self.slot in HIDDEN_SLOTS


class NeedleMaker:
    """Makes one set of needles after another, all different."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._words: set[str] = set()
        self._runs: set[str] = set()

    def _word(self, syllables: int = 5) -> str:
        while True:
            word = "qx" + "".join(self._rng.choices(SYLLABLES, k=syllables))
            # A prefix of another needle would be found twice.
            if word[:9] not in self._words:
                self._words.add(word[:9])
                return word

    def _run(self, letters: str, length: int) -> str:
        while True:
            run = "".join(self._rng.choices(letters, k=length))
            if not any(run in other or other in run for other in self._runs):
                self._runs.add(run)
                return run

    def make_set(self, *, with_large: bool) -> list[Needle]:
        """One needle of each category."""
        needles: list[Needle] = []

        def add(category: str, slot: Slot, planted: str, query: str = "", ranked: str = "") -> None:
            needles.append(Needle(category, slot, planted, query or planted, ranked))

        for slot in (
            "user", "assistant", "tool_input", "tool_output", "sub_agent", "fork", "codex_user",
            "codex_input", "codex_output", *HIDDEN_SLOTS,
        ):  # fmt: skip
            add(slot, slot, self._word())
        if with_large:
            add("large_output", "large_output", self._word())
        run = self._run(RARE_CHINESE, 4)
        add("chinese", "assistant", f"我们检查{run}的结果", run)
        add("chinese_pair", "user", self._run(RARE_CHINESE, 2))
        add("japanese", "user", f"この{(run := self._run(RARE_JAPANESE, 4))}を確認", run)
        add("korean", "user", f"{(run := self._run(RARE_KOREAN, 4))}입니다", run)
        add("cyrillic", "assistant", self._run(RARE_CYRILLIC, 7))
        add("emoji", "assistant", self._run(RARE_EMOJI, 2))
        word, other = self._word(), self._word()
        add("snake", "tool_output", f"{word}_{other}")
        add("snake_part", "tool_input", f"load_{(word := self._word())}_now", word)
        word = self._word()
        add("camel", "tool_output", f"read{word.capitalize()}Value", word)
        add("hyphen", "assistant", f"{self._word(3)}-{self._word(2)}-42")
        add("path", "tool_output", f"/srv/{self._word()}/{self._word(2)}/config.toml")
        add("base_name", "tool_output", f"/srv/app/{(name := self._word() + '.rs')}", name)
        add("hash", "tool_output", f"{self._rng.getrandbits(256):064x}")
        add("colons", "tool_output", f"{self._word(3)}::{self._word(3)}")
        add("question", "user", f"is it {self._word()}?")
        add("flag", "tool_input", f"--{self._word(3)}-{self._word(2)}")
        add("quotes", "tool_input", f"say \"{self._word(3)}\" \\ '{self._word(3)}'")
        add("substring", "tool_output", f"before{(word := self._word())}after", word[2:])
        word = self._word()
        wide = "".join(chr(ord(letter) + 0xFEE0) for letter in word)
        add("full_width", "user", wide, word)
        word = self._word()
        add("accents", "assistant", word.replace("a", "á").replace("o", "ö"), ranked=word)
        word = self._word()
        add("typo", "assistant", word, ranked=word[:7] + word[8:])
        add(
            "long_token",
            "tool_output",
            f"{self._word()}{'k7' * 35_000}{(end := self._word())}",
            end,
        )
        return needles


class Queue:
    """The needles that one session still has to plant, by slot."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, deque[Needle]] = defaultdict(deque)

    def put(self, needle: Needle) -> None:
        """Adds one."""
        self._waiting[needle.slot].append(needle)

    def take(self, *slots: Slot) -> Needle | None:
        """The next needle of these slots, or None."""
        for slot in slots:
            if self._waiting.get(slot):
                return self._waiting[slot].popleft()
        return None

    def has(self, slot: Slot) -> bool:
        """Whether a needle of this slot waits."""
        return bool(self._waiting.get(slot))

    @property
    def is_empty(self) -> bool:
        """Nothing is left to plant."""
        return not any(self._waiting.values())
