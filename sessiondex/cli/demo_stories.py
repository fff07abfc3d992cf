"""What happens in the demo sessions: a harbour screen shows every high water an hour late."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

PROJECT: Final = "/home/ada/tidewatch"
SUB_AGENT_ID: Final = "a71de5c"


class Step(NamedTuple):
    """One step of a story, whatever the format."""

    kind: Literal["user", "think", "say", "call", "notify"]
    text: str = ""
    name: str = ""
    arguments: dict[str, Any] | None = None
    output: str = ""
    is_error: bool = False


def user(text: str) -> Step:
    """The person asks."""
    return Step("user", text)


def think(text: str) -> Step:
    """The agent thinks; never shown."""
    return Step("think", text)


def say(text: str) -> Step:
    """The agent speaks."""
    return Step("say", text)


def notify(text: str) -> Step:
    """The harness speaks."""
    return Step("notify", text)


def call(
    name: str, output: str, *, text: str = "", is_error: bool = False, **arguments: Any
) -> Step:
    """The agent calls a tool; `text` is what the format says beside the call."""
    return Step("call", text, name, arguments, output, is_error)


SUB_AGENT_ANSWER: Final = (
    "Three places use `utc_offset_minutes`: `high_water_times` and `low_water_times` in"
    " tidewatch/station.py need the offset of each moment; `Station.describe` only prints it."
)

TIDE_STORY: Final = (
    user(
        "Since Sunday the harbour screen shows every high water one hour late. Can you find out"
        " why? The tests in tests/test_station.py still pass."
    ),
    think("The clocks changed on Sunday. I suspect one offset is used for the whole year."),
    say(
        "Sunday was the change to summer time, so I look first at where `high_water_times` turns"
        " UTC into local time."
    ),
    call(
        "Bash",
        "tidewatch/station.py:41:    self.utc_offset_minutes = offset_on(zone, first_day)\n"
        "tidewatch/station.py:57:    return [t + minutes(self.utc_offset_minutes) for t in tides]\n"
        "tidewatch/station.py:72:    return [t + minutes(self.utc_offset_minutes) for t in lows]",
        command="rg -n utc_offset_minutes tidewatch/",
        description="Find where the offset is used",
    ),
    call(
        "Task",
        SUB_AGENT_ANSWER,
        description="Find users of the offset",
        prompt="Who uses Station.utc_offset_minutes, and who needs the offset of each moment?",
        subagent_type="Explore",
    ),
    call(
        "TodoWrite",
        "Todos have been modified successfully.",
        todos=[
            {"content": "Find the conversion", "status": "completed", "activeForm": "Finding"},
            {"content": "Use the offset of each moment", "status": "in_progress",
             "activeForm": "Editing"},
            {"content": "Test the night of the change", "status": "pending",
             "activeForm": "Testing"},
        ],
    ),
    call(
        "Edit",
        "The file /home/ada/tidewatch/tidewatch/station.py has been updated.",
        file_path="/home/ada/tidewatch/tidewatch/station.py",
        old_string="    return [t + minutes(self.utc_offset_minutes) for t in tides]",
        new_string="    return [t.astimezone(self.zone) for t in tides]",
    ),
    say(
        "Found and fixed: the offset was taken once, on the first day of the table, and used for"
        " the whole year. `high_water_times` now asks the time zone for each tide."
    ),
    user("Good. Add a test for the night of the change. And do we store local times anywhere?"),
    call(
        "Bash",
        "E   ValueError: 2026-03-29 02:30 does not exist in Europe/Berlin\n1 failed, 14 passed",
        is_error=True,
        command="pytest -q tests/test_station.py -k night_of_the_change",
        description="Run the new test",
    ),
    say("The test asked for 02:30, a moment that night did not have. I use 03:30 instead."),
    call(
        "Bash",
        "15 passed in 0.42s",
        command="pytest -q tests/test_station.py",
        description="Run all station tests",
    ),
    say(
        "All 15 tests pass. Decision: tide tables are stored in UTC and become local time only on"
        " the screen; nothing else stores local times."
    ),
)  # fmt: skip

FORK_STORY: Final = (
    user("Another idea: could the screen show UTC, with a note, and never convert at all?"),
    say(
        "It could, but fishermen read the screen, not sailors: in summer every time would be two"
        " hours off their watches. I would keep local time and the conversion for each tide."
    ),
)

SUB_AGENT_STORY: Final = (
    user("Who uses Station.utc_offset_minutes, and who needs the offset of each moment?"),
    call(
        "Grep",
        "tidewatch/station.py:57\ntidewatch/station.py:72\ntidewatch/station.py:90",
        pattern="utc_offset_minutes",
        path="/home/ada/tidewatch",
    ),
    say(SUB_AGENT_ANSWER),
)

CODEX_STORY: Final = (
    user("長崎の画面に満潮が二回表示されます。The station is NGS-04; please find out why."),
    think("**Looking for duplicates** Perhaps two feeds report the same tide."),
    call(
        "shell",
        "2026-04-01T03:12Z high 2.84 m feed=jma\n2026-04-01T03:13Z high 2.84 m feed=port",
        command=["bash", "-lc", "tidewatch dump --station NGS-04 --day 2026-04-01"],
        workdir=PROJECT,
    ),
    say("Two feeds report the same high water a minute apart. I merge tides within ten minutes."),
    call(
        "apply_patch",
        "Success. Updated the following files:\nM tidewatch/merge.py\n",
        text=(
            "*** Begin Patch\n*** Update File: tidewatch/merge.py\n@@\n"
            "-    return sorted(tides)\n"
            "+    return drop_near_duplicates(sorted(tides), within=minutes(10))\n*** End Patch"
        ),
    ),
    say("直しました。満潮は一度だけ表示されます。 `drop_near_duplicates` keeps the earlier feed."),
)

YOI_STORY: Final = (
    user("Write the release notes for 0.9.2 from the commits since 0.9.1."),
    think("I need the list of commits first."),
    call(
        "git_log",
        "c41d9e2 Merge tides that two feeds report (NGS-04)\n"
        "8d1f0c3 Ask the time zone for each tide\n"
        "17aa0b6 Test the night of the change to summer time",
        text="3 commits since v0.9.1",
        since="v0.9.1",
    ),
    notify("The branch release/0.9.2 was updated by ben."),
    say(
        "## 0.9.2\n\n- High and low water are right again after the change to summer time.\n"
        "- A tide that two feeds report is shown once."
    ),
)

HARBOR_STORY: Final = (
    notify("You solve command-line tasks in a terminal. This text is never an entry."),
    user("Make `tidewatch export --csv` write a header line. The output file is /app/tides.csv."),
    think("Look at the exporter, then run it."),
    call(
        "bash_command",
        "station,time,height\nNGS-04,2026-04-01T03:12Z,2.84",
        text="I add the header in export.py and print the first two lines of the file.",
        keystrokes="python export.py --csv > /app/tides.csv && head -2 /app/tides.csv\n",
    ),
    say("The header line `station,time,height` is there, and the rows did not change."),
)

CHAT_STORY: Final = (
    notify("You explain the sea to programmers. This text is never an entry."),
    user("What is a neap tide, and why is our `neap_factor` 0.6?"),
    call(
        "lookup_station",
        '{"station": "Cuxhaven", "spring_range_m": 3.4, "neap_range_m": 2.1}',
        station="Cuxhaven",
    ),
    say(
        "A neap tide is the small tide at half moon, when sun and moon pull at right angles. At"
        " Cuxhaven the range is 2.1 m against 3.4 m at springs: 0.62, so 0.6 is a fair factor."
    ),
)
