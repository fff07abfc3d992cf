"""`compact`: what is printed where, and how it ends. What a run does: features/test_compaction."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic_ai.models
import pytest
from pydantic_ai.exceptions import ModelHTTPError

from sessiondex.features.loop import models
from tests.features.loop.wire_server import LOOPBACK_ENVIRONMENT, Fault, WireServer
from tests.features.made_models import Script, call

from .conftest import CommandLine

CODEX = "019d3f10-7a2b-7c44-8e55-0b1e2d3c4f05"

Give = Callable[..., Script]


@pytest.fixture(autouse=True)
def no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic_ai.models, "ALLOW_MODEL_REQUESTS", False)


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Lets the model of a command say what a test wrote; notes how it was opened."""
    opened: list[dict[str, Any]] = []

    def give(*answers: Any) -> Script:
        script = Script(*answers)
        monkeypatch.setattr(
            models, "open_model",
            lambda name, **options: (opened.append({"name": name, **options}), script.model)[1],
        )  # fmt: skip
        script.opened = opened  # type: ignore[attr-defined]
        return script

    return give


def written(text: str) -> Any:
    return call("write_summary", summary=text)


WORDS = ("compact", CODEX, "--model", "openai-chat:any")


def test_the_summary_goes_to_stdout_and_the_footer_to_stderr(demo: CommandLine, give: Give) -> None:
    give(call("read_session_items", offset=0, limit=5), written("All is well.\nReally."))
    ended = demo(*WORDS)
    assert (ended.code, ended.out) == (0, "All is well.\nReally.\n")
    assert ended.err.startswith("2 turns, 2 calls, ")
    assert " shown, " in ended.err
    assert " tokens, " in ended.err


def test_json_is_the_whole_result(demo: CommandLine, give: Give) -> None:
    give(written("All is well."))
    ended = demo(*WORDS, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["summary"] == "All is well."
    assert (ended.json["outcome"], ended.json["reason"]) == ("written", "")
    assert ended.json["report"]["model"] == "openai-chat:any"
    assert ended.json["report"]["session"] == CODEX


def test_a_run_without_a_summary_exits_with_4_and_says_why(demo: CommandLine, give: Give) -> None:
    give("I would rather talk.")
    ended = demo(*WORDS)
    assert (ended.code, ended.out) == (4, "")
    assert "no summary: incomplete (protocol: " in ended.err
    ended = demo(*WORDS, "--json")
    assert ended.code == 4
    assert (ended.json["summary"], ended.json["reason"]) == (None, "protocol")


def test_a_provider_that_refuses_is_named_without_its_words(demo: CommandLine, give: Give) -> None:
    give(ModelHTTPError(401, "any", {"error": {"message": "key sk-12345 is bad"}}))
    ended = demo(*WORDS)
    assert ended.code == 4
    assert "provider: rejected: HTTP 401" in ended.err
    assert "sk-12345" not in ended.err


def test_a_run_that_broke_exits_with_1(
    demo: CommandLine, give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sessiondex.features import compaction

    def broken(*_: Any, **options: Any) -> Any:
        raise ZeroDivisionError

    give("")
    monkeypatch.setattr(compaction, "build_summary_input", broken)
    ended = demo(*WORDS)
    assert (ended.code, ended.out) == (1, "")
    assert "no summary: failed (the run broke: ZeroDivisionError)" in ended.err


def test_limits_and_range_reach_the_run(demo: CommandLine, give: Give) -> None:
    script = give(call("search_session_log", query="x"))
    words = (*WORDS, "--max-turns", "3", "--from", "E2", "--max-bytes", "100000")
    ended = demo(*words)
    assert ended.code == 4
    assert len(script.requests) == 3
    assert "max_bytes 100000 is above the maximum of 49152 bytes" in ended.err
    assert "from E00000002 through" in str(script.requests[0][0].parts[0].content)


def test_the_model_is_opened_with_the_address_that_was_given(
    demo: CommandLine, give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: Any = give(written("x"))
    monkeypatch.setenv("SESSIONDEX_WORKER_MODEL", "anthropic:some")
    assert demo("compact", CODEX, "--base-url", "http://127.0.0.1:9").code == 0
    [opened] = script.opened
    assert (opened["name"], opened["base_url"]) == ("anthropic:some", "http://127.0.0.1:9")


def test_refs_that_a_model_made_up_are_told(demo: CommandLine, give: Give) -> None:
    give(written("As the user said [E00000777]."))
    ended = demo(*WORDS)
    assert ended.code == 0
    assert "note: cited and never shown: E00000777\n" in ended.err


def test_control_characters_of_a_model_do_not_reach_the_terminal(
    demo: CommandLine, give: Give
) -> None:
    give(written("red \x1b[31m text"))
    assert demo(*WORDS).out == "red ␛[31m text\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("compact",), 2, "SESSION"),
        (("compact", CODEX), 2, "no model was named"),
        (("compact", CODEX, "--model", "nonsense"), 2, "unknown model 'nonsense'"),
        ((*WORDS, "--max-turns", "0"), 2, "turns is 0"),
        ((*WORDS, "--max-bytes", "0"), 2, "max_bytes is 0"),
        ((*WORDS, "--from", "E9", "--through", "E1"), 2, "lies after"),
        (("compact", "nobody", "--model", "openai-chat:any"), 3, "nobody"),
    ],
)
def test_wrong_arguments_are_refused(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "made-up")
    ended = demo(*words)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


def test_without_a_key_it_says_which_variable(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    ended = demo(*WORDS)
    assert ended.code == 2
    assert "set OPENAI_API_KEY" in ended.err


def test_without_the_extra_it_says_how_to_install_it(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "made-up")
    for name in [name for name in sys.modules if name.startswith("pydantic_ai.models.openai")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.openai", None)
    ended = demo(*WORDS)
    assert ended.code == 1
    assert "pip install 'sessiondex[extract]'" in ended.err


def test_an_interrupt_ends_the_run_and_says_so(demo_library: Path) -> None:
    with WireServer([Fault.hang(threading.Event())]) as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "sessiondex", *WORDS, "--base-url",
             server.base_url("openai-chat")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **LOOPBACK_ENVIRONMENT, "SESSIONDEX_LIBRARY": str(demo_library)},
            # Where the suite runs in the background, SIGINT is ignored, also by children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        server.wait_for(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (4, "")
    assert err.startswith("no summary: incomplete (cancelled: in turn 1)\n")


# ---------------------------------------------------------------- the live line


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is_and_nothing_of_it_at_the_end(
    demo: CommandLine, give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(call("read_session_items", offset=0, limit=5), written("Done."))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert demo(*WORDS).code == 0
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[1].startswith("turn 1, 0 calls, ")
    assert any(line.startswith("turn 2, 1 call, ") for line in lines)
    assert lines[-1].startswith("2 turns, 2 calls, ")


def test_beside_json_there_is_no_line(
    demo: CommandLine, give: Give, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(written("Done."))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert demo(*WORDS, "--json").code == 0
    assert terminal.getvalue() == ""
