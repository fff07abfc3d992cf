"""`stats`, `check` and `forget`: the library as a whole."""

from __future__ import annotations

import click

from sessiondex.cli.invocation import Invocation
from sessiondex.cli.options import option, pass_invocation, shared_options, wait_option
from sessiondex.cli.output import Column
from sessiondex.cli.texts import byte_size, count_of, local_time, visible
from sessiondex.errors import Damaged


@click.command("stats")
@shared_options
@pass_invocation
def stats_command(invocation: Invocation) -> None:
    """Show what the library holds and how large it is."""
    from sessiondex.indexer.statistics import library_stats
    from sessiondex.query.times import format_time

    output = invocation.output
    stats = library_stats(invocation.library)
    stats["refreshed_at"] = format_time(stats["refreshed_at"] or None)
    if not output.is_for_people:
        output.json(stats)
        return
    rows = [("library", "", str(invocation.library_path))]
    coverage = dict(stats["coverage"])
    agents = coverage.pop("agents", {})
    rows += [("coverage", part, f"{number:,}") for part, number in coverage.items()]
    for agent, counts in agents.items():
        facts = (count_of(counts["sessions"], "session"),
                 count_of(counts["entries"], "entry", "entries"))  # fmt: skip
        rows.append(("agent", agent, ", ".join(facts)))
    rows += [("entries", kind, f"{number:,}") for kind, number in stats["entries"].items()]
    rows += [("size", part, byte_size(size)) for part, size in stats["sizes"].items()]
    refreshed = local_time(stats["refreshed_at"], invocation.surroundings.zone) or "never"
    rows.append(("refreshed", "", refreshed))
    spaced = [(what, part.replace("_", " "), value) for what, part, value in rows]
    output.table([Column("what"), Column("part"), Column("value", "wrap")], spaced)


@click.command("check")
@option("--sources", is_flag=True, help="Also read the sources again and compare their digests.")
@option("--repair", is_flag=True, help="Rebuild catalog and index from the item store.")
@wait_option
@shared_options
@pass_invocation
def check_command(invocation: Invocation, sources: bool, repair: bool) -> int:
    """Look for damage in the library, and repair it.

    Exits with 5 if something is damaged. Sources that are gone or differ are no damage.
    """
    from sessiondex.indexer.check import check_library, repair_library

    output, path = invocation.output, invocation.library_path
    if repair:
        report = repair_library(path, wait_seconds=invocation.option("wait", 30.0))
    else:
        report = check_library(path, sources=sources)
    if output.is_for_people:
        for problem in report.problems:
            output.line(visible(f"damaged: {problem['part']}: {problem['problem']}"))
        for source in report.sources:
            output.line(visible(f"{source['status']}: {source['file']}: {source['problem']}"))
        checked = report.to_json()["checked"]
        done = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in checked.items())
        verdict = "sound" if report.is_sound else "damaged"
        output.line(f"{'repaired and ' if repair else ''}{verdict}: {done}")
        if not report.is_sound and not repair:
            output.message("hint: run 'sessiondex check --repair'")
    else:
        output.json(report.to_json())
    return 0 if report.is_sound else Damaged.exit_code


@click.command("forget")
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...")
@wait_option
@shared_options
@pass_invocation
def forget_command(invocation: Invocation, sessions: tuple[str, ...]) -> None:
    """Remove every trace of sessions from the library.

    Their sources are not touched, and 'index' skips them until it is run with --again.
    """
    from sessiondex.indexer.forget import forget_sessions

    output = invocation.output
    reply = forget_sessions(
        invocation.library, sessions, wait_seconds=invocation.option("wait", 30.0)
    )
    if not output.is_for_people:
        output.json(reply)
        return
    for session in reply["sessions"]:
        output.line(f"forgotten: {visible(session)}")
    parts = [count_of(reply["entries"], "entry", "entries")]
    if reply["sources"]:
        parts.append(f"{count_of(len(reply['sources']), 'source')} skipped from now on")
        parts.append("'sessiondex index --again' takes them again")
    output.message(", ".join(parts))
