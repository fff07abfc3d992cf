"""The generator of benchmark histories: deterministic, of the asked size, needles where it says."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from benchmarks.entry_texts import EntryText, entry_texts
from benchmarks.generate import Manifest, generate, parse_size


def fold(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest, list[EntryText]]:
    home = tmp_path_factory.mktemp("history")
    manifest = generate(home, seed=7, files=24, size=1_500_000)
    return home, manifest, list(entry_texts(home))


def session_files(home: Path) -> list[Path]:
    return sorted([*home.glob(".claude/**/*.jsonl"), *home.glob(".codex/**/*.jsonl")])


def test_same_seed_gives_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        generate(tmp_path / name, seed=3, files=6, size=120_000)

    def content(home: Path) -> dict[str, bytes]:
        files = (path for path in home.rglob("*") if path.is_file())
        return {str(path.relative_to(home)): path.read_bytes() for path in files}

    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_another_seed_gives_other_sessions(tmp_path: Path) -> None:
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        generate(tmp_path / str(seed), seed=seed, files=5, size=50_000)
    names = [{path.name for path in session_files(tmp_path / str(seed))} for seed in (1, 2)]
    assert not names[0] & names[1]


def test_files_and_bytes_are_as_asked(history: tuple[Path, Manifest, list[EntryText]]) -> None:
    home, manifest, _ = history
    files = session_files(home)
    assert len(files) == manifest.files == 24
    assert sum(path.stat().st_size for path in files) == manifest.bytes
    # The long token and the end of the last turn come on top.
    assert 1_500_000 <= manifest.bytes < 2_100_000


def test_entries_are_as_asked(tmp_path: Path) -> None:
    manifest = generate(tmp_path, seed=5, files=20, entries=2_000)
    assert 1_950 <= manifest.entry_count <= 2_200


def test_manifest_survives_saving(history: tuple[Path, Manifest, list[EntryText]]) -> None:
    home, manifest, _ = history
    assert Manifest.load(home) == manifest


def test_every_line_is_a_json_object(history: tuple[Path, Manifest, list[EntryText]]) -> None:
    home, _, _ = history
    for path in session_files(home):
        content = path.read_bytes()
        assert content.endswith(b"\n")
        for line in content.split(b"\n")[:-1]:
            assert isinstance(json.loads(line), dict)


def test_entry_counts_agree_with_a_naive_reader(
    history: tuple[Path, Manifest, list[EntryText]],
) -> None:
    _, manifest, texts = history
    assert Counter(entry.kind for entry in texts) == manifest.entries


def test_each_needle_stands_once_in_each_session_that_the_manifest_names(
    history: tuple[Path, Manifest, list[EntryText]],
) -> None:
    _, manifest, texts = history
    folded = [(entry.session, fold(entry.text)) for entry in texts]
    for needle in manifest.needles:
        query = fold(needle.query)
        found = [session for session, text in folded if query in text]
        expected = [] if needle.is_hidden else sorted(needle.sessions)
        assert sorted(found) == expected, needle.category
        assert needle.sessions, needle.category


def test_hidden_needles_are_in_the_files(
    history: tuple[Path, Manifest, list[EntryText]],
) -> None:
    home, manifest, _ = history
    content = b"".join(path.read_bytes() for path in session_files(home))
    for needle in manifest.needles:
        if needle.is_hidden:
            assert needle.planted.encode() in content


def test_a_fork_replays_uuids_under_its_own_session_id(
    history: tuple[Path, Manifest, list[EntryText]],
) -> None:
    home, manifest, _ = history
    needle = next(needle for needle in manifest.needles if needle.category == "fork")
    assert len(needle.sessions) == 2
    uuids: defaultdict[str, set[str]] = defaultdict(set)
    for session in needle.sessions:
        (path,) = home.glob(f".claude/projects/*/{session}.jsonl")
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            assert record.get("sessionId", session) == session
            uuids[session].add(record.get("uuid", ""))
    owner, copy = (uuids[session] - {""} for session in needle.sessions)
    assert owner & copy
    assert copy - owner


def test_a_sub_agent_is_named_by_its_parent(
    history: tuple[Path, Manifest, list[EntryText]],
) -> None:
    home, manifest, _ = history
    needle = next(needle for needle in manifest.needles if needle.category == "sub_agent")
    parent, agent_id = needle.sessions[0].split("/")
    (path,) = home.glob(f".claude/projects/*/{parent}.jsonl")
    twins = [json.loads(line).get("toolUseResult") for line in path.read_bytes().splitlines()]
    assert agent_id in [twin.get("agentId") for twin in twins if isinstance(twin, dict)]


@pytest.mark.parametrize(
    ("text", "size"), [("12", 12), ("1k", 1_000), ("280M", 280_000_000), ("1.5G", 1_500_000_000)]
)
def test_sizes_are_powers_of_a_thousand(text: str, size: int) -> None:
    assert parse_size(text) == size
