"""Settings: an option wins over the environment, that over the file, that over the default."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiondex.settings import settings_path

from .conftest import CommandLine


@pytest.fixture
def settings_file(command_line: CommandLine) -> Path:
    path = settings_path()
    path.parent.mkdir(parents=True)
    return path


def in_force(command_line: CommandLine, *words: str) -> dict[str, tuple[object, str]]:
    ended = command_line("config", "show", *words, "--json")
    assert ended.code == 0, ended.out
    return {name: (each["value"], each["origin"]) for name, each in ended.json["settings"].items()}


def test_defaults_hold_where_nothing_is_said(command_line: CommandLine, tmp_path: Path) -> None:
    found = in_force(command_line)
    assert found == {
        "library": (str(tmp_path / "data" / "sessiondex" / "library"), "default"),
        "homes": ([], "default"),
        "exclude": ([], "default"),
        "color": ("auto", "default"),
        "allow_reveal": (False, "default"),
    }


def test_option_wins_over_environment_over_file(
    command_line: CommandLine, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_file.write_text(
        'library = "/file/library"\nhomes = ["/file/home", "/other"]\nexclude = ["*/secret"]\n'
        'color = "never"\nallow_reveal = true\n'
    )
    found = in_force(command_line)
    origin = f"file {settings_file}"
    assert found["library"] == ("/file/library", origin)
    assert found["homes"] == (["/file/home", "/other"], origin)
    assert found["exclude"] == (["*/secret"], origin)
    assert found["color"] == ("never", origin)
    assert found["allow_reveal"] == (True, origin)

    monkeypatch.setenv("SESSIONDEX_LIBRARY", "/environment/library")
    monkeypatch.setenv("SESSIONDEX_HOME", "/environment/home")
    monkeypatch.setenv("SESSIONDEX_EXCLUDE", "*/a b:*/c")
    monkeypatch.setenv("SESSIONDEX_COLOR", "always")
    found = in_force(command_line)
    assert found["library"] == ("/environment/library", "environment SESSIONDEX_LIBRARY")
    assert found["homes"] == (["/environment/home"], "environment SESSIONDEX_HOME")
    assert found["exclude"] == (["*/a b", "*/c"], "environment SESSIONDEX_EXCLUDE")
    assert found["color"] == ("always", "environment SESSIONDEX_COLOR")

    words = ("--library", "/option", "--home", "/home", "--exclude", "x y", "--color", "auto")
    found = in_force(command_line, *words)
    assert found["library"] == ("/option", "option --library")
    assert found["homes"] == (["/home"], "option --home")
    assert found["exclude"] == (["x y"], "option --exclude")
    assert found["color"] == ("auto", "option --color")


def test_an_option_before_the_command_wins_over_the_environment(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSIONDEX_LIBRARY", "/environment/library")
    ended = command_line("--library", "/option", "config", "show", "--json")
    assert ended.json["settings"]["library"]["value"] == "/option"


def test_every_option_is_found_in_the_environment(
    demo: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSIONDEX_JSON", "1")
    monkeypatch.setenv("SESSIONDEX_LIMIT", "1")
    monkeypatch.setenv("SESSIONDEX_LITERAL", "1")
    monkeypatch.setenv("SESSIONDEX_KIND", "user assistant")
    page = demo("search", "offset").json
    assert page["returned"] == 1
    assert page["hits"][0]["kind"] in ("user", "assistant")
    assert demo("search", "offset", "--limit", "2").json["returned"] == 2


def test_unknown_settings_are_refused_by_name(
    command_line: CommandLine, settings_file: Path
) -> None:
    settings_file.write_text('libary = "/x"\ncolour = "never"\n')
    ended = command_line("config", "show")
    assert ended.code == 2
    assert "libary, colour" in ended.err
    assert "known are library" in ended.err


@pytest.mark.parametrize(
    "content",
    ["library = 3", 'homes = "/x"', "exclude = [1]", 'color = "blue"', "allow_reveal = 1", "= 1"],
)
def test_settings_of_the_wrong_form_are_refused(
    command_line: CommandLine, settings_file: Path, content: str
) -> None:
    settings_file.write_text(content)
    assert command_line("config", "show").code == 2


def test_relative_paths_of_the_file_are_below_its_folder(
    command_line: CommandLine, settings_file: Path
) -> None:
    settings_file.write_text('library = "lib"\nhomes = ["~/x"]\n')
    found = in_force(command_line)
    assert found["library"][0] == str(settings_file.parent / "lib")
    assert found["homes"][0] == [str(Path("~/x").expanduser())]


def test_config_path_is_printed_whether_or_not_the_file_is_there(
    command_line: CommandLine, tmp_path: Path
) -> None:
    expected = str(tmp_path / "config" / "sessiondex" / "config.toml")
    assert command_line("config", "path").lines == [expected]
    assert command_line("config", "path", "--json").json == {"path": expected, "exists": False}


def test_originals_are_shown_on_a_terminal_or_where_the_settings_allow_it(
    command_line: CommandLine, settings_file: Path, tmp_path: Path
) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    chat = tmp_path / "chat.json"
    chat.write_text(f'[{{"role":"user","content":"token {secret} here"}}]')
    words = ("read", f"{chat}:E0")
    assert "[REDACTED:" in command_line(*words).out
    refused = command_line(*words, "--reveal")
    assert refused.code == 2
    assert secret not in refused.out
    assert secret in command_line(*words, "--reveal", is_terminal=True).out
    settings_file.write_text("allow_reveal = true\n")
    assert secret in command_line(*words, "--reveal").out
    assert secret not in command_line(*words).out
