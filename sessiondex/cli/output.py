"""What a command prints: JSON for programs, lines for pipes, tables and colours for a terminal.

Results go to stdout; messages, notes and footers to stderr, so that a pipe gets results only.
`rich` is loaded for a terminal alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sessiondex.cli.texts import Pieces, printable

if TYPE_CHECKING:
    from rich.console import Console

    from sessiondex.cli.invocation import Invocation

_ANSI: Final = {"match": "\x1b[1;31m", "name": "\x1b[33m", "dim": "\x1b[2m", "head": "\x1b[1m"}
_PLAIN: Final = "\x1b[0m"

CUT_CHARACTERS: Final = 16
"""Width that a column which may be cut keeps."""


class Column(NamedTuple):
    """A column of a table and how it fits into a terminal."""

    title: str
    fit: Literal["whole", "wrap", "cut"] = "whole"
    is_number: bool = False


class Output:
    """Where and how one run prints."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self.is_json = bool(invocation.option("json"))
        self.is_jsonl = bool(invocation.option("jsonl"))
        self.is_for_people = not (self.is_json or self.is_jsonl)
        self.is_terminal = invocation.is_terminal and self.is_for_people
        self._pager: IO[str] | None = None

    @property
    def is_colored(self) -> bool:
        """Whether ANSI sequences are wanted."""
        color = self._invocation.color
        if color == "auto":
            return (
                self.is_terminal
                and not os.environ.get("NO_COLOR")
                and os.environ.get("TERM") != "dumb"
            )
        return color == "always"

    # ------------------------------------------------------------ programs

    def json(self, value: Any) -> None:
        """One JSON object; indented where people look at it."""
        self.write(_dumps(value, is_indented=self._invocation.is_terminal) + "\n")

    def json_line(self, value: Any) -> None:
        """One JSON object on one line."""
        self.write(_dumps(value) + "\n")

    def json_stream(
        self, head: dict[str, Any], name: str, items: Iterable[Any], tail: dict[str, Any]
    ) -> None:
        """One JSON object whose list `name` is written item by item, never held whole.

        `tail` is looked at after the last item.
        """
        fields = [f"{_dumps(key)}:{_dumps(value)}" for key, value in head.items()]
        self.write("{" + "".join(f"{field}," for field in fields) + f"{_dumps(name)}:[")
        separator = "\n"
        for item in items:
            self.write(separator + _dumps(item))
            separator = ",\n"
        self.write("]")
        for key, value in tail.items():
            self.write(f",{_dumps(key)}:{_dumps(value)}")
        self.write("}\n")

    # ------------------------------------------------------------ people

    def write(self, text: str) -> None:
        """Writes to stdout, or to the pager while there is one."""
        file = self._pager or sys.stdout
        try:
            file.write(text)
        except UnicodeEncodeError:
            encoding = getattr(file, "encoding", None) or "ascii"
            file.write(text.encode(encoding, "replace").decode(encoding))

    def line(self, text: str = "") -> None:
        """One line on stdout."""
        self.write(f"{text}\n")

    def message(self, text: str) -> None:
        """One line on stderr; nothing where JSON was asked for."""
        if self.is_for_people:
            if sys.stdout.isatty():
                sys.stdout.flush()  # a footer comes behind what it is about
            sys.stderr.write(f"{printable(text)}\n")

    def notes(self, reply: dict[str, Any]) -> None:
        """The notes of a reply, as messages."""
        for note in reply.get("notes") or ():
            self.message(f"note: {note['message']}")

    def styled(self, text: str, style: str) -> str:
        """The text in a style, or as it is where there are no colours."""
        return f"{_ANSI[style]}{text}{_PLAIN}" if text and self.is_colored else text

    def marked(self, pieces: Pieces) -> str:
        """A text with its matches marked."""
        return "".join(self.styled(text, "match") if found else text for text, found in pieces)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        """Rows in columns: a table on a terminal, else one line each with a tab between."""
        if not self.is_terminal:
            for row in rows:
                self.line("\t".join(row))
            return
        from rich.box import SIMPLE_HEAD
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        console = self._console()
        cells = [list(row) for row in rows]
        widths = [
            max([cell_len(column.title), *(cell_len(row[at]) for row in cells)])
            for at, column in enumerate(columns)
        ]
        # A name that is cut cannot be typed: only what may be cut gives way, the last one most.
        left = console.width - 3 * (len(columns) - 1)
        cut = [at for at, column in enumerate(columns) if column.fit == "cut"]
        for at in cut[:-1]:
            widths[at] = min(widths[at], CUT_CHARACTERS)
        for at in cut[-1:]:
            widths[at] = max(left - sum(widths) + widths[at], CUT_CHARACTERS)
        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
        for column, width in zip(columns, widths, strict=True):
            table.add_column(
                column.title,
                justify="right" if column.is_number else "left",
                no_wrap=column.fit != "wrap",
                overflow="ellipsis" if column.fit == "cut" else "fold",
                max_width=width if column.fit == "cut" else None,
            )
        for row in cells:
            table.add_row(*map(Text, row))
        console.print(table)

    def paragraph(self, text: str, *, indent: int = 2) -> None:
        """Text that may hold styles, wrapped to the terminal and indented."""
        from rich.padding import Padding
        from rich.text import Text

        self._console().print(Padding(Text.from_ansi(text), (0, 0, 0, indent)))

    def _console(self) -> Console:
        from rich.console import Console

        return Console(
            file=self._pager or sys.stdout,
            force_terminal=self.is_colored,
            no_color=not self.is_colored,
            highlight=False,
            markup=False,
            soft_wrap=False,
        )

    @contextmanager
    def paged(self) -> Generator[None]:
        """Sends long text through $PAGER, where stdout is a terminal and one is set."""
        command = os.environ.get("PAGER", "").strip()
        is_real = self._invocation.surroundings.is_terminal is None
        if not self.is_terminal or not is_real or not command:
            yield
            return
        import subprocess

        # As git does: end at once on one screen, keep colours, leave the text there.
        environment = {"LESS": "FRX", **os.environ}
        sys.stdout.flush()
        with subprocess.Popen(
            command, shell=True, stdin=subprocess.PIPE, env=environment, text=True,
            encoding="utf-8", errors="replace",
        ) as process:  # fmt: skip
            self._pager = process.stdin
            try:
                yield
                if process.stdin is not None:
                    process.stdin.close()
            except BrokenPipeError:
                pass  # the reader left the pager
            finally:
                self._pager = None


def _dumps(value: Any, *, is_indented: bool = False) -> str:
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if is_indented else None).decode()
