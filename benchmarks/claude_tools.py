"""The tool calls of generated Claude Code sessions: arguments, output, and the structured twin."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from benchmarks.texts import Writer

LARGE_SHARE: Final = 1 / 1500
"""Share of tool outputs between 100 KB and 2 MB."""


class ToolUse(NamedTuple):
    """One call and what came back."""

    name: str
    arguments: dict[str, Any]
    plantable: str
    """The argument that may carry a needle; '' if none."""
    output: str
    twin: Callable[[str], dict[str, Any]]
    """Builds `toolUseResult` from the output."""


def output_size(writer: Writer, factor: float) -> int:
    """Bytes of one tool output: a median of 420 at factor 1, and a heavy tail to 2 MB."""
    if writer.rng.random() < LARGE_SHARE * min(1.0, factor):
        return min(2_000_000, int(100_000 * writer.rng.paretovariate(1.1)))
    return writer.size(420 * factor, 1.5, 60_000)


def bash(writer: Writer, size: int, factor: float) -> ToolUse:
    """A shell command; its twin repeats the output as `stdout`."""
    rng = writer.rng
    path, name = rng.choice(writer.project.paths), rng.choice(writer.project.snake)
    command = rng.choice((
        f"pytest -q {path} -k {name}", f"git log --oneline -- {path}", f"rg -n {name} {path}",
        f"cd {writer.project.cwd} && make {name}", f"cat {path} | head -{rng.randrange(400)}",
    ))  # fmt: skip
    if rng.random() < 0.15:
        command = f"python - <<'EOF'\n{writer.code(writer.size(500, 0.8, 6000))}\nEOF"
    return ToolUse(
        "Bash",
        {"command": command, "description": writer.prose(40)},
        "command",
        writer.output(size),
        lambda output: {"stdout": output, "stderr": "", "interrupted": False, "isImage": False},
    )


def read(writer: Writer, size: int, factor: float) -> ToolUse:
    """A file with line numbers; its twin holds the same lines without numbers."""
    path = f"{writer.project.cwd}/{writer.rng.choice(writer.project.paths)}"
    first = writer.rng.choice((1, 1, writer.rng.randrange(1, 2000)))
    output = writer.numbered(int(size * 1.5), first)
    return ToolUse(
        "Read",
        {"file_path": path, "offset": first, "limit": 2000},
        "",
        output,
        lambda text: {"type": "text", "file": {
            "filePath": path, "content": text.replace("→", ""), "numLines": text.count("\n") + 1,
            "startLine": first, "totalLines": first + text.count("\n"),
        }},
    )  # fmt: skip


def edit(writer: Writer, size: int, factor: float) -> ToolUse:
    """A replacement; its twin holds the whole original file and a patch."""
    path = f"{writer.project.cwd}/{writer.rng.choice(writer.project.paths)}"
    old = writer.code(writer.size(260, 0.9, 6000))
    new = f"{old}\n{writer.code(writer.size(160, 0.9, 6000))}"
    original = f"{writer.code(writer.size(7000 * factor, 0.9, 200_000))}\n{old}"
    snippet = writer.numbered(400, writer.rng.randrange(1, 900))
    return ToolUse(
        "Edit",
        {"file_path": path, "old_string": old, "new_string": new, "replace_all": False},
        "new_string",
        f"The file {path} has been updated. Here is a snippet of the result:\n{snippet}",
        lambda _: {
            "filePath": path, "oldString": old, "newString": new, "originalFile": original,
            "structuredPatch": [{"oldStart": 1, "newStart": 1, "lines": new.split("\n")}],
            "userModified": False, "replaceAll": False,
        },
    )  # fmt: skip


def write(writer: Writer, size: int, factor: float) -> ToolUse:
    """A new file."""
    path = f"{writer.project.cwd}/{writer.rng.choice(writer.project.paths)}"
    content = writer.code(writer.size(2200 * factor, 0.9, 60_000))
    return ToolUse(
        "Write",
        {"file_path": path, "content": content},
        "content",
        f"File created successfully at: {path}",
        lambda _: {"type": "create", "filePath": path, "content": content, "structuredPatch": []},
    )


def grep(writer: Writer, size: int, factor: float) -> ToolUse:
    """Matching lines."""
    pattern = writer.rng.choice(writer.project.camel)
    return ToolUse(
        "Grep",
        {"pattern": pattern, "path": writer.project.cwd, "output_mode": "content", "-n": True},
        "",
        writer.grep(size),
        lambda output: {
            "mode": "content", "filenames": [], "content": output,
            "numLines": output.count("\n") + 1,
        },
    )  # fmt: skip


def glob(writer: Writer, size: int, factor: float) -> ToolUse:
    """Matching paths."""
    return ToolUse(
        "Glob",
        {"pattern": "**/*.py", "path": writer.project.cwd},
        "",
        writer.tree(size),
        lambda output: {"filenames": output.split("\n"), "durationMs": 12, "truncated": False},
    )


def todo(writer: Writer, size: int, factor: float) -> ToolUse:
    """A task list."""
    states = ("completed", "in_progress", "pending", "pending")
    todos = [
        {"content": writer.prose(50), "status": state, "activeForm": writer.prose(30)}
        for state in states
    ]
    return ToolUse(
        "TodoWrite",
        {"todos": todos},
        "",
        "Todos have been modified successfully. Continue with the current task.",
        lambda _: {"oldTodos": [], "newTodos": todos},
    )


MAKERS: Final = (bash, read, edit, grep, glob, write, todo)
WEIGHTS: Final = (40, 25, 16, 9, 4, 3, 3)


def make_tool_use(rng: random.Random, writer: Writer, factor: float) -> ToolUse:
    """One call in the mix of tools that real sessions show."""
    maker = rng.choices(MAKERS, WEIGHTS)[0]
    return maker(writer, output_size(writer, factor), factor)
