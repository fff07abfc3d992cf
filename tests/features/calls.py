"""Calls of tools as a model makes them, each reply checked against what every reply promises."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import strategies as st

from sessiondex.features import Feature, Registry, Services, Tool, ToolReply
from sessiondex.features.services import ServiceKey
from sessiondex.features.tool import argument_names
from sessiondex.limits import REPLY_BYTES

CLASSES = {"invalid_argument", "failed", "internal"}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([10**400, -(10**30), 2**63, 1e308, 20.0, "", "\ud800", "E0", "E00000001.1"])
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=6) | st.sampled_from(["query", "\ud800"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
"""Any JSON, and what some readers take for it: NaN, numbers without end, lone surrogates."""


def arguments_of(tool: Tool[Any]) -> st.SearchStrategy[Any]:
    """Arguments of a tool by their names with any values, and sometimes no object at all."""
    properties = tool.input_schema()["properties"]
    values = {name: _value(schema) | JSON for name, schema in properties.items()}
    return st.fixed_dictionaries({}, optional=values) | JSON


def likely_arguments_of(tool: Tool[Any]) -> st.SearchStrategy[Any]:
    """Arguments that the schema admits, small enough to mean something now and then."""
    schema = tool.input_schema()
    values = {name: _value(each) for name, each in schema["properties"].items()}
    required = schema.get("required", [])
    return st.fixed_dictionaries(
        {name: values[name] for name in required},
        optional={name: value for name, value in values.items() if name not in required},
    )


def _value(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "anyOf" in schema:
        return st.one_of([_value(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "integer":
            return st.integers(-2, 200)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(_value(schema["items"]), max_size=3)
        case "string":
            return st.text(max_size=8) | st.sampled_from(
                ["E0", "E1", "E00000003.1", "E7", "plain", "a", "2d", "2026-05-04", "session", "x*"]
            )
        case _:
            return JSON


class Caller:
    """A registry with some features, called by a model."""

    def __init__(self, features: list[Feature], services: dict[ServiceKey[Any], object]) -> None:
        self.faults: list[Exception] = []
        self.registry = Registry(on_fault=lambda _, error: self.faults.append(error))
        self.registry.install(features, Services(services)).require_all()
        self._tools = {tool.name: tool for tool in self.registry.tools}

    def reply(self, name: str, /, arguments: Any = None) -> ToolReply:
        """A reply of bounded JSON that is what the tool announced, or an error of the contract."""
        reply = self.registry.call(name, arguments)
        assert not self.faults, self.faults
        assert len(reply.data) <= REPLY_BYTES.maximum
        assert orjson.loads(reply.data) == reply.value
        if reply.is_error:
            error = reply.value["error"]
            assert list(reply.value) == ["error"]
            assert set(error) == {"class", "kind", "message", "hint"}
            assert error["class"] in CLASSES - {"internal"}
            assert error["message"]
        else:
            self._tools[name].output.model_validate_json(reply.data)
        return reply

    def __call__(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The object of a reply; `from_` is `from`."""
        named = {key.rstrip("_"): value for key, value in arguments.items()}
        return dict(self.reply(name, named).value)

    def refused(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a call that is refused."""
        return self(name, **arguments)["error"]


def names_of(tool: Tool[Any]) -> set[str]:
    """The names of its arguments."""
    return set(argument_names(tool.input))
