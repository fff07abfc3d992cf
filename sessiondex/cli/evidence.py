"""`evidence` and `verify`: citations that can be checked later."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import place_of
from sessiondex.cli.options import (
    FreeWordsCommand,
    capture_option,
    fresh_option,
    jsonl_option,
    option,
    pass_invocation,
    refresh_options,
    reveal_option,
    shared_options,
)
from sessiondex.cli.texts import columns, count_of, printable
from sessiondex.errors import Damaged, NotFound, UsageError

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture

STATUSES: Final = ("ok", "changed", "missing")
"""From best to worst."""

SOURCES: Final = ("present", "gone", "changed")

EXIT_CODES: Final = {"ok": 0, "missing": NotFound.exit_code, "changed": Damaged.exit_code}


@click.command("evidence", cls=FreeWordsCommand)
@click.argument("words", nargs=-1, required=True, metavar="SESSION REF")
@option("--quote", metavar="TEXT", help="Show what stands around this text.")
@option("--max-bytes", type=int, metavar="N", help="Size of the excerpt (2048; at most 8192).")
@capture_option
@fresh_option
@reveal_option
@shared_options
@pass_invocation
def evidence_command(
    invocation: Invocation,
    words: tuple[str, ...],
    quote: str | None,
    max_bytes: int | None,
    capture: str | None,
    reveal: bool,
) -> None:
    """Print an entry as evidence that can be verified later.

    One JSON object: an excerpt, the digest of the whole text, and where it stands in its source.
    """
    from sessiondex.query.evidence import evidence

    place = place_of(words)
    if len(place.refs) > 1:
        raise UsageError("several entries were named", hint="name one at a time")
    named = invocation.named(place.session)
    output = invocation.output
    output.json(
        evidence(
            named.capture, place.refs[0], quote=quote, max_bytes=max_bytes, capture_token=capture,
            reveal=invocation.reveal(reveal),
        )
    )  # fmt: skip


@click.command("verify")
@click.argument("file", metavar="FILE")
@refresh_options
@jsonl_option
@shared_options
@pass_invocation
def verify_command(invocation: Invocation, file: str) -> int:
    """Check evidence against the library and the source.

    FILE holds what 'evidence' printed, one a line or one alone, or a staging record; '-' is
    standard input. Exits with 0 if all is as it was, 3 if something is missing, 5 if changed.
    """
    with _opened(file) as lines:
        return print_verdicts(invocation, _as_lines(lines))


def print_verdicts(invocation: Invocation, lines: Iterable[bytes]) -> int:
    """Checks evidence and staging records, one a line, and prints what was found of each; gives
    the exit code."""
    from sessiondex.query.moved import MovedSources
    from sessiondex.query.verify import parse_lines, verify

    output, snapshot = invocation.output, invocation.snapshot
    worst = {"status": "ok", "source": "present"}
    checked = 0

    def open_capture(session: str) -> Capture:
        """What is stored, with what the source has grown by since; not what it was rewritten to."""
        stored = snapshot.capture(session, live=False)
        live = snapshot.capture(session, now=invocation.surroundings.now().timestamp())
        return live if live.generation == stored.generation else stored

    def results() -> Iterator[dict[str, Any]]:
        nonlocal checked
        moved = MovedSources(snapshot, invocation.refresh_options())
        for result in verify(
            parse_lines(lines),
            open_capture=open_capture,
            find_source=moved.find,
        ):
            checked += 1
            for name, order in (("status", STATUSES), ("source", SOURCES)):
                worst[name] = max(worst[name], result[name], key=order.index)
            yield result

    if output.is_jsonl:
        for result in results():
            output.json_line(result)
    elif output.is_json:
        output.json_stream({}, "results", results(), worst)
    else:
        for result in results():
            output.line(columns((
                result["status"], f"source {result['source']}",
                str(result.get("id", "")), printable(str(result.get("session", ""))),
                str(result.get("entry_ref", "")),
                printable(str(result.get("reason") or "")),
            )))  # fmt: skip
        output.message(f"{count_of(checked, 'citation')} checked: {worst['status']}")
    return EXIT_CODES[worst["status"]]


def _opened(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error.strerror}", hint="name a file") from error


def _as_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; one object that was written over several lines becomes one."""
    first = file.readline()
    if first.strip() not in (b"{", b"["):
        yield first
        yield from file
        return
    import orjson

    content = first + file.read()
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        yield from content.splitlines()
        return
    yield from map(orjson.dumps, value if isinstance(value, list) else [value])
