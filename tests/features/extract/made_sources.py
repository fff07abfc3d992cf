"""Sources of one session in several formats, a library that holds it, and runs that stage all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from sessiondex.features.extract.report import ExtractResult
from sessiondex.features.services import RunRange
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import RefreshOptions, index_library
from sessiondex.query.verify import verify
from tests.builders import Clock, claude_user, moment
from tests.features.extract.scripted import Scripted, Talk, World, calls, finish, read, stage

SETTLED: Final = 2_000_000_000.0
"""A moment at which every file has been quiet for long."""

TEXTS: Final = [f"Rule {n}: gauge number {n} is read at noon." for n in range(6)]
MORE: Final = [f"Rule {n}: gauge number {n} is read at dusk." for n in range(6, 9)]
OTHER: Final = "Rule x: gauge number x is read at noon."
"""As long as the first ones."""

HOLDS: Final = "The user holds: "
"""Before the text of an entry it makes the claim that is staged for it."""

Bytes = Callable[[list[str]], bytes]


# ---------------------------------------------------------------- formats


def _lines(records: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def claude_code(texts: list[str]) -> bytes:
    return _lines(claude_user(text, n) for n, text in enumerate(texts))


def codex(texts: list[str]) -> bytes:
    """The first record says whose session it is, and holds no entry."""

    def line(kind: str, n: int, **payload: Any) -> dict[str, Any]:
        return {"timestamp": moment(n), "type": kind, "payload": payload}

    said = (
        line(
            "response_item", n, type="message", role="user",
            content=[{"type": "input_text", "text": text}],
        )
        for n, text in enumerate(texts)
    )  # fmt: skip
    thread = "019a0000-0000-7000-8000-000000000001"
    first = line("session_meta", 0, id=thread, timestamp=moment(0), cwd="/home/ada", source="cli")
    return _lines([first, *said])


def chat(texts: list[str]) -> bytes:
    messages = [{"role": "user", "content": text} for text in texts]
    return json.dumps({"model": "m", "messages": messages}).encode()


def atif(texts: list[str]) -> bytes:
    steps = [
        {"step_id": n, "source": "user", "message": text} for n, text in enumerate(texts, 1)
    ]  # fmt: skip
    agent = {"name": "helper", "version": "2", "model_name": "acme/large"}
    return json.dumps(
        {"schema_version": "ATIF-v1.5", "session_id": "run", "agent": agent, "steps": steps}
    ).encode()


LINES: Final[dict[str, tuple[str, Bytes]]] = {
    "claude code": (".claude/projects/-home-ada/one.jsonl", claude_code),
    "codex": (
        ".codex/sessions/2026/05/04/rollout-2026-05-04T00-00-00-019a0000-0000-7000-8000-00000000"
        "0001.jsonl",
        codex,
    ),
}  # fmt: skip
DOCUMENTS: Final[dict[str, tuple[str, Bytes]]] = {
    "chat": ("talks/chat.json", chat),
    "atif": ("runs/trajectory.json", atif),
}
FORMATS: Final = LINES | DOCUMENTS


# ---------------------------------------------------------------- a source and its library


class Source:
    """A source of one session, a library that holds it, and runs over it."""

    def __init__(self, folder: Path, format: str) -> None:
        name, self._bytes = FORMATS[format]
        self.path = folder / "home" / name
        self.path.parent.mkdir(parents=True)
        self.before = 1 if format == "codex" else 0
        """Records before the first text."""
        self.folder = folder / "library"
        self.library = Library.create(self.folder)
        self.world = World(self.folder, state=self.folder / "state.sqlite3")
        self.write(TEXTS)
        self.index()
        (row,) = self.library.snapshot().rows()
        self.session = row.session

    def write(self, texts: list[str]) -> None:
        """Writes it anew in its place."""
        self.path.write_bytes(self._bytes(texts))

    def replace(self, texts: list[str]) -> None:
        """Puts another file into its place."""
        other = self.path.with_name("other")
        other.write_bytes(self._bytes(texts))
        os.rename(other, self.path)

    def grow(self, texts: list[str]) -> None:
        """Appends what is new where the format appends; else writes it anew."""
        data, old = self._bytes(texts), self.path.read_bytes()
        if data.startswith(old):
            with self.path.open("ab") as file:
                file.write(data[len(old) :])
        else:
            self.path.write_bytes(data)

    def index(self) -> None:
        options = RefreshOptions(home=self.folder, clock=Clock(SETTLED))
        index_library(self.library, [self.path] if self.path.exists() else (), options=options)

    def capture(self, now: float = SETTLED) -> Capture:
        return self.library.capture(self.session, now=now)

    def records(self, texts: int) -> int:
        """Records of the session that has so many texts."""
        return self.before + texts

    # ------------------------------------------------------------ runs

    def run(
        self,
        during: Callable[[], object] = lambda: None,
        *,
        at: int = 1,
        now: float = SETTLED,
        run_range: RunRange | None = None,
    ) -> ExtractResult:
        """A run that stages what it is shown, during which something happens before an answer."""
        capture = self.capture(now).committed()
        done = self.world.ledger.done_records(capture).records
        first, last = run_range or (done, capture.record_count - 1)
        entries = [
            entry
            for entry in capture.entries(0, capture.entry_count)
            if first <= entry.ref.record <= last
        ]
        refs = [str(entry.ref) for entry in entries]
        said = [capture.text(entry).decode() for entry in entries]
        answers = [
            calls(read(*refs)),
            calls(
                *(
                    stage(f"{HOLDS}{text}", ref, quotes=[{"entry_ref": ref, "quote": text}])
                    for ref, text in zip(refs, said, strict=True)
                )
            ),
            calls(finish(len(refs))),
        ]
        left: dict[str, tuple[str, int]] = {}

        def answer(number: int) -> Callable[[Talk], Any]:
            def turn(talk: Talk) -> Any:
                assert all("error" not in reply for reply in talk.replies)
                if number == at:
                    during()
                    left.update(self.files())
                return answers[number]

            return turn

        script = Scripted([answer(number) for number in range(3)])
        result = self.world.run(
            capture, script, run_range=run_range, current=lambda: self.capture(now)
        )
        assert self.files() == left
        return result

    def files(self) -> dict[str, tuple[str, int]]:
        """Digest and time of all that a run may not change."""
        root = self.folder.parent
        return {
            str(path.relative_to(root)): (
                hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns,
            )
            for path in sorted(root.rglob("*"))
            if path.is_file()
            and path.parent != self.folder / "staging"
            and not path.name.startswith("state.sqlite3")
            and not path.name.endswith(("-wal", "-shm"))
        }  # fmt: skip

    @property
    def pointer(self) -> int | None:
        """Texts that are done."""
        found = self.world.pointer(self.session)
        return None if found is None else found - self.before

    def next_texts(self) -> list[str]:
        """What the next run would cover."""
        capture = self.capture().committed()
        first = self.world.ledger.done_records(capture).records
        entries = capture.entries(0, capture.entry_count)
        return [
            capture.text(entry).decode() for entry in entries if entry.ref.record >= first
        ]  # fmt: skip

    def claimed(self) -> list[str]:
        return [claim.removeprefix(HOLDS) for claim in self.world.claims()]

    def statuses(self) -> list[tuple[str, str]]:
        """What `verify` says of the staged records: the entry, the source."""
        cited = [record.to_json() for record in self.world.staging.waiting().records]
        found = verify(cited, open_capture=lambda name: self.library.capture(name, now=SETTLED))
        return [(each["status"], each["source"]) for each in found]
