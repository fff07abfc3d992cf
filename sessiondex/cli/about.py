"""`formats`, `limits` and `completion`: what sessiondex says of itself."""

from __future__ import annotations

from typing import Any

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import pass_invocation, shared_options
from sessiondex.cli.output import Column


@click.command("formats")
@shared_options
@pass_invocation
def formats_command(invocation: Invocation) -> None:
    """List the session formats that can be read.

    A format is recognised by what a file holds, never by its name.
    """
    from sessiondex.indexer.sources import FORMATS

    output = invocation.output
    found: list[dict[str, Any]] = [
        {
            "name": each.name,
            "agent": each.agent,
            "parser_version": each.parser_version,
            "is_line_format": each.is_line_format,
            "what": (type(each).__doc__ or "").strip().partition("\n")[0],
        }
        for each in FORMATS
    ]
    if not output.is_for_people:
        output.json({"formats": found})
        return
    output.table(
        [Column("format"), Column("agent"), Column("grows by"), Column("what", "wrap")],
        [
            (each["name"], each["agent"], "lines" if each["is_line_format"] else "rewriting",
             each["what"])
            for each in found
        ],
    )  # fmt: skip


@click.command("limits")
@shared_options
@pass_invocation
def limits_command(invocation: Invocation) -> None:
    """List every limit, its default and its maximum.

    They bound pages and replies to models; --all goes past them.
    """
    from sessiondex.limits import LIMITS

    output = invocation.output
    if not output.is_for_people:
        output.json({"limits": [limit._asdict() for limit in LIMITS]})
        return
    output.table(
        [
            Column("limit"), Column("default", is_number=True),
            Column("maximum", is_number=True), Column("unit"), Column("what", "wrap"),
        ],
        [
            (limit.name, f"{limit.default:,}", f"{limit.maximum:,}", limit.unit, limit.what)
            for limit in LIMITS
        ],
    )  # fmt: skip


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@shared_options
@pass_invocation
def completion_command(invocation: Invocation, shell: str) -> None:
    """Print a completion script for your shell.

    For bash: eval "$(sessiondex completion bash)"
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    command = click.get_current_context().find_root().command
    completion = kind(command, {}, "sessiondex", "_SESSIONDEX_COMPLETE")
    # Not `source()`, which runs the shell to ask its version.
    script = completion.source_template % completion.source_vars()
    if invocation.output.is_for_people:
        invocation.output.line(script)
    else:
        invocation.output.json({"shell": shell, "script": script})
