"""Writes Claude Code session files: the envelope, the blocks, and everything that is said twice.

Sizes follow what was measured on real files: most bytes are `toolUseResult` twins and `progress`
copies, about a fifth is text that a model saw.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from benchmarks.claude_tools import make_tool_use
from benchmarks.session_file import SessionFile, iso, make_uuid
from benchmarks.texts import Writer

MODELS: Final = ("claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929")
VERSIONS: Final = ("2.0.76", "2.1.1", "2.1.29", "2.1.42")


class SubAgent(NamedTuple):
    """A finished sub-agent session, as its parent refers to it."""

    agent_id: str
    prompt: str
    answer: str
    lines: list[bytes]


def last_uuid(lines: Sequence[bytes]) -> str | None:
    """The uuid of the last record that has one."""
    for line in reversed(lines):
        if uuid := orjson.loads(line).get("uuid"):
            return uuid
    return None


class ClaudeSession:
    """One Claude Code session, written turn by turn into a `SessionFile`."""

    def __init__(
        self,
        file: SessionFile,
        writer: Writer,
        *,
        factor: float = 1.0,
        agent_id: str = "",
        sub_agents: Sequence[SubAgent] = (),
    ) -> None:
        self.file = file
        self.prompt = ""
        """The first prompt."""
        self.answer = ""
        """The last assistant text."""
        self.turn_ends: list[int] = []
        """How many lines the file had after each turn."""
        self._writer, self._rng = writer, writer.rng
        self._factor = factor
        self._agent_id = agent_id
        self._sub_agents = list(sub_agents)
        self._parent = last_uuid(file.lines)
        self._model = self._rng.choice(MODELS)
        self._base: dict[str, Any] = {
            "isSidechain": bool(agent_id),
            "userType": "external",
            "cwd": writer.project.cwd,
            "sessionId": file.session_id.partition("/")[0],
            "version": self._rng.choice(VERSIONS),
            "gitBranch": self._rng.choice(writer.project.branches),
        }
        if agent_id:
            self._base["agentId"] = agent_id

    def write(self, is_enough: Callable[[SessionFile], bool]) -> None:
        """Writes turns until it is enough, every needle planted, every sub-agent called."""
        rng, file = self._rng, self.file
        if rng.random() < 0.2 and not self._agent_id and not file.lines:
            file.put({"type": "summary", "summary": "Earlier work", "leafUuid": make_uuid(rng)})
        while True:
            self._turn(is_enough)
            self.turn_ends.append(len(file.lines))
            if is_enough(file) and file.queue.is_empty and not self._sub_agents:
                break
            if rng.random() < 0.02:
                self._compact()
        if rng.random() < 0.1 and not self._agent_id:
            session_id = self._base["sessionId"]
            title = self._writer.prose(30)
            file.put({"type": "custom-title", "customTitle": title, "sessionId": session_id})

    # ------------------------------------------------------------ records

    def _node(self, fields: dict[str, Any], seconds: float = 4.0) -> None:
        """A record that takes part in the parent chain."""
        timestamp = self.file.tick(self._rng, seconds)
        uuid = make_uuid(self._rng)
        self.file.put(
            {"parentUuid": self._parent, **self._base, **fields}
            | {"uuid": uuid, "timestamp": timestamp}
        )
        self._parent = uuid

    def _assistant(self, block: dict[str, Any], message_id: str, stop: str | None = None) -> None:
        usage = {
            "input_tokens": 10,
            "cache_creation_input_tokens": self._rng.randrange(40_000),
            "cache_read_input_tokens": self._rng.randrange(120_000),
            "output_tokens": self._rng.randrange(900),
            "service_tier": "standard",
        }
        message = {
            "model": self._model, "id": message_id, "type": "message", "role": "assistant",
            "content": [block], "stop_reason": stop, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        self._node({"message": message, "requestId": f"req_{message_id[4:]}", "type": "assistant"})

    def _message_id(self) -> str:
        return f"msg_01{self._rng.getrandbits(88):022x}"

    # ------------------------------------------------------------ turns

    def _turn(self, is_enough: Callable[[SessionFile], bool]) -> None:
        rng, writer, file = self._rng, self._writer, self.file
        if not self._agent_id:
            self._snapshot()
        prompt = file.plant(writer.prose(writer.size(140, 1.0, 6000)), ("fork", "user"))
        self.prompt = self.prompt or prompt
        self._node({"type": "user", "message": {"role": "user", "content": prompt}}, seconds=240)
        file.count("user")
        for _ in range(1 + int(rng.expovariate(1 / 7))):
            self._step()
            if is_enough(file) and file.queue.is_empty:
                break
        self._say(writer.size(500, 0.9, 8000), self._message_id(), "end_turn")
        if not self._agent_id:
            duration = rng.randrange(200_000)
            self._node({"type": "system", "subtype": "turn_duration", "durationMs": duration})

    def _step(self) -> None:
        """Perhaps thinking, perhaps a sentence, then one tool call and its result."""
        rng, writer, file = self._rng, self._writer, self.file
        message_id = self._message_id()
        if rng.random() < 0.55:
            thinking = file.plant(writer.prose(writer.size(300, 0.9, 6000)), ("thinking",))
            signature = b64encode(rng.randbytes(writer.size(420, 0.6, 4000))).decode()
            self._assistant(
                {"type": "thinking", "thinking": thinking, "signature": signature}, message_id
            )
        if rng.random() < 0.35:
            self._say(writer.size(160, 0.7, 2000), message_id)
        if self._sub_agents and rng.random() < 0.6:
            self._delegate(self._sub_agents.pop(), message_id)
        else:
            self._use_tool(message_id)

    def _say(self, size: int, message_id: str, stop: str | None = None) -> None:
        self.answer = self.file.plant(self._writer.prose(size), ("assistant",))
        self._assistant({"type": "text", "text": self.answer}, message_id, stop)
        self.file.count("assistant")

    def _use_tool(self, message_id: str) -> None:
        rng, writer, file = self._rng, self._writer, self.file
        use = make_tool_use(rng, writer, self._factor)
        if use.plantable:
            text = file.plant(use.arguments[use.plantable], ("tool_input",))
            use.arguments[use.plantable] = text
        call_id = self._call(use.name, use.arguments, message_id)
        output = use.output
        if use.name == "Bash" and rng.random() < 0.45:
            self._bash_progress(call_id, output)
        if rng.random() < 0.15:
            self._hook_progress(call_id, use.name)
        if file.queue.has("large_output"):
            output = writer.log(1_200_000)
        output = file.plant(output, ("large_output", "tool_output", "sub_agent"))
        twin = use.twin(output)
        if "originalFile" in twin:
            twin["originalFile"] = file.plant(twin["originalFile"], ("twin",))
        self._result(call_id, output, twin, is_error=rng.random() < 0.05)

    def _call(self, name: str, arguments: dict[str, Any], message_id: str) -> str:
        call_id = f"toolu_01{self._rng.getrandbits(88):022x}"
        self._assistant(
            {"type": "tool_use", "id": call_id, "name": name, "input": arguments},
            message_id, "tool_use",
        )  # fmt: skip
        self.file.count("tool_input")
        return call_id

    def _result(self, call_id: str, content: Any, twin: Any, *, is_error: bool = False) -> None:
        block = {"tool_use_id": call_id, "type": "tool_result", "content": content}
        if is_error or self._rng.random() < 0.5:
            block["is_error"] = is_error
        self._node(
            {"type": "user", "message": {"role": "user", "content": [block]},
             "toolUseResult": twin, "sourceToolAssistantUUID": self._parent}
        )  # fmt: skip
        self.file.count("tool_output")

    def _delegate(self, agent: SubAgent, message_id: str) -> None:
        """Calls a sub-agent, whose records are copied as progress, and gives its answer."""
        arguments = {
            "description": self._writer.prose(30), "prompt": agent.prompt,
            "subagent_type": "Explore",
        }  # fmt: skip
        call_id = self._call("Task", arguments, message_id)
        for line in agent.lines:
            self._progress(
                {"type": "agent_progress", "message": orjson.Fragment(line),
                 "normalizedMessages": [], "prompt": agent.prompt, "agentId": agent.agent_id},
                f"agent_{message_id}", call_id,
            )  # fmt: skip
        content = [
            {"type": "text", "text": agent.answer},
            {"type": "text", "text": f"agentId: {agent.agent_id} (for resuming)"},
        ]
        twin = {
            "status": "completed", "prompt": agent.prompt, "agentId": agent.agent_id,
            "content": content[:1], "totalDurationMs": self._rng.randrange(300_000),
        }  # fmt: skip
        self._result(call_id, content, twin)

    # ------------------------------------------------------------ records without entries

    def _snapshot(self) -> None:
        message_id = make_uuid(self._rng)
        snapshot = {
            "messageId": message_id, "trackedFileBackups": {}, "timestamp": iso(self.file.now),
        }  # fmt: skip
        self.file.put(
            {"type": "file-history-snapshot", "messageId": message_id, "snapshot": snapshot,
             "isSnapshotUpdate": False}
        )  # fmt: skip

    def _progress(self, data: dict[str, Any], tool_use_id: str, call_id: str) -> None:
        self._node(
            {"type": "progress", "data": data, "toolUseID": tool_use_id,
             "parentToolUseID": call_id},
            seconds=1,
        )  # fmt: skip

    def _bash_progress(self, call_id: str, output: str) -> None:
        shown = self.file.plant(output[: len(output) // 2], ("progress",))
        self._progress(
            {"type": "bash_progress", "output": shown[-400:], "fullOutput": shown,
             "elapsedTimeSeconds": 2, "totalLines": shown.count("\n")},
            "bash-progress-0", call_id,
        )  # fmt: skip

    def _hook_progress(self, call_id: str, name: str) -> None:
        self._progress(
            {"type": "hook_progress", "hookEvent": "PostToolUse", "hookName": f"PostToolUse:{name}",
             "command": "make lint"},
            call_id, call_id,
        )  # fmt: skip

    def _compact(self) -> None:
        """The boundary and the summary of a compaction."""
        last, self._parent = self._parent, None
        self._node(
            {"logicalParentUuid": last, "type": "system", "subtype": "compact_boundary",
             "content": "Conversation compacted", "level": "info",
             "compactMetadata": {"trigger": "auto", "preTokens": 155_000}}
        )  # fmt: skip
        self.file.count("system")
        summary = f"This session continues an earlier one.\n\n{self._writer.prose(3000)}"
        self._node(
            {"type": "user", "message": {"role": "user", "content": summary},
             "isVisibleInTranscriptOnly": True, "isCompactSummary": True}
        )  # fmt: skip
        self.file.count("system")
