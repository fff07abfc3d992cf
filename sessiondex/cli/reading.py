"""`sessiondex read`: entries of a session with their text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import click

from sessiondex.cli.invocation import Invocation, Named
from sessiondex.cli.names import place_of, ref_in, short_ref
from sessiondex.cli.options import (
    FreeWordsCommand,
    all_option,
    capture_option,
    fresh_option,
    jsonl_option,
    option,
    pass_invocation,
    reveal_option,
    shared_options,
)
from sessiondex.cli.texts import byte_size, columns, count_of, local_time, printable
from sessiondex.errors import UsageError


@click.command("read", cls=FreeWordsCommand)
@click.argument("words", nargs=-1, required=True, metavar="SESSION REF...")
@option("--through", "through_ref", metavar="REF", help="Read from REF through this one.")
@option("--kind", "kinds", multiple=True, metavar="K", help="Only these kinds in a range.")
@option("--tool-part", metavar="P", help="Of tool entries only the input, the output, or both.")
@option("--mode", default="full", metavar="M",
        help="full, or compact: without arguments and results.")  # fmt: skip
@option("--include-tools/--no-tools", default=True, help="With or without tool entries.")
@option("--context", type=int, default=0, metavar="N", help="Also N neighbours on both sides.")
@option("--max-items", type=int, metavar="N", help="Most entries (10; at most 80).")
@option("--max-bytes", type=int, metavar="N", help="Most bytes (16384; at most 49152).")
@option("--max-tokens", type=int, metavar="N", help="Most tokens, taken as 4 bytes each.")
@option("--from-byte", type=int, default=0, metavar="N", help="Go on inside the first entry.")
@all_option
@jsonl_option
@capture_option
@fresh_option
@reveal_option
@shared_options
@pass_invocation
def read_command(
    invocation: Invocation,
    words: tuple[str, ...],
    through_ref: str | None,
    kinds: tuple[str, ...],
    everything: bool,
    capture: str | None,
    reveal: bool,
    **options: Any,
) -> None:
    """Read entries of a session.

    SESSION REF… or SESSION:REF, as every hit prints it. What does not fit is described, and
    --all reads all of it.
    """
    from sessiondex.query.reading import ReadRequest, read

    place = place_of(words)
    named = invocation.named(place.session)
    if through_ref is not None:
        if len(place.refs) > 1:
            raise UsageError("--through goes with one REF", hint="give the first ref of the range")
        what: dict[str, Any] = {"from_ref": place.refs[0], "through_ref": ref_in(through_ref)}
    elif len(place.refs) == 1:
        what = {"entry_ref": place.refs[0]}
    else:
        what = {"entry_refs": place.refs}
    request = ReadRequest(**what, **options, kind=kinds or None, capture=capture)
    reveal = invocation.reveal(reveal)
    if everything:
        _read_all(invocation, named, request, reveal)
        return
    reply = read(named.capture, request, reveal=reveal)
    print_entries(invocation, reply, name=named.name, origin=named.origin)


def print_entries(invocation: Invocation, reply: dict[str, Any], *, name: str, origin: str) -> None:
    """Prints the entries of one reply."""
    output = invocation.output
    if output.is_jsonl:
        for entry in reply["entries"]:
            output.json_line(entry)
        return
    if output.is_json:
        output.json(reply)
        return
    with output.paged():
        for at, entry in enumerate(reply["entries"]):
            _head(invocation, name, entry, is_first=not at)
            _body(invocation, [entry["text"]], entry)
    output.notes(reply)
    _footer(invocation, name, origin, reply)


def _read_all(invocation: Invocation, named: Named, request: Any, reveal: bool) -> None:
    from sessiondex.query.reading import iterate_entries

    output = invocation.output
    stream = iterate_entries(named.capture, request, reveal=reveal)

    def whole() -> Iterator[dict[str, Any]]:
        for item in stream:
            text = "".join(item.text)
            yield {**item.view, "text": text, "returned_bytes": item.view["total_bytes"],
                   "next_byte": None}  # fmt: skip

    if output.is_jsonl:
        for entry in whole():
            output.json_line(entry)
    elif output.is_json:
        head = {"session": named.capture.session, "capture": named.capture.token}
        tail = {"truncated": False, "omitted_entries": 0, "next_ref": None, "notes": []}
        output.json_stream(head, "entries", whole(), tail)
    else:
        with output.paged():
            for at, item in enumerate(stream):
                _head(invocation, named.name, item.view, is_first=not at)
                _body(invocation, item.text, item.view)
        output.message(named.origin)


def _head(invocation: Invocation, name: str, view: dict[str, Any], *, is_first: bool) -> None:
    output = invocation.output
    if not is_first:
        output.line()
    facts = [
        output.styled(f"{name}:{short_ref(view['entry_ref'])}", "name"),
        output.styled(view["label"], "head"),
        local_time(view["timestamp"], invocation.surroundings.zone),
        "error" if view.get("error") else "",
        " ".join(view["flags"]),
    ]
    for kept in view.get("attachments", ()):
        size = f" {byte_size(kept['size'])}" if kept["size"] else ""
        facts.append(f"[{kept['media_type']}{size}]")
    output.line(columns(facts))


def _body(invocation: Invocation, pieces: Any, view: dict[str, Any]) -> None:
    """The text, ended by a newline; what a compact read leaves out is said instead."""
    output = invocation.output
    left_out = view.get("left_out")
    if left_out:
        if view.get("summary"):
            output.line(printable(view["summary"]))
        output.line(f"({left_out['part']} left out: {byte_size(left_out['bytes'])})")
        return
    last = ""
    for piece in chain(pieces):
        if piece:
            output.write(printable(piece))
            last = piece[-1]
    if last and last != "\n":
        output.line()


def _footer(invocation: Invocation, name: str, origin: str, reply: dict[str, Any]) -> None:
    parts: list[str] = []
    entries: Sequence[dict[str, Any]] = reply["entries"]
    cut = next((entry for entry in entries if entry["next_byte"] is not None), None)
    if cut is not None:
        place = f"{name}:{short_ref(cut['entry_ref'])}"
        left = cut["total_bytes"] - cut["next_byte"]
        parts.append(f"{byte_size(left)} more of {place}: --from-byte {cut['next_byte']}, or --all")
    if reply["omitted_entries"]:
        text = f"{count_of(reply['omitted_entries'], 'entry', 'entries')} left out"
        if reply["next_ref"]:
            text += f", the next is {name}:{short_ref(reply['next_ref'])}"
        parts.append(f"{text}; --all shows all")
    invocation.output.message(", ".join([*parts, origin]))
