"""Generates a home folder of realistic agent histories: same seed, same bytes.

    python -m benchmarks.generate --out DIR --bytes 280M --files 3000 --seed 1

Claude Code sessions with sub-agents, forks and compactions, and Codex rollouts, in the proportions
of real libraries; `manifest.json` in the folder says what is in it and where the needles are.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.claude_history import ClaudeSession, SubAgent
from benchmarks.codex_history import CodexSession
from benchmarks.entry_texts import entry_texts
from benchmarks.needles import Needle, NeedleMaker, Queue, Slot
from benchmarks.session_file import SessionFile, make_uuid
from benchmarks.texts import Project, Writer
from benchmarks.words import COMMON, SCRIPTS, make_words

FILE_BYTES: Final = 93_000
"""Mean size of a session file: 280 MB over 3,000 files."""
ENTRY_BYTES: Final = 5_000
"""Source bytes for each entry when nothing scales them, as measured on this generator."""
ENVELOPE_BYTES: Final = 1_900
"""The part of `ENTRY_BYTES` that does not shrink with tool outputs."""
FEWEST_FILES: Final = 5
"""A session with a sub-agent, a session with a fork, and a rollout."""
LARGE_NEEDLE_BYTES: Final = 64_000_000
"""From this size on a needle stands inside an output of more than a megabyte."""
FIRST_DAY: Final = 1_767_571_200_000  # 2026-01-05
SPREAD_MS: Final = 150 * 86_400_000


@dataclass
class Manifest:
    """What a generated history holds."""

    seed: int
    files: int
    bytes: int = 0
    entries: dict[str, int] = field(default_factory=dict)
    """Visible entries by kind, copies in forks counted."""
    names: list[str] = field(default_factory=list)
    """Identifiers and paths that occur now and then."""
    words: list[str] = field(default_factory=list)
    """Words that occur often."""
    needles: list[Needle] = field(default_factory=list)

    @property
    def entry_count(self) -> int:
        """All visible entries."""
        return sum(self.entries.values())

    def save(self, home: Path) -> None:
        """Writes `manifest.json`."""
        home.joinpath("manifest.json").write_bytes(
            orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)
        )

    @classmethod
    def load(cls, home: Path) -> Manifest:
        """Reads the manifest of a generated home folder."""
        values: dict[str, Any] = orjson.loads(home.joinpath("manifest.json").read_bytes())
        values["needles"] = [Needle(**needle) for needle in values["needles"]]
        return cls(**values)


@dataclass
class _Group:
    """One session with its sub-agents and its fork: what is written together."""

    is_codex: bool
    sub_agents: int
    has_fork: bool
    weight: float
    queue: Queue = field(default_factory=Queue)
    agent_queue: Queue = field(default_factory=Queue)

    @property
    def files(self) -> int:
        return 1 + self.sub_agents + self.has_fork


def _plan_groups(rng: random.Random, files: int) -> list[_Group]:
    """Groups with exactly that many files; the needed kinds are always there."""
    groups = [
        _Group(False, 1, False, 1.0),
        _Group(False, 0, True, 1.0),
        _Group(True, 0, False, 1.0),
    ]
    left = files - FEWEST_FILES
    while left > 0:
        is_codex = rng.random() < 0.3
        sub_agents = rng.randint(1, 3) if not is_codex and rng.random() < 0.12 else 0
        has_fork = not is_codex and not sub_agents and rng.random() < 0.05
        if 1 + sub_agents + has_fork > left:
            sub_agents, has_fork = 0, False
        weight = min(25.0, rng.lognormvariate(0.0, 1.1))
        groups.append(_Group(is_codex, sub_agents, has_fork, weight))
        left -= groups[-1].files
    rng.shuffle(groups)
    return groups


def _deal_needles(rng: random.Random, groups: list[_Group], needles: list[Needle]) -> None:
    """Gives each needle to a group that can plant it."""
    codex = [group for group in groups if group.is_codex]
    claude = [group for group in groups if not group.is_codex]
    eligible: dict[Slot, list[_Group]] = {
        "codex_user": codex, "codex_input": codex, "codex_output": codex,
        "codex_reasoning": codex, "codex_prompt": codex,
        "fork": [group for group in claude if group.has_fork],
        "sub_agent": [group for group in claude if group.sub_agents],
    }  # fmt: skip
    for needle in needles:
        group = rng.choice(eligible.get(needle.slot, claude))
        (group.agent_queue if needle.slot == "sub_agent" else group.queue).put(needle)


class _Sizing:
    """Shares the wanted total out over the files, correcting itself as it goes."""

    def __init__(self, weight: float, entries: int | None, size: int | None) -> None:
        self._weight = weight
        self._entries, self._bytes = entries, size

    def limit(self, weight: float) -> tuple[Callable[[SessionFile], bool], float]:
        """When a file of that weight is large enough, and the factor of its tool outputs."""
        share = weight / self._weight
        entries, size = self._entries, self._bytes
        if entries is None:
            wanted_bytes = (size or 0) * share
            return (lambda file: file.size >= wanted_bytes), 1.0
        factor = 1.0
        if size is not None:
            mean = size / max(1, entries)
            factor = (mean - ENVELOPE_BYTES) / (ENTRY_BYTES - ENVELOPE_BYTES)
        wanted = entries * share
        return (lambda file: len(file.entries) >= wanted), min(20.0, max(0.01, factor))

    def spend(self, weight: float, file: SessionFile) -> None:
        """Takes a finished file off the rest."""
        self._weight = max(1e-9, self._weight - weight)
        if self._entries is not None:
            self._entries = max(0, self._entries - len(file.entries))
        if self._bytes is not None:
            self._bytes = max(0, self._bytes - file.size)


class _Generator:
    """Writes groups of sessions into a home folder and adds up what it wrote."""

    def __init__(self, home: Path, seed: int, sizing: _Sizing, projects: list[Project]) -> None:
        self._home, self._seed, self._sizing, self._projects = home, seed, sizing, projects
        self.bytes = 0
        self.entries: Counter[str] = Counter()

    def _save(self, file: SessionFile, weight: float) -> None:
        file.save()
        self.bytes += file.size
        self.entries += file.counts()
        self._sizing.spend(weight, file)

    def write(self, number: int, group: _Group) -> None:
        """Writes one group; its randomness depends on the seed and its number alone."""
        rng = random.Random(f"{self._seed}/{number}")
        script = rng.choice(list(SCRIPTS)) if rng.random() < 0.2 else ""
        writer = Writer(rng, rng.choice(self._projects), script)
        started = FIRST_DAY + rng.randrange(SPREAD_MS)
        session_id = make_uuid(rng)
        if group.is_codex:
            moment = datetime.fromtimestamp(started / 1000, UTC)
            name = f"rollout-{moment:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"
            path = self._home / f".codex/sessions/{moment:%Y/%m/%d}" / name
            file = SessionFile(session_id, path, group.queue, started)
            is_enough, factor = self._sizing.limit(group.weight)
            CodexSession(file, writer, factor=factor).write(is_enough)
            self._save(file, group.weight)
            return
        folder = self._home / ".claude/projects" / writer.project.slug
        agents = [
            self._sub_agent(folder, session_id, group, started, writer)
            for _ in range(group.sub_agents)
        ]
        file = SessionFile(session_id, folder / f"{session_id}.jsonl", group.queue, started)
        is_enough, factor = self._sizing.limit(group.weight)
        session = ClaudeSession(file, writer, factor=factor, sub_agents=agents)
        session.write(is_enough)
        self._save(file, group.weight)
        if group.has_fork:
            fork_id = make_uuid(rng)
            fork = SessionFile(fork_id, folder / f"{fork_id}.jsonl", Queue(), file.now)
            fork.replay(file, rng.choice(session.turn_ends))
            is_enough, factor = self._sizing.limit(group.weight)
            ClaudeSession(fork, writer, factor=factor).write(is_enough)
            self._save(fork, group.weight)

    def _sub_agent(
        self, folder: Path, parent: str, group: _Group, started: int, writer: Writer
    ) -> SubAgent:
        agent_id = f"a{writer.rng.getrandbits(24):06x}"
        path = folder / parent / "subagents" / f"agent-{agent_id}.jsonl"
        file = SessionFile(f"{parent}/{agent_id}", path, group.agent_queue, started)
        weight = group.weight * 0.3
        is_enough, factor = self._sizing.limit(weight)
        session = ClaudeSession(file, writer, factor=factor, agent_id=agent_id)
        session.write(is_enough)
        self._save(file, weight)
        meta = {"agentType": "Explore", "description": "Look around", "model": "inherit"}
        path.with_suffix(".meta.json").write_bytes(orjson.dumps(meta))
        return SubAgent(agent_id, session.prompt, session.answer, file.lines)


def generate(
    home: Path,
    *,
    seed: int = 1,
    files: int | None = None,
    entries: int | None = None,
    size: int | None = None,
) -> Manifest:
    """Writes a history into a folder; `entries` and `size` (bytes) are met within a few percent.

    Missing measures follow from the given ones at natural proportions. With both given, tool
    outputs shrink or grow; an entry never takes less than about 2,000 bytes of source.
    """
    if entries is None and size is None:
        size = (files or 100) * FILE_BYTES
    if files is None:
        files = (size or (entries or 0) * ENTRY_BYTES) // FILE_BYTES
    files = max(FEWEST_FILES, files)
    rng = random.Random(f"{seed}/plan")
    groups = _plan_groups(rng, files)
    maker = NeedleMaker(rng)
    with_large = (size or (entries or 0) * ENTRY_BYTES) >= LARGE_NEEDLE_BYTES
    needles = [
        needle
        for _ in range(min(20, 1 + files // 500))
        for needle in maker.make_set(with_large=with_large)
    ]
    _deal_needles(rng, groups, needles)
    vocabulary = [*COMMON, *make_words(rng, 20_000)]
    projects = [
        Project(random.Random(f"{seed}/project/{number}"), vocabulary)
        for number in range(min(24, 1 + files // 120))
    ]
    weight = sum(group.weight * (1 + group.has_fork + 0.3 * group.sub_agents) for group in groups)
    generator = _Generator(home, seed, _Sizing(weight, entries, size), projects)
    for number, group in enumerate(groups):
        generator.write(number, group)
    names = [
        name
        for project in projects[:8]
        for name in (*project.snake[:4], *project.camel[:4], *project.paths[:2])
    ]
    manifest = Manifest(
        seed, files, generator.bytes, dict(generator.entries), names, list(COMMON[40:80]), needles
    )
    manifest.save(home)
    return manifest


def parse_size(text: str) -> int:
    """`280M` as bytes; k, M and G are powers of 1,000."""
    units = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
    if text[-1:] in units:
        return int(float(text[:-1]) * units[text[-1]])
    return int(text)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generate", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="home folder to write into")
    parser.add_argument("--bytes", type=parse_size, dest="size", help="total size, like 280M")
    parser.add_argument("--entries", type=parse_size, help="number of entries, like 100k")
    parser.add_argument("--files", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=Path, help="also write (session, kind, text) JSON lines")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    manifest = generate(
        options.out, seed=options.seed, files=options.files, entries=options.entries,
        size=options.size,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if options.texts:
        with open(options.texts, "wb") as file:
            for entry in entry_texts(options.out):
                file.write(orjson.dumps(entry._asdict()) + b"\n")
    summary = {
        "files": manifest.files, "bytes": manifest.bytes, "entries": manifest.entries,
        "needles": len(manifest.needles), "seconds": round(seconds, 1),
        "mb_per_second": round(manifest.bytes / seconds / 1e6, 1),
    }  # fmt: skip
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
