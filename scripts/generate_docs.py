"""The generated parts of docs/*.md: what the code says of itself, between two comments.

<!-- generated: tools builtin:library -->
…
<!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click

from sessiondex.cli.application import cli
from sessiondex.features.catalogue import all_features
from sessiondex.features.tool import Tool, argument_names

DOCS = Path(__file__).resolve().parents[1] / "docs"

_PART = re.compile(r"(<!-- generated: (?P<name>[^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def tools(feature: str) -> str:
    """A table of the tools of a feature."""
    descriptor = next(each for each in all_features() if each.id == feature)
    rows = "".join(_row(tool) for tool in descriptor.tools)
    return f"| tool | what it does | arguments |\n|---|---|---|\n{rows}"


def _row(tool: Tool) -> str:
    required = set(tool.input_schema().get("required", ()))
    names = [
        f"**`{name}`**" if name in required else f"`{name}`" for name in argument_names(tool.input)
    ]
    what = tool.description.replace("|", "\\|")
    return f"| `{tool.name}` | {what} | {', '.join(names) or 'none'} |\n"


def help_of(words: str) -> str:
    """What a command says with --help."""
    context = click.Context(cli, info_name="sessiondex", max_content_width=100, terminal_width=100)
    command: click.Command = cli
    for word in words.split():
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None, f"no command {words!r}"
        command = found
        context = click.Context(
            command, info_name=word, parent=context, max_content_width=100, terminal_width=100
        )
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"```console\n$ sessiondex {words} --help\n{text}\n```\n"


PARTS: dict[str, Callable[[str], str]] = {"tools": tools, "help": help_of}
"""First word of a part's name → what makes it from the rest."""


def rewritten(text: str) -> str:
    """A document with its generated parts as they should be."""

    def part(match: re.Match[str]) -> str:
        kind, _, rest = match["name"].partition(" ")
        return f"{match[1]}{PARTS[kind](rest)}{match[3]}"

    return _PART.sub(part, text)


def main() -> None:
    """Rewrites every document."""
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if rewritten(text) != text:
            path.write_text(rewritten(text), encoding="utf-8")
            print(f"rewritten: docs/{path.name}")


if __name__ == "__main__":
    main()
