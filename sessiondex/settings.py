"""The settings file: one TOML file with few keys, and where each value in force comes from.

An option wins over the environment, the environment over the file, the file over the default.
What the file holds beyond the known keys is refused by name, so that a slip is never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from sessiondex.errors import InvalidArgument

Form = Literal["path", "paths", "texts", "color", "truth"]

COLORS: Final = ("auto", "always", "never")


class Setting(NamedTuple):
    """One key of the settings file."""

    name: str
    form: Form
    environment: str
    """The variable that sets it; '' where only the file may."""
    what: str


SETTINGS: Final[tuple[Setting, ...]] = (
    Setting("library", "path", "SESSIONDEX_LIBRARY", "folder of the library"),
    Setting("homes", "paths", "SESSIONDEX_HOME", "home folders in which agents are looked for"),
    Setting("exclude", "texts", "SESSIONDEX_EXCLUDE", "globs of projects that are never indexed"),
    Setting("color", "color", "SESSIONDEX_COLOR", "auto, always or never"),
    Setting("allow_reveal", "truth", "", "whether --reveal works where stdout is no terminal"),
)


class Value(NamedTuple):
    """A value in force and where it comes from."""

    value: Any
    origin: str


def settings_path() -> Path:
    """Where the settings file stands."""
    from platformdirs import user_config_path

    return user_config_path("sessiondex", appauthor=False) / "config.toml"


def default_library() -> Path:
    """Where the library is kept when nothing else is said."""
    from platformdirs import user_data_path

    return user_data_path("sessiondex", appauthor=False) / "library"


def read_settings(path: Path) -> dict[str, Any]:
    """The checked content of a settings file; empty where there is none.

    Raises:
        InvalidArgument: it is no TOML, or holds an unknown key or a value of the wrong form.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"the settings file cannot be read: {path}: {error}", hint="mend or remove it"
        ) from error
    import tomllib

    try:
        values = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(
            f"the settings file is no TOML: {path}: {error}", hint="mend it"
        ) from error
    forms: dict[str, Form] = {setting.name: setting.form for setting in SETTINGS}
    unknown = [name for name in values if name not in forms]
    if unknown:
        raise InvalidArgument(
            f"unknown settings in {path}: {', '.join(unknown)}",
            hint=f"known are {', '.join(forms)}",
        )
    return {name: _checked(path, name, forms[name], value) for name, value in values.items()}


def _checked(path: Path, name: str, form: Form, value: Any) -> Any:
    expected = {
        "path": "a path as text",
        "paths": "a list of paths",
        "texts": "a list of texts",
        "color": f"one of {', '.join(COLORS)}",
        "truth": "true or false",
    }[form]
    if form == "truth":
        is_right = isinstance(value, bool)
    elif form == "color":
        is_right = value in COLORS
    elif form == "path":
        is_right = isinstance(value, str) and bool(value)
    else:
        is_right = isinstance(value, list) and all(isinstance(each, str) for each in value)
    if not is_right:
        raise InvalidArgument(
            f"setting {name!r} in {path} is {value!r}", hint=f"expected {expected}"
        )
    return value


def settings_in_force(
    given: Mapping[str, Value], file: Mapping[str, Any], path: Path
) -> dict[str, Value]:
    """Every setting with its value and origin.

    `given` holds what options and environment said; relative paths of the file are below the
    folder that the file stands in.
    """
    defaults: dict[str, Any] = {
        "library": None, "homes": [], "exclude": [], "color": "auto", "allow_reveal": False,
    }  # fmt: skip
    found: dict[str, Value] = {}
    for setting in SETTINGS:
        name = setting.name
        if name in given:
            found[name] = given[name]
        elif name in file:
            value = file[name]
            if setting.form == "path":
                value = _below(path.parent, value)
            elif setting.form == "paths":
                value = [_below(path.parent, each) for each in value]
            found[name] = Value(value, f"file {path}")
        elif name == "library":
            found[name] = Value(str(default_library()), "default")
        else:
            found[name] = Value(defaults[name], "default")
    return found


def _below(folder: Path, path: str) -> str:
    return str(folder / Path(path).expanduser())
