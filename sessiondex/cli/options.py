"""Options that commands share, and how every option is found in the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.settings import COLORS

Command = TypeVar("Command", bound=Callable[..., Any])

FREE_WORDS = {"ignore_unknown_options": True}
"""Context settings of commands whose QUERY or REF may begin with a dash."""


class Option(click.Option):
    """An option that is also read from SESSIONDEX_<OPTION>."""

    def __init__(self, declarations: Sequence[str] | None = None, **settings: Any) -> None:
        names = [name for name in declarations or () if name.startswith("--")]
        name = names[0].partition("/")[0].removeprefix("--").replace("-", "_").upper()
        settings.setdefault("envvar", f"SESSIONDEX_{name}")
        super().__init__(declarations, **settings)


class Globs(click.ParamType[str]):
    """Globs; in the environment they are separated like the folders of PATH."""

    name = "glob"
    envvar_list_splitter = os.pathsep

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value


class FreeWordsCommand(click.Command):
    """A command whose QUERY or REF is taken as it is, also where it begins with a dash.

    Words that are no option of the command are arguments; after `--` all words are. A single
    word that begins with a dash is the argument even where it is an option, for the command
    could not run without it.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        settings["context_settings"] = {**settings.get("context_settings", {}), **FREE_WORDS}
        super().__init__(*arguments, **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, list(words))
        except (click.BadOptionUsage, click.MissingParameter):
            if len(words) != 1 or not words[0].startswith("-") or words == ["--"]:
                raise
        ctx.params.clear()
        return super().parse_args(ctx, ["--", *words])


def option(*declarations: str, **settings: Any) -> Callable[[Command], Command]:
    """An option that is also read from the environment."""
    return click.option(*declarations, cls=Option, **settings)


def shared(*declarations: str, **settings: Any) -> Callable[[Command], Command]:
    """An option that is kept in the invocation and not handed to the command."""
    return option(*declarations, expose_value=False, callback=_keep, **settings)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value is None or value == ():
        return value
    source = ctx.get_parameter_source(param.name)
    if source in (click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT):
        invocation = ctx.ensure_object(Invocation)
        invocation.give(
            param.name,
            value,
            is_option=source is click.core.ParameterSource.COMMANDLINE,
            environment=str(param.envvar),
        )
    return value


def together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(command: Command) -> Command:
        for each in reversed(options):
            command = each(command)
        return command

    return decorate


shared_options = together(
    shared("--library", metavar="DIR", help="Folder of the library."),
    shared("--json", is_flag=True, default=None, help="Print one JSON object."),
    shared("--color", type=click.Choice(COLORS), help="When to use colours; auto by default."),
)

jsonl_option = shared("--jsonl", is_flag=True, default=None, help="Print one JSON object a line.")
wait_option = shared(
    "--wait", type=click.FloatRange(min=0), metavar="SECONDS",
    help="How long to wait for another writer (30).",
)  # fmt: skip
fresh_option = shared(
    "--fresh", is_flag=True, default=None, help="Bring the library up to date first."
)
reveal_option = option(
    "--reveal", is_flag=True, help="Show credentials instead of masking them (on a terminal)."
)
capture_option = option(
    "--capture", metavar="TOKEN", help="The 'capture' of the reply that the refs came from."
)
all_option = option("--all", "everything", is_flag=True, help="Go on past the page, to the end.")
page_options = together(
    option("--limit", type=int, metavar="N", help="Most to show (20; at most 100)."),
    option("--cursor", metavar="C", help="Go on where the page with this 'next_cursor' ended."),
    all_option,
    jsonl_option,
)
home_option = shared(
    "--home", metavar="DIR", help="Look for agents below this folder instead of your home."
)
exclude_option = shared(
    "--exclude", type=Globs(), multiple=True, metavar="GLOB",
    help="Never index projects or files that match; may be repeated.",
)  # fmt: skip
refresh_options = together(home_option, exclude_option, wait_option)

match_options = together(
    option("--literal", "match", flag_value="literal", help="Find the text as it stands."),
    option("--ranked", "match", flag_value="ranked", help="Rank by words; best hits first."),
    option("--regex", "match", flag_value="regex", help="Find a regular expression (RE2)."),
)
copies_option = option(
    "--copies", is_flag=True, help="Show copies in other sessions as hits of their own."
)
where_options = together(
    option("--agent", "agents", multiple=True, metavar="A",
           help="Only sessions of this agent, like claude-code."),
    option("--project", "projects", multiple=True, metavar="P",
           help="Only sessions of this project folder."),
    option("--branch", "branches", multiple=True, metavar="B", help="Only this git branch."),
    option("--model", "models", multiple=True, metavar="M", help="Only this model."),
    option("--here", is_flag=True,
           help="Only this git repository, with its worktrees and the folders below."),
    fresh_option,
)  # fmt: skip
range_options = together(
    option("--from", "from_ref", metavar="REF", help="First entry of the range."),
    option("--through", "through_ref", metavar="REF", help="Last entry of the range."),
)
time_options = together(
    option("--since", metavar="T", help="Not before: 2d, 3h, yesterday, a date, a time."),
    option("--until", metavar="T", help="Not after."),
)
entry_options = together(
    option("--kind", "kinds", multiple=True, metavar="K",
           help="user, assistant, system or tool; may be repeated."),
    option("--tool-part", metavar="P", help="input, output or both."),
    option("--tool-name", "tool_names", multiple=True, metavar="N", help="Only this tool."),
    option("--call-id", metavar="C", help="Only the call with this id and its result."),
    option("--error/--no-error", default=None, help="Only results that are errors, or no errors."),
    option("--flag", "flags", multiple=True, metavar="F",
           help="Only entries with this flag, like sidechain; may be repeated."),
    range_options,
    time_options,
    option("--order", metavar="O", help="source, relevance or newest."),
)  # fmt: skip

pass_invocation = click.make_pass_decorator(Invocation, ensure=True)
