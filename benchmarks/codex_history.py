"""Writes Codex rollouts: canonical response items, and the events that say the same again."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from benchmarks.claude_tools import output_size
from benchmarks.needles import Slot
from benchmarks.session_file import SessionFile
from benchmarks.texts import Writer

VERSIONS: Final = ("0.57.0", "0.98.0", "0.128.0")
MODELS: Final = ("gpt-5-codex", "gpt-5.2-codex")


class CodexSession:
    """One Codex session, written turn by turn into a `SessionFile`."""

    def __init__(self, file: SessionFile, writer: Writer, *, factor: float = 1.0) -> None:
        self.file = file
        self._writer, self._rng = writer, writer.rng
        self._factor = factor
        self._version = self._rng.choice(VERSIONS)
        self._model = self._rng.choice(MODELS)

    def write(self, is_enough: Callable[[SessionFile], bool]) -> None:
        """Writes turns until it is enough and every needle is planted."""
        self._begin()
        while True:
            self._turn(is_enough)
            if is_enough(self.file) and self.file.queue.is_empty:
                break

    # ------------------------------------------------------------ records

    def _put(self, kind: str, payload: dict[str, Any], seconds: float = 3.0) -> None:
        timestamp = self.file.tick(self._rng, seconds)
        self.file.put({"timestamp": timestamp, "type": kind, "payload": payload})

    def _item(self, payload: dict[str, Any], entry: str = "") -> None:
        self._put("response_item", payload)
        if entry:
            self.file.count(entry)

    def _event(self, kind: str, **fields: Any) -> None:
        self._put("event_msg", {"type": kind, **fields}, seconds=0.1)

    def _message(self, role: str, text: str, entry: str = "") -> None:
        part = "output_text" if role == "assistant" else "input_text"
        content = [{"type": part, "text": text}]
        self._item({"type": "message", "role": role, "content": content}, entry)

    def _plant(self, text: str, *slots: Slot) -> str:
        return self.file.plant(text, slots)

    # ------------------------------------------------------------ turns

    def _begin(self) -> None:
        project, rng = self._writer.project, self._rng
        instructions = self._plant(self._writer.prose(4000), "codex_prompt")
        self._put("session_meta", {
            "id": self.file.session_id, "timestamp": self.file.tick(rng, 1), "cwd": project.cwd,
            "originator": "codex_cli_rs", "cli_version": self._version, "source": "cli",
            "base_instructions": {"text": instructions}, "model_provider": "openai",
            "git": {"commit_hash": f"{rng.getrandbits(160):040x}",
                    "branch": rng.choice(project.branches)},
        })  # fmt: skip
        if self._version != "0.57.0":
            self._message("developer", f"<permissions instructions>\n{self._writer.prose(900)}")
        context = f"<environment_context>\n  <cwd>{project.cwd}</cwd>\n</environment_context>"
        self._message("user", context, "user")

    def _turn(self, is_enough: Callable[[SessionFile], bool]) -> None:
        rng, writer = self._rng, self._writer
        prompt = self._plant(writer.prose(writer.size(160, 1.0, 6000)), "codex_user")
        self.file.tick(rng, 240)
        self._put("turn_context", {
            "cwd": writer.project.cwd, "approval_policy": "on-request", "model": self._model,
            "sandbox_policy": {"mode": "workspace-write", "network_access": False},
            "summary": "auto",
        })  # fmt: skip
        self._message("user", prompt, "user")
        self._event("user_message", message=prompt, images=[])
        for _ in range(1 + int(rng.expovariate(1 / 8))):
            self._step()
            if is_enough(self.file) and self.file.queue.is_empty:
                break
        answer = self._plant(writer.prose(writer.size(600, 0.9, 8000)), "assistant")
        self._event("agent_message", message=answer)
        self._message("assistant", answer, "assistant")
        if self._version != "0.57.0":
            self._event("task_complete", last_agent_message=answer)

    def _step(self) -> None:
        rng, writer = self._rng, self._writer
        if rng.random() < 0.7:
            thought = self._plant(f"**{writer.prose(200)}**", "codex_reasoning")
            encrypted = b64encode(rng.randbytes(writer.size(900, 0.5, 40_000))).decode()
            self._event("agent_reasoning", text=thought)
            self._item({
                "type": "reasoning", "summary": [{"type": "summary_text", "text": thought}],
                "content": None, "encrypted_content": encrypted,
            })  # fmt: skip
        if rng.random() < 0.2:
            self._message("assistant", writer.prose(writer.size(160, 0.7, 2000)), "assistant")
        call_id = f"call_{rng.getrandbits(96):024x}"
        if rng.random() < 0.2:
            self._patch(call_id)
        else:
            self._shell(call_id)
        self._event(
            "token_count", info=None,
            rate_limits={"primary": {"used_percent": rng.randrange(100), "window_minutes": 300}},
        )  # fmt: skip

    def _shell(self, call_id: str) -> None:
        rng, writer = self._rng, self._writer
        path = rng.choice(writer.project.paths)
        command = rng.choice((
            f"rg -n {rng.choice(writer.project.camel)} {path}", f"sed -n 1,200p {path}",
            f"cargo test {rng.choice(writer.project.snake)}", "git status --short",
        ))  # fmt: skip
        command = self._plant(command, "codex_input")
        is_old = self._version == "0.57.0"
        arguments: dict[str, Any] = (
            {"command": ["bash", "-lc", command], "workdir": writer.project.cwd}
            if is_old
            else {"cmd": command, "workdir": writer.project.cwd, "yield_time_ms": 1000}
        )
        name = "shell" if is_old else "exec_command"
        self._item(
            {"type": "function_call", "name": name, "call_id": call_id,
             "arguments": json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))},
            "tool_input",
        )  # fmt: skip
        size = output_size(writer, self._factor)
        text = writer.numbered(size) if rng.random() < 0.4 else writer.output(size)
        text = self._plant(text, "codex_output")
        code = int(rng.random() < 0.06)
        if is_old:
            meta = {"exit_code": code, "duration_seconds": 0.2}
            output = json.dumps({"output": text, "metadata": meta}, ensure_ascii=False)
        else:
            output = f"Exit code: {code}\nWall time: 0.2 seconds\nOutput:\n{text}"
        self._item(
            {"type": "function_call_output", "call_id": call_id, "output": output}, "tool_output"
        )
        if rng.random() < 0.3:
            self._event("exec_command_end", call_id=call_id, aggregated_output=text, exit_code=code)

    def _patch(self, call_id: str) -> None:
        writer = self._writer
        path = self._rng.choice(writer.project.paths)
        lines = writer.code(writer.size(500, 0.9, 9000)).replace("\n", "\n+")
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n+{lines}\n*** End Patch"
        self._item(
            {"type": "custom_tool_call", "status": "completed", "call_id": call_id,
             "name": "apply_patch", "input": patch},
            "tool_input",
        )  # fmt: skip
        text = f"Success. Updated the following files:\nM {path}\n"
        meta = {"exit_code": 0, "duration_seconds": 0.1}
        self._item(
            {"type": "custom_tool_call_output", "call_id": call_id,
             "output": json.dumps({"output": text, "metadata": meta})},
            "tool_output",
        )  # fmt: skip
