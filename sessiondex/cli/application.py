"""The root command: which commands there are, loaded one by one, and how a run ends.

Every end has an exit code and no traceback: errors are rendered here and nowhere else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import click

from sessiondex.cli.invocation import Invocation, Surroundings
from sessiondex.cli.options import shared_options
from sessiondex.cli.texts import printable
from sessiondex.errors import InternalError, SessiondexError, UsageError

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "index": ("index", "Index session files, or bring the library up to date."),
    "search": ("search", "Search the library, or one session."),
    "sessions": ("sessions", "List the sessions of the library."),
    "overview": ("overview", "Show the table of contents of a session."),
    "list": ("listing", "List the entries of a session, one line each."),
    "read": ("reading", "Read entries of a session."),
    "resolve": ("sources", "Show where entries stand in their source file."),
    "evidence": ("evidence", "Print an entry as evidence that can be verified later."),
    "verify": ("evidence", "Check evidence against the library and the source."),
    "open": ("sources", "Open an entry's place in its source in your editor."),
    "resume": ("sources", "Print or run the command that resumes a session."),
    "stats": ("library", "Show what the library holds and how large it is."),
    "check": ("library", "Look for damage in the library, and repair it."),
    "forget": ("library", "Remove every trace of sessions from the library."),
    "export": ("export", "Write entries as JSONL, Arrow, Parquet or Markdown."),
    "compact": ("compact", "Summarize a session with a model, from bounded reads."),
    "tools": ("tools", "List the tools for models, show their schemas, call one."),
    "mcp": ("mcp", "Serve tools for models over MCP."),
    "observe": ("observe", "Observe sessions of other workers under the grants of an observer."),
    "grant": ("grant", "Let workers observe the sessions of others, and take it back."),
    "extract": ("extract", "Stage memory candidates from sessions, and see how far that is."),
    "staging": ("staging", "Look at staged memory candidates, export, verify and close them."),
    "serve": ("serve", "Serve workspaces: observation under grants, and staging."),
    "formats": ("about", "List the session formats that can be read."),
    "limits": ("about", "List every limit, its default and its maximum."),
    "config": ("config", "Show the settings and where they come from."),
    "completion": ("about", "Print a completion script for your shell."),
    "demo": ("demo", "Index, search and read a few invented sessions."),
}
"""Command → its module and its one-line help, which is also the first line of its own."""


class LazyGroup(click.Group):
    """Imports a command's module when that command is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"sessiondex.cli.{COMMANDS[cmd_name][0]}")
        return getattr(module, f"{cmd_name}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["--help"], "max_content_width": 100},
    epilog="Every option can be set as SESSIONDEX_<OPTION> in the environment.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False,
              callback=lambda ctx, _, asked: _print_version(ctx, asked),
              help="Print the version and exit.")  # fmt: skip
@shared_options
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Full-text search, bounded reading and evidence for the sessions of AI agents."""
    ctx.ensure_object(Invocation)


def _print_version(ctx: click.Context, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from sessiondex._version import __version__

        click.echo(f"sessiondex {__version__}")
        ctx.exit()


def call(arguments: Sequence[str], invocation: Invocation) -> int:
    """Runs one command line and gives its exit code; raises what goes wrong.

    Not click's own `main`, which ends the process at a closed pipe.
    """
    _require_utf_8(arguments)
    try:
        with cli.make_context("sessiondex", list(arguments), obj=invocation) as ctx:
            result = cli.invoke(ctx)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return result if isinstance(result, int) else 0


def _require_utf_8(arguments: Sequence[str]) -> None:
    """Refuses words of another encoding: nothing that is stored, searched or replied holds them."""
    given = {name: text for name, text in os.environ.items() if name.startswith("SESSIONDEX_")}
    for text in (*arguments, *given.values()):
        try:
            text.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(text).decode("utf-8", "replace")
            raise UsageError(f"'{shown}' is not UTF-8", hint="write it in UTF-8") from None


def run(arguments: Sequence[str], *, surroundings: Surroundings | None = None) -> int:
    """Runs one command line; returns the exit code. Prints errors, raises none."""
    _open_missing_streams()
    instruction = os.environ.get("_SESSIONDEX_COMPLETE")
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "sessiondex", "_SESSIONDEX_COMPLETE", instruction)
    invocation = Invocation(surroundings)
    try:
        code = call(arguments, invocation)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()  # whoever read has enough
        return 0
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        return _report(_as_usage_error(error), arguments)
    except SessiondexError as error:
        return _report(error, arguments)
    except OSError as error:
        from sessiondex.errors import Failed

        return _report(Failed(_os_message(error)), arguments)
    except Exception as error:  # no command shows a traceback
        if os.environ.get("SESSIONDEX_DEBUG") == "1":
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        hint = "run it again with SESSIONDEX_DEBUG=1 and report what it shows"
        return _report(InternalError(f"a fault of sessiondex: {reason}", hint=hint), arguments)
    finally:
        invocation.close()


def _as_usage_error(error: click.ClickException) -> UsageError:
    hint = ""
    message = error.format_message().rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"see '{error.ctx.command_path} --help'"
    return UsageError(message[:1].lower() + message[1:], hint=hint)


def _os_message(error: OSError) -> str:
    place = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{place}"


def _report(error: SessiondexError, arguments: Sequence[str]) -> int:
    """Prints an error, as JSON on stdout where JSON was asked for; gives its exit code."""
    try:
        if _wants_json(arguments):
            click.echo(_json_text(error.to_json()))
        else:
            click.echo(f"error: {printable(error.message)}", err=True)
            if error.hint:
                click.echo(f"hint: {printable(error.hint)}", err=True)
        sys.stdout.flush()
    except OSError as failure:
        # Stdout is full or gone, and what is still buffered would fail again at exit.
        _discard_output()
        with suppress(OSError):
            click.echo(f"error: stdout cannot be written: {_os_message(failure)}", err=True)
    return error.exit_code


def _open_missing_streams() -> None:
    """Gives a process that was started without stdout or stderr a place to print to."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _discard_output() -> None:
    """What is buffered for stdout goes nowhere, now and at exit."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON was asked for; known even where the command line could not be parsed."""
    words = list(arguments)
    if "--" in words:
        words = words[: words.index("--")]
    return any(
        f"--{name}" in words
        or os.environ.get(f"SESSIONDEX_{name.upper()}", "").lower() in ("1", "true", "yes", "on")
        for name in ("json", "jsonl")
    )


def _json_text(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
