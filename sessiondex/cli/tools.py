"""`sessiondex tools`: the tools for models, looked at and called by hand."""

from __future__ import annotations

import sys
from typing import Any

import click

from sessiondex.cli.hosting import local_host, observer_options, session_option
from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import fresh_option, pass_invocation, shared_options
from sessiondex.cli.output import Column
from sessiondex.errors import NotFound, SessiondexError


@click.group("tools")
def tools_command() -> None:
    """List the tools for models, show their schemas, call one."""


@tools_command.command("list")
@shared_options
@pass_invocation
def list_command(invocation: Invocation) -> None:
    """List every tool of every feature, whether or not it could be served here."""
    from sessiondex.features.catalogue import all_features

    output = invocation.output
    tools = [
        {
            "name": tool.name,
            "feature": feature.id,
            "read_only": tool.annotations.read_only,
            "description": tool.description,
        }
        for feature in all_features()
        for tool in feature.tools
    ]
    if not output.is_for_people:
        output.json({"tools": tools})
        return
    output.table(
        [Column("tool"), Column("feature"), Column("writes"), Column("what", "wrap")],
        [
            (
                str(tool["name"]), str(tool["feature"]), "" if tool["read_only"] else "yes",
                str(tool["description"]).partition(". ")[0].rstrip("."),
            )
            for tool in tools
        ],
    )  # fmt: skip


@tools_command.command("schema")
@click.argument("name", required=False, metavar="[NAME]")
@shared_options
@pass_invocation
def schema_command(invocation: Invocation, name: str | None) -> None:
    """Print the definition of one tool as JSON, or of all with their fingerprint."""
    from sessiondex.features.catalogue import all_tools
    from sessiondex.features.tool import schema_fingerprint

    tools = all_tools()
    if name is None:
        invocation.output.json({
            "tools": [tool.schema() for tool in tools.values()],
            "fingerprint": schema_fingerprint(tools.values()),
        })  # fmt: skip
    elif name in tools:
        invocation.output.json(tools[name].schema())
    else:
        raise NotFound(f"no tool {name[:80]!r}", hint="see 'sessiondex tools list'")


@tools_command.command("call")
@click.argument("name", metavar="NAME")
@click.argument("arguments", default="", metavar="[JSON]")
@session_option
@observer_options
@fresh_option
@shared_options
@pass_invocation
def call_command(
    invocation: Invocation,
    name: str,
    arguments: str,
    **given: Any,
) -> int:
    """Call one tool and print exactly the bytes that a model would get.

    JSON is one object of arguments; '-' reads it from standard input. An error is the error
    object, on stdout too: exit 2 for a wrong argument, 3 for what is not there, 1 for a failure.
    """
    from sessiondex.features.local_host import feature_of_tool
    from sessiondex.features.reply import ToolReply

    if arguments == "-":
        arguments = sys.stdin.read()
    try:
        host = local_host(invocation, **given)
        reply = host.registry(feature_of_tool(name)).call_json(name, arguments)
    except SessiondexError as error:
        reply = ToolReply.of_error(error)
    invocation.output.write(reply.data.decode() + ("\n" if invocation.is_terminal else ""))
    return reply.exit_code
