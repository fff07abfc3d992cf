"""`resolve`, `open` and `resume`: from an entry or session back to where it came from."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sessiondex.cli.invocation import Invocation, Named
from sessiondex.cli.names import place_of, ref_in, short_ref, split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    capture_option,
    fresh_option,
    home_option,
    option,
    pass_invocation,
    shared_options,
)
from sessiondex.cli.texts import columns, visible
from sessiondex.errors import Failed, NotFound, UsageError
from sessiondex.model import EntryRef

if TYPE_CHECKING:
    from sessiondex.indexer.sources.base import SourceFile

COLON_EDITORS: Final = {"code", "code-insiders", "codium", "cursor", "windsurf"}
"""Take `-g FILE:LINE`."""

FILE_LINE_EDITORS: Final = {"hx", "helix", "subl", "zed"}
"""Take `FILE:LINE`."""

PLUS_EDITORS: Final = {
    "vi", "vim", "nvim", "gvim", "view", "nano", "pico", "emacs", "emacsclient", "kak", "micro",
    "joe", "jed", "gedit", "less",
}  # fmt: skip
"""Take `+LINE FILE`."""


@click.command("resolve", cls=FreeWordsCommand)
@click.argument("words", nargs=-1, required=True, metavar="SESSION REF...")
@option("--through", "through_ref", metavar="REF", help="The range from REF through this one.")
@capture_option
@fresh_option
@shared_options
@pass_invocation
def resolve_command(
    invocation: Invocation, words: tuple[str, ...], through_ref: str | None, capture: str | None
) -> None:
    """Show where entries stand in their source file.

    Prints FILE:LINE and the bytes, or the JSON pointer where the source is one document.
    """
    from sessiondex.query.evidence import resolve

    place = place_of(words)
    named = invocation.named(place.session)
    refs: list[Any] = list(place.refs)
    if through_ref is not None:
        if len(refs) > 1:
            raise UsageError("--through goes with one REF", hint="give the first ref of the range")
        refs = [(refs[0], ref_in(through_ref))]
    output = invocation.output
    reply = resolve(named.capture, refs, capture_token=capture)
    if not output.is_for_people:
        output.json(reply)
        return
    for item in reply["entries"]:
        ref = item["entry_ref"]
        anchor = item.get("source", item)
        output.line(columns((
            f"{named.name}:{short_ref(ref)}",
            file_and_line(named, ref),
            _bytes(anchor),
            anchor.get("pointer") or "",
        )))  # fmt: skip
    output.notes(reply)
    if reply.get("omitted_entries"):
        output.message(f"{reply['omitted_entries']} left out, the next is {reply['next_ref']}")


def _bytes(anchor: dict[str, Any]) -> str:
    if not anchor.get("byte_length"):
        return ""
    first = anchor["byte_offset"]
    unit = "bytes" if anchor.get("encoding") != "zstd" else "bytes when decompressed"
    return f"{unit} {first}-{first + anchor['byte_length']}"


def file_and_line(named: Named, ref: str) -> str:
    """`FILE:LINE` of an entry; the file alone where it is one document."""
    place = named.capture.source_file()
    line = named.capture.record(EntryRef.parse(ref).record).line
    file = visible(str(place.absolute))
    return f"{file}:{line}" if line else file


@click.command("open", cls=FreeWordsCommand)
@click.argument("words", nargs=-1, required=True, metavar="SESSION:REF")
@shared_options
@pass_invocation
def open_command(invocation: Invocation, words: tuple[str, ...]) -> int:
    """Open an entry's place in its source in your editor.

    Takes $VISUAL, else $EDITOR; prints FILE:LINE where neither is set or stdout is no terminal.
    """
    place = place_of(words)
    if len(place.refs) > 1:
        raise UsageError("several entries were named", hint="open one at a time")
    named = invocation.named(place.session)
    capture = named.capture
    ref = capture.entry(capture.ordinal(EntryRef.parse(place.refs[0]))).ref
    source, line = capture.source_file(), capture.record(ref.record).line
    if not source.exists:
        raise NotFound(
            f"the source of {named.name} is gone: {source.absolute}",
            hint=f"the library still has it: sessiondex read {named.name}:{short_ref(str(ref))}",
        )
    output = invocation.output
    if not output.is_for_people:
        output.json({"file": str(source.absolute), "line": line or None})
        return 0
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    if not editor.strip() or not invocation.is_terminal:
        output.line(file_and_line(named, str(ref)))
        return 0
    if _source_file(source.absolute).is_compressed:
        output.message("the source is compressed; 'sessiondex read' shows the entry")
    return _run(editor_command(shlex.split(editor), source.absolute, line))


def _source_file(path: Path) -> SourceFile:
    from sessiondex.indexer.sources.base import SourceFile

    return SourceFile(path)


def editor_command(editor: Sequence[str], path: Path, line: int) -> list[str]:
    """The command that opens a file at a line, as the editor is used to; 0 is no line."""
    name = Path(editor[0]).name.removesuffix(".exe")
    if not line:
        return [*editor, str(path)]
    if name in COLON_EDITORS:
        return [*editor, "-g", f"{path}:{line}"]
    if name in FILE_LINE_EDITORS:
        return [*editor, f"{path}:{line}"]
    if name in PLUS_EDITORS:
        return [*editor, f"+{line}", str(path)]
    return [*editor, str(path)]


@click.command("resume", cls=FreeWordsCommand)
@click.argument("session", metavar="SESSION")
@option("--exec", "execute", is_flag=True, help="Run it instead of printing it.")
@home_option
@shared_options
@pass_invocation
def resume_command(invocation: Invocation, session: str, execute: bool) -> int:
    """Print or run the command that resumes a session.

    It is the agent's own command, with the folder that the session belongs to.
    """
    from sessiondex.query.resuming import resume

    named = invocation.named(split_word(session)[0])
    homes = invocation.settings["homes"].value
    home = Path(homes[0]).expanduser() if homes else Path.home()
    found = resume(named.capture.row, default_home=home)
    output = invocation.output
    if execute:
        if found.folder:
            os.chdir(found.folder)
        return _run(found.command)
    if output.is_for_people:
        output.line(found.shell)
    else:
        output.json({
            "session": named.capture.session, "command": found.command,
            "folder": found.folder or None, "resume_command": found.shell,
        })  # fmt: skip
    return 0


def _run(command: Sequence[str]) -> int:
    """Runs a program on this terminal; gives its exit code.

    Raises:
        Failed: it cannot be started.
    """
    import subprocess

    sys.stdout.flush()
    try:
        return subprocess.run(command, check=False).returncode
    except OSError as error:
        raise Failed(
            f"{command[0]} cannot be run: {error.strerror}", hint="is it installed and on PATH?"
        ) from error
