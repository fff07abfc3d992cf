"""What a project's sessions say: prose, code, logs, listings, made of its own identifiers.

Texts are joined from lines prepared once a project, plus fresh numbers, hashes and identifiers,
so that making them costs little and the vocabulary still grows with the text, as it does in
real libraries.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.words import SLOTS, camel, draw, foreign_sentence, make_words, zipf_table

EXTENSIONS: Final = ("py", "py", "rs", "ts", "go", "md", "toml", "json")
CODE_FORMS: Final = (
    "def {a}({b}, {c}):",
    "    {a} = {b}({c})",
    "    if {a}.{b} is None:",
    "        return {a}[{n}]",
    "    self.{a} = {b} or {c}",
    "for {a} in {b}.{c}():",
    '        raise ValueError(f"{w} {w2} {{{a}}}")',
    "import {a}",
    "# {w} {w2} {w3} {a}",
    "    assert {a}({b}) == {n}",
    "    let {a} = {b}::{c}({n});",
    "const {A} = await {B}({c}, {{ limit: {n} }});",
    "        {A}.{B}(&mut {c})?;",
    "",
    "    }},",
    '  "{a}": "{w} {w2}",',
)


class Project:
    """One invented code base: its folder, its names, its lines of code."""

    def __init__(self, rng: random.Random, vocabulary: Sequence[str]) -> None:
        own = make_words(rng, 240)
        self.name = f"{own[0]}-{own[1]}"
        self.cwd = f"/home/dev/code/{self.name}"
        self.slug = "".join(letter if letter.isalnum() else "-" for letter in self.cwd)
        self.branches = ["main", f"fix/{own[2]}-{own[3]}", f"feature/{own[4]}", "HEAD"]
        self.snake = ["_".join(rng.sample(own, rng.randint(2, 3))) for _ in range(700)]
        self.camel = [camel(rng.sample(own, rng.randint(2, 3))) for _ in range(700)]
        self.paths = [
            f"{rng.choice(own[:30])}/{rng.choice(own[30:60])}/{name}.{rng.choice(EXTENSIONS)}"
            for name in self.snake[:400]
        ]
        names = [f"`{name}`" for name in self.snake[:300] + self.camel[:200] + self.paths[:100]]
        # Everyday words keep their rank; each project has its own favourites among the rest.
        turn = rng.randrange(180, len(vocabulary))
        table = zipf_table([*vocabulary[:180], *vocabulary[turn:], *vocabulary[180:turn]])
        for slot in range(rng.randrange(20), SLOTS, 20):
            table[slot] = rng.choice(names)
        for mark, share in ((".", 14), (",", 17), (".\n\n", 121), (":\n- ", 203)):
            for slot in range(rng.randrange(share), SLOTS, share):
                table[slot] += mark
        self.prose_table = table
        self.code_lines = self._code_lines(rng, vocabulary[:4000], 2048) * (SLOTS // 2048)

    def _code_lines(self, rng: random.Random, words: Sequence[str], count: int) -> list[str]:
        snake = rng.choices(self.snake, k=3 * count)
        upper = rng.choices(self.camel, k=2 * count)
        plain = rng.choices(words, k=3 * count)
        numbers = rng.choices(range(5000), k=count)
        return [
            form.format(
                a=snake[3 * line], b=snake[3 * line + 1], c=snake[3 * line + 2],
                A=upper[2 * line], B=upper[2 * line + 1],
                w=plain[3 * line], w2=plain[3 * line + 1], w3=plain[3 * line + 2],
                n=numbers[line],
            )
            for line, form in enumerate(rng.choices(CODE_FORMS, k=count))
        ]  # fmt: skip


class Writer:
    """Makes the texts of one session; sizes are in bytes and met within a line or so."""

    def __init__(self, rng: random.Random, project: Project, script: str) -> None:
        self.rng = rng
        self.project = project
        self.script = script
        self._outputs: tuple[Callable[[int], str], ...] = (
            self.log, self.log, self.code, self.commits, self.tree, self.data, self.prose,
        )  # fmt: skip

    def size(self, median: float, sigma: float, largest: int) -> int:
        """A log-normal size in bytes."""
        return min(largest, max(8, int(median * self.rng.lognormvariate(0.0, sigma))))

    def prose(self, size: int) -> str:
        """Sentences of Zipf words with names of the project, in the session's script."""
        rng = self.rng
        if self.script and size < 4000:
            names = rng.choices(self.project.snake, k=1 + size // 300)
            return "\n".join(
                f"{foreign_sentence(rng, self.script, 6 + size // 40)} `{name}`" for name in names
            )
        return " ".join(draw(rng, self.project.prose_table, 1 + size // 6))

    def code(self, size: int) -> str:
        """Lines of code."""
        return "\n".join(draw(self.rng, self.project.code_lines, 1 + size // 27))

    def numbered(self, size: int, first: int = 1) -> str:
        """Lines of code with their numbers, as a file reading tool prints them."""
        lines = draw(self.rng, self.project.code_lines, 1 + size // 36)
        return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(lines, first))

    def grep(self, size: int) -> str:
        """`path:line:code` lines."""
        rng = self.rng
        count = 1 + size // 62
        paths = rng.choices(self.project.paths, k=count)
        lines = draw(rng, self.project.code_lines, count)
        numbers = rng.choices(range(1, 900), k=count)
        return "\n".join(map("%s:%d:%s".__mod__, zip(paths, numbers, lines, strict=True)))

    def log(self, size: int) -> str:
        """A test run or a server log: times, request ids, durations."""
        rng = self.rng
        count = 1 + size // 84
        words = draw(rng, self.project.prose_table, count * 4)
        names = rng.choices(self.project.camel, k=count)
        rows: list[str] = []
        for row, name in enumerate(names):
            fresh = rng.getrandbits(48)
            rows.append(
                f"12:{fresh % 60:02d}:{(fresh >> 8) % 60:02d}.{fresh % 1000:03d} INFO {name}"
                f" req={fresh:012x} {' '.join(words[row * 4 : row * 4 + 4])} {fresh % 997} ms"
            )
        return "\n".join(rows)

    def commits(self, size: int) -> str:
        """`hash subject` lines."""
        rng = self.rng
        count = 1 + size // 84
        words = draw(rng, self.project.prose_table, count * 6)
        return "\n".join(
            f"{rng.getrandbits(160):040x} {' '.join(words[row * 6 : row * 6 + 6])}"
            for row in range(count)
        )

    def tree(self, size: int) -> str:
        """Paths, one a line."""
        return "\n".join(self.rng.choices(self.project.paths, k=1 + size // 34))

    def data(self, size: int) -> str:
        """JSON rows as a command prints them."""
        rng = self.rng
        names = rng.choices(self.project.snake, k=1 + size // 80)
        return "\n".join(
            f'{{"id":"{rng.getrandbits(64):016x}","name":"{name}","count":{rng.randrange(10000)}}}'
            for name in names
        )

    def output(self, size: int) -> str:
        """What a shell command printed."""
        return self.rng.choice(self._outputs)(size)
