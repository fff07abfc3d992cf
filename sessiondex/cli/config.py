"""`sessiondex config`: the settings in force and where they come from."""

from __future__ import annotations

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import pass_invocation, refresh_options, shared_options
from sessiondex.cli.output import Column
from sessiondex.settings import SETTINGS, settings_path


@click.group("config")
def config_command() -> None:
    """Show the settings and where they come from."""


@config_command.command("path")
@shared_options
@pass_invocation
def path_command(invocation: Invocation) -> None:
    """Print where the settings file stands, whether or not it is there."""
    path, output = settings_path(), invocation.output
    if output.is_for_people:
        output.line(str(path))
    else:
        output.json({"path": str(path), "exists": path.is_file()})


@config_command.command("show")
@refresh_options
@shared_options
@pass_invocation
def show_command(invocation: Invocation) -> None:
    """Show every setting, its value and where it comes from.

    An option wins over the environment, the environment over the file, the file over the default.
    """
    output, found = invocation.output, invocation.settings
    if not output.is_for_people:
        output.json({
            "path": str(settings_path()),
            "settings": {name: each._asdict() for name, each in found.items()},
        })  # fmt: skip
        return
    rows: list[tuple[str, str, str, str]] = []
    for setting in SETTINGS:
        value, origin = found[setting.name]
        if isinstance(value, list | tuple):
            text = ", ".join(value)
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
        rows.append((setting.name, text, origin, setting.what))
    titles = [Column("setting"), *(Column(title, "wrap") for title in ("value", "from", "what"))]
    output.table(titles, rows)
