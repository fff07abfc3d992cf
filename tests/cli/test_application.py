"""The root command: how runs end, what they load, what help says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sessiondex.cli.application import COMMANDS, cli
from sessiondex.errors import SessiondexError

from .conftest import CommandLine

QUERIES = (
    ("search", "tide"), ("sessions",), ("overview", "019d3"), ("list", "019d3"),
    ("read", "019d3:E4"), ("resolve", "019d3:E4"), ("evidence", "019d3:E4"),
    ("open", "019d3:E4"), ("resume", "019d3"),
    ("stats",), ("check",), ("forget", "019d3"), ("export",),
)  # fmt: skip


def run_process(*words: str, library: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SESSIONDEX_LIBRARY": str(library)}
    return subprocess.run(
        [sys.executable, "-m", "sessiondex", *words],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def loaded_modules(words: list[str]) -> set[str]:
    program = (
        "import sys\nfrom sessiondex.cli.application import run\n"
        f"assert run({words!r}) == 0\nprint(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return {name.partition(".")[0] for name in ended.stderr.split()}


@pytest.mark.parametrize("words", [["--help"], ["search", "--help"], ["limits"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    heavy = {"pydantic", "rich", "pyarrow", "tantivy", "numpy", "mcp", "orjson", "sqlite3"}
    assert not heavy & loaded_modules(words)


def test_a_piped_search_loads_no_module_for_people_or_models(demo_library: Path) -> None:
    words = ["search", "tide", "--library", str(demo_library)]
    assert not {"pydantic", "rich", "mcp", "zstandard"} & loaded_modules(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_the_group_is_the_first_line_of_the_command(name: str) -> None:
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert command.name == name
    assert (command.help or "").splitlines()[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(command_line: CommandLine, name: str) -> None:
    ended = command_line(name, "--help")
    assert ended.code == 0
    assert ended.out.startswith(f"Usage: sessiondex {name}")


@pytest.mark.parametrize("words", QUERIES)
def test_without_a_library_every_query_names_the_command_that_makes_one(
    command_line: CommandLine, words: tuple[str, ...]
) -> None:
    ended = command_line(*words)
    assert ended.code == 3
    assert "no library at" in ended.err
    assert "sessiondex index" in ended.err


def test_errors_are_objects_on_stdout_where_json_is_asked_for(command_line: CommandLine) -> None:
    ended = command_line("search", "tide", "--json")
    assert ended.code == 3
    assert ended.json["error"]["kind"] == "not_found"
    assert set(ended.json["error"]) == {"class", "kind", "message", "hint"}
    assert ended.err == ""


def test_a_wrong_command_line_is_a_usage_error(command_line: CommandLine) -> None:
    for words in (("nonsense",), ("index", "--agian"), ("limits", "x"), ("search",)):
        ended = command_line(*words)
        assert ended.code == 2, words
        assert ended.err.startswith("error: ")
    assert command_line("index", "--agian", "--json").json["error"]["kind"] == "usage"


def test_words_that_are_not_utf_8_are_a_usage_error(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = "caf\udce9"
    for words in (
        ("search", bad), ("search", "x", "--session", bad), ("search", "x", "--agent", bad),
        ("read", bad, "E1"), ("index", bad), ("stats", "--library", bad), (bad,),
    ):  # fmt: skip
        ended = demo(*words)
        assert (ended.code, ended.err) == (
            2, "error: 'caf\N{REPLACEMENT CHARACTER}' is not UTF-8\nhint: write it in UTF-8\n"
        ), words  # fmt: skip
        assert demo(*words, "--json").json["error"]["kind"] == "usage"
    monkeypatch.setenv("SESSIONDEX_LIBRARY", bad)
    assert demo("config", "show", "--json").code == 2


def test_no_command_is_answered_with_help(command_line: CommandLine) -> None:
    for words in ((), ("config",)):
        ended = command_line(*words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("Usage: sessiondex")


def test_a_fault_of_ours_is_one_line_and_no_traceback(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("sessiondex.query.session_list.list_sessions", broken)
    ended = demo("sessions")
    assert ended.code == 1
    assert ended.err.splitlines()[0] == (
        "error: a fault of sessiondex: ZeroDivisionError: division by zero"
    )
    assert "Traceback" not in ended.err
    assert demo("sessions", "--json").json["error"]["class"] == "internal"
    monkeypatch.setenv("SESSIONDEX_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        demo("sessions")


def test_an_interrupted_run_ends_with_130(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sessiondex.query.session_list.list_sessions", interrupted)
    ended = demo("sessions")
    assert ended.code == 130
    assert "Traceback" not in ended.err


def test_an_interrupt_of_the_end_of_a_run_shows_no_traceback(demo_library: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sessiondex.cli import main\n"
        "from sessiondex.indexer.library import Library\n"
        "Library.close = lambda self: os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.argv = ['sessiondex', 'stats', '--library', {str(demo_library)!r}]\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "")


def test_every_error_class_has_an_exit_code_of_the_contract() -> None:
    pending = [SessiondexError]
    while pending:
        kind = pending.pop()
        assert kind.exit_code in (1, 2, 3, 4, 5)
        pending += kind.__subclasses__()


def test_a_closed_pipe_ends_quietly(demo_library: Path) -> None:
    environment = {**os.environ, "SESSIONDEX_LIBRARY": str(demo_library)}
    reader, writer = os.pipe()
    os.close(reader)  # nobody reads from the beginning
    ended = subprocess.run(
        [sys.executable, "-m", "sessiondex", "search", "tide", "--all", "--jsonl"],
        env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(writer)
    assert ended.returncode == 0
    assert ended.stderr == ""


@pytest.mark.parametrize("words", ["stats", "stats --json", "list nothing --json", "limits"])
def test_a_full_disk_behind_stdout_is_one_line_and_no_traceback(
    demo_library: Path, words: str
) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "sessiondex", *words.split(), "--library", str(demo_library)],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert ended.returncode in (1, 3)
    assert ended.stderr.startswith("error: ")
    assert "No space left on device" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_process_without_stdout_or_stderr_does_its_work(demo_library: Path) -> None:
    command = f"{sys.executable} -m sessiondex stats --library {demo_library}"
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        ended = subprocess.run(
            ["sh", "-c", f"{command} {closed}"], capture_output=True, timeout=60, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, b""), closed


def test_the_process_gives_the_exit_codes(demo_library: Path, tmp_path: Path) -> None:
    assert run_process("search", "no such thing", library=demo_library).returncode == 0
    assert run_process("read", "019d3:E3", library=demo_library).returncode == 3
    assert run_process("search", library=demo_library).returncode == 2
    assert run_process("sessions", library=tmp_path / "none").returncode == 3


def test_the_module_runs_like_the_script(demo_library: Path) -> None:
    ended = run_process("--version", library=demo_library)
    assert ended.returncode == 0
    assert ended.stdout.startswith("sessiondex ")


def test_completion_scripts_are_printed_for_each_shell(command_line: CommandLine) -> None:
    for shell in ("bash", "zsh", "fish"):
        ended = command_line("completion", shell)
        assert ended.code == 0
        assert "_SESSIONDEX_COMPLETE" in ended.out
        reply = command_line("completion", shell, "--json").json
        assert reply == {"shell": shell, "script": ended.out.removesuffix("\n")}


def test_completion_knows_the_commands(demo_library: Path) -> None:
    environment = {
        **os.environ, "_SESSIONDEX_COMPLETE": "bash_complete", "COMP_WORDS": "sessiondex se",
        "COMP_CWORD": "1",
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "sessiondex"], env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert "plain,search" in ended.stdout
    assert "plain,sessions" in ended.stdout
