"""The public face: every name is there, typed, and loaded only when it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import sessiondex
from sessiondex.errors import SessiondexError


def test_every_public_name_can_be_loaded() -> None:
    for name in sessiondex.__all__:
        assert getattr(sessiondex, name) is not None


def test_type_checkers_see_the_names_that_users_get() -> None:
    assert sessiondex.__file__ is not None
    tree = ast.parse(Path(sessiondex.__file__).read_text())
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen | {"__version__"} == set(sessiondex.__all__)


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "{'pyarrow', 'tantivy', 'pydantic', 'click', 'sqlite3', 'orjson', 'numpy'}"
    code = f"import sys, sessiondex; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_error_has_a_kind_a_class_an_exit_code_and_one_shape() -> None:
    def all_below(cls: type[SessiondexError]) -> list[type[SessiondexError]]:
        return [cls, *(each for sub in cls.__subclasses__() for each in all_below(sub))]

    codes = {
        "usage": 2, "invalid_argument": 2, "not_found": 3, "hidden_entry": 3, "past_end": 3,
        "stale": 1, "busy": 1, "failed": 1, "unsupported_version": 1, "internal": 1,
        "incomplete": 4, "damaged": 5,
    }  # fmt: skip
    kinds: set[str] = set()
    for cls in all_below(SessiondexError):
        error = cls("what happened", hint="what to do")
        assert error.exit_code == codes[error.kind]
        assert error.to_json() == {
            "error": {
                "class": error.error_class,
                "kind": error.kind,
                "message": "what happened",
                "hint": "what to do",
            }
        }
        assert error.error_class in {"invalid_argument", "failed", "internal"}
        assert error.kind in (cls.__doc__ or "") or cls.__doc__
        kinds.add(error.kind)
    assert kinds == set(codes)
