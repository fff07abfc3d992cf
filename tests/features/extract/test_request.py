"""What an extract run sends to a model: all that a session shows, and nothing that none shows."""

from __future__ import annotations

import base64
import json
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart

from sessiondex.features.loop.budget import Budgets
from sessiondex.indexer.capture import Capture
from sessiondex.limits import LOOP_CALLS, LOOP_SHOWN_BYTES, LOOP_TOKENS, LOOP_TURNS, READ_BYTES
from tests.builders import (
    SAMPLES,
    claude_assistant,
    claude_call,
    claude_path,
    claude_result,
    claude_thinking,
    claude_user,
    write_lines,
)
from tests.features.extract.scripted import Scripted, Talk, World, calls, finish

pytestmark = pytest.mark.usefixtures("no_requests")

MOST = Budgets(
    turns=LOOP_TURNS.maximum, calls=LOOP_CALLS.maximum, shown_bytes=LOOP_SHOWN_BYTES.maximum,
    tokens=LOOP_TOKENS.maximum,
)  # fmt: skip
WINDOW = 16
"""Characters of an encoded body that would be found by chance nowhere else."""

_READ = READ_BYTES.maximum

Steps = Generator[tuple[str, dict[str, Any]], dict[str, Any], None]


def words(of: str) -> list[str]:
    """Words that stand in one place of a session alone."""
    return [f"{of}-{each}" for each in ("aardvark", "bandicoot", "capybara", "dugong", "echidna")]


def text(of: str) -> str:
    return " ".join(words(of)) + "."


def encoded(of: str) -> str:
    return base64.b64encode(text(of).encode() * 20).decode()


def image(of: str) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "image/png", "data": encoded(of)}
    return {"type": "image", "source": source}


# ---------------------------------------------------------------- a session that hides much


def secretive(path: Path) -> Path:
    """A file of Claude Code with everything in it that is never shown."""
    answer = claude_assistant("", 3)
    answer["message"]["content"] = [
        {"type": "thinking", "thinking": text("beside"), "signature": encoded("signature")},
        {"type": "redacted_thinking", "data": encoded("redacted")},
        {"type": "text", "text": text("answer")},
    ]
    asked = claude_user("", 0)
    plain = {"type": "text", "media_type": "text/plain", "data": text("document")}
    asked["message"]["content"] = [
        {"type": "text", "text": text("wish")},
        image("image"),
        {"type": "document", "source": plain},
    ]
    looked = claude_result("", "c1", 5)
    looked["message"]["content"][0]["content"] = [
        {"type": "text", "text": text("result")},
        image("screenshot"),
    ]
    looked["toolUseResult"] = {"type": "image", "file": {"base64": encoded("screenshot")}}
    tool = {"name": "Look", "description": text("schema"), "input_schema": {}}
    request = {"type": "api-request-shape", "sessionId": "s", "system": text("system"),
               "tools": [tool]}  # fmt: skip
    blob = {"type": "api-request-blob", "sessionId": "s",
            "message": {"role": "system", "content": text("system")}}  # fmt: skip
    told = claude_user("", 1, type="attachment")
    told["attachment"] = {"type": "nested_memory", "path": "CLAUDE.md", "content": text("context")}
    begun = claude_user("", 2, type="system", subtype="init", isMeta=True, content=text("prompt"))
    records = [
        request, blob, asked, told, begun, answer,
        claude_call("Look", {"at": text("call")}, "c1", 4),
        looked,
        claude_thinking(text("thought"), 6),
        claude_user(text("reminder"), 7, isMeta=True),
        claude_assistant(text("farewell"), 8),
    ]  # fmt: skip
    return write_lines(path, records)


SHOWN = ("wish", "answer", "call", "result", "reminder", "farewell")
HIDDEN = ("thought", "beside", "document", "schema", "system", "context", "prompt")
HIDDEN_BODIES = ("signature", "redacted", "image", "screenshot")


# ---------------------------------------------------------------- a model that looks at all


def pages(tool: str, **asked: Any) -> Steps:
    """All pages of an overview or a search."""
    cursor: dict[str, str] = {}
    while True:
        reply = yield tool, asked | cursor
        if not reply["has_more"]:
            return
        cursor = {"cursor": reply["next_cursor"]}


def readings(capture: Capture) -> Steps:
    """All entries with all of their texts."""
    place: str | None = "E0"
    through = f"E{capture.record_count - 1}"
    while place is not None:
        reply = yield "ReadEntry", {"from": place, "through": through, "max_bytes": _READ}
        place = reply["next_ref"]
        for entry in reply["entries"]:
            byte = entry["next_byte"]
            while byte is not None:
                asked = {"entry_ref": entry["entry_ref"], "from_byte": byte, "max_bytes": _READ}
                more = yield "ReadEntry", asked
                byte = more["entries"][0]["next_byte"]


class Curious:
    """Looks at everything with all three tools, and then finds nothing."""

    def __init__(self, capture: Capture, searched: Sequence[str] = ()) -> None:
        self.hits = 0
        """Of what was searched for."""
        self._steps = self._all(capture, searched)
        self._is_begun = False

    def __call__(self, talk: Talk) -> ModelResponse:
        try:
            step = self._steps.send(talk.replies[0]) if self._is_begun else next(self._steps)
        except StopIteration:
            step = finish(0, "nothing durable was said")
        self._is_begun = True
        return calls(step)

    def _all(self, capture: Capture, searched: Sequence[str]) -> Steps:
        yield from pages("ShowOverview", stride=1)
        yield from pages("SearchEntries")
        for query in searched:
            for match in ("literal", "ranked", "regex"):
                reply = yield "SearchEntries", {"query": query, "match": match}
                self.hits += len(reply["hits"])
        yield from readings(capture)


def sent(script: Scripted) -> str:
    """All that was sent to the model: what it was told and shown, instructions and tools."""
    parts: list[object] = []
    for talk in script.talks:
        parts += [talk.info.instructions, talk.info.model_settings]
        parts += [
            [tool.name, tool.description, tool.parameters_json_schema]
            for tool in talk.info.function_tools
        ]
    for message in script.talks[-1].messages:
        if isinstance(message, ModelRequest):
            parts.append(message.instructions)
            for part in message.parts:
                assert isinstance(part, UserPromptPart | ToolReturnPart)
                parts.append(part.content)
    return "\n".join(each if isinstance(each, str) else json.dumps(each) for each in parts)


def windows(body: str) -> Iterator[str]:
    """All that any part of a body of some length must hold."""
    return (body[at : at + WINDOW] for at in range(0, len(body) - WINDOW, WINDOW // 2))


# ---------------------------------------------------------------- what is sent


def test_nothing_that_a_session_hides_is_sent_and_all_that_it_shows_is(
    world: World, tmp_path: Path
) -> None:
    path = secretive(claude_path(tmp_path, "secretive"))
    hidden = [word for of in HIDDEN for word in words(of)]
    file = path.read_text()
    assert all(word in file for word in hidden)
    assert all(encoded(of) in file for of in HIDDEN_BODIES)
    capture = Capture.from_path(path)
    # Not the whole words: what is searched for may be repeated by a reply.
    curious = Curious(capture, [word[:-1] for word in hidden])
    script = Scripted([curious])
    result = world.run(capture, script, budgets=MOST)
    assert result.outcome == "no_candidates" and curious.hits == 0
    assert set(result.report.calls_by_tool) == {
        "ShowOverview", "SearchEntries", "ReadEntry", "FinishMemoryExtraction",
    }  # fmt: skip
    everything = sent(script)
    assert [word for word in hidden if word in everything] == []
    for of in HIDDEN_BODIES:
        assert [each for each in windows(encoded(of)) if each in everything] == []
        assert [word for word in words(of) if word in everything] == []
    for of in SHOWN:
        assert [word for word in words(of) if word not in everything] == []
    assert "image/png" in everything and "text/plain" in everything
    first = script.talks[0].first
    for of in ("call", "result", "reminder"):
        assert [word for word in words(of) if word in first] == []


def thoughts(path: Path) -> list[str]:
    """Lines of thoughts, and parts of their signatures, that stand once in the file."""
    file = path.read_text()
    found: set[str] = set()
    for line in file.splitlines():
        message = json.loads(line).get("message")
        content = message.get("content") if isinstance(message, dict) else None
        for block in content if isinstance(content, list) else []:
            if block.get("type") == "thinking":
                found.update(block["thinking"].splitlines())
                found.update(block.get("signature", "")[at : at + 40] for at in (0, 80))
    return [each for each in found if len(each) >= 40 and file.count(escaped(each)) == 1]


def escaped(line: str) -> str:
    """A text as it stands inside JSON."""
    return json.dumps(line, ensure_ascii=False)[1:-1]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="needs ../shared/samples")
@pytest.mark.parametrize("name", ["9265dc4e", "7744721d", "198393f2"])
def test_no_thought_of_a_real_session_is_sent(world: World, name: str) -> None:
    [path] = (SAMPLES / "home" / ".claude" / "projects").glob(f"*/{name}*.jsonl")
    hidden = thoughts(path)
    assert hidden
    capture = Capture.from_path(path)
    script = Scripted([Curious(capture)])
    result = world.run(capture, script, budgets=MOST)
    assert result.outcome == "no_candidates"
    everything = sent(script)
    assert [each for each in hidden if each in everything or escaped(each) in everything] == []
