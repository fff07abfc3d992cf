"""`sessiondex overview`: the table of contents of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.names import ref_in, short_ref, split_word
from sessiondex.cli.options import (
    FreeWordsCommand,
    all_option,
    capture_option,
    fresh_option,
    jsonl_option,
    option,
    pass_invocation,
    range_options,
    reveal_option,
    shared_options,
)
from sessiondex.cli.texts import columns, count_of, local_time, one_line, printable


@click.command("overview", cls=FreeWordsCommand)
@click.argument("session", metavar="SESSION")
@option("--stride", type=int, metavar="N", help="Show every N-th anchor (8).")
@range_options
@option("--limit", type=int, metavar="N", help="Most anchors to show (20; at most 100).")
@option("--cursor", metavar="C", help="Go on where the page with this 'next_cursor' ended.")
@all_option
@jsonl_option
@capture_option
@fresh_option
@reveal_option
@shared_options
@pass_invocation
def overview_command(
    invocation: Invocation,
    session: str,
    stride: int | None,
    from_ref: str | None,
    through_ref: str | None,
    limit: int | None,
    cursor: str | None,
    everything: bool,
    capture: str | None,
    reveal: bool,
) -> None:
    """Show the table of contents of a session.

    Anchors are real user and assistant messages: the first, every 8th and the last. Between two
    of them --from and --through show more.
    """
    from sessiondex.query.entry_view import shown_fact
    from sessiondex.query.overview import overview

    named = invocation.named(split_word(session)[0])
    reveal = invocation.reveal(reveal)

    def page(at: str | None, size: int | None) -> dict[str, Any]:
        return overview(
            named.capture, stride=stride, from_ref=ref_in(from_ref),
            through_ref=ref_in(through_ref), limit=size, cursor=at, capture_token=capture,
            reveal=reveal,
        )  # fmt: skip

    project = shown_fact(named.capture.project, reveal=reveal)
    facts = (named.capture.agent, project, named.title(reveal=reveal))
    print_overview(
        invocation, page, cursor=cursor, limit=limit, everything=everything, name=named.name,
        facts=facts, origin=named.origin,
    )  # fmt: skip


def print_overview(
    invocation: Invocation,
    page: Callable[[str | None, int | None], dict[str, Any]],
    *,
    cursor: str | None,
    limit: int | None,
    everything: bool,
    name: str,
    facts: Sequence[str],
    origin: str,
) -> None:
    """Prints one page of anchors, or all; `page` gives one from a cursor and its size."""
    output = invocation.output
    reply = page(cursor, 100 if everything else limit)
    head = {key: value for key, value in reply.items() if key != "anchors"}

    def anchors() -> Iterator[dict[str, Any]]:
        shown = reply
        yield from shown["anchors"]
        while everything and shown["has_more"]:
            shown = page(shown["next_cursor"], 100)
            yield from shown["anchors"]

    if output.is_jsonl:
        for anchor in anchors():
            output.json_line(anchor)
        return
    if output.is_json:
        if everything:
            last = {"has_more": False, "next_cursor": None}
            output.json_stream({**head, **last}, "anchors", anchors(), {})
        else:
            output.json(reply)
        return
    zone = invocation.surroundings.zone
    with output.paged():
        output.line(output.styled(columns((name, *map(one_line, facts))), "head"))
        context = reply["task_context"]
        if context:
            output.line(f"plan as of {name}:{short_ref(context['entry_ref'])}")
            for line in printable(context["text"]).splitlines():
                output.line(f"    {line}")
        if reply["before"]:
            output.line(f"    ({count_of(reply['before'], 'entry', 'entries')} before)")
        for anchor in anchors():
            place = f"{name}:{short_ref(anchor['entry_ref'])}"
            text = one_line(anchor["text"])
            when = local_time(anchor["timestamp"], zone)
            between = anchor["intervening_entries"]
            if output.is_terminal:
                output.line(columns((
                    output.styled(place, "name"), anchor["label"], output.styled(when, "dim"),
                )))  # fmt: skip
                output.paragraph(text, indent=4)
            else:
                output.line(columns((place, when, anchor["label"], text)))
            if between:
                kinds = ", ".join(
                    f"{number} {kind.replace('_', ' ')}"
                    for kind, number in anchor["intervening"].items()
                    if number
                )
                output.line(output.styled(f"    … {kinds}", "dim"))
        if reply["after"] and not (reply["has_more"] and not everything):
            output.line(f"    ({count_of(reply['after'], 'entry', 'entries')} after)")
    output.notes(reply)
    shown = reply["total"] if everything else reply["returned"]
    footer = [f"{shown} of {count_of(reply['total'], 'anchor')}", origin]
    if reply["has_more"] and not everything:
        footer.append(f"more with --cursor {reply['next_cursor']} or --all")
    output.message(", ".join(footer))
