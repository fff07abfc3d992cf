"""`Tool`: the one definition of a tool, from which every rendering is made.

The same pydantic models check a direct call and make the JSON schema that MCP and a model loop
announce, so one name has one schema. A model's arguments are checked strictly: unknown fields are
refused by name, texts are never taken for numbers. Maxima stand in descriptions, not in schemas:
a larger value is served with the maximum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, cast

import orjson
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from sessiondex.errors import InvalidArgument
from sessiondex.model import clean_text
from sessiondex.query.reply import clip_text

LARGEST_WHOLE: Final = 2**53 - 1
"""Numbers beyond it are taken for it: no JSON reader holds them all, and no maximum is near."""

LIST_ITEMS: Final = 1_000
"""Items of one list argument; longer ones are refused, so that checking stays cheap."""

_NAME_BYTES: Final = 80

Input = TypeVar("Input", bound="ToolInput")


class ToolInput(BaseModel):
    """Base of what a tool takes; refuses unknown fields and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ToolOutput(BaseModel):
    """Base of what a tool replies; checked by tests, not while serving."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _whole(value: Any) -> Any:
    """A whole number as JSON knows it: 20.0 is 20."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-LARGEST_WHOLE, min(value, LARGEST_WHOLE))
    return value


def _short_list(value: list[str]) -> list[str]:
    if len(value) > LIST_ITEMS:
        raise ValueError(f"has {len(value)} items; expected at most {LIST_ITEMS}")
    return value


Text = Annotated[str, AfterValidator(clean_text)]
"""A text of a model; lone surrogates become U+FFFD."""

Texts = Annotated[list[Text], AfterValidator(_short_list)]

Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number of a model."""


class Annotations(NamedTuple):
    """What a host may know of a tool before it calls it; a hint, not a permission."""

    read_only: bool = True
    idempotent: bool = True
    destructive: bool = False
    open_world: bool = False


READ_ONLY: Final = Annotations()


@dataclass(frozen=True, slots=True)
class Tool(Generic[Input]):
    """The definition of a tool, without what it works on."""

    name: str
    """As models see it."""
    description: str
    input: type[Input]
    output: type[ToolOutput]
    annotations: Annotations = READ_ONLY

    def input_schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return _input_schema(self.input)

    def output_schema(self) -> dict[str, Any]:
        """JSON schema of a reply that is no error."""
        return _output_schema(self.output)

    def schema(self) -> dict[str, Any]:
        """The whole definition as JSON: what `tools schema` prints and the fingerprint covers."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema(),
            "output_schema": self.output_schema(),
            "annotations": self.annotations._asdict(),
        }

    def for_mcp(self) -> dict[str, Any]:
        """The fields of an MCP `Tool`."""
        hints = self.annotations
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input_schema(),
            "outputSchema": self.output_schema(),
            "annotations": {
                "readOnlyHint": hints.read_only,
                "idempotentHint": hints.idempotent,
                "destructiveHint": hints.destructive,
                "openWorldHint": hints.open_world,
            },
        }

    def for_model(self) -> dict[str, Any]:
        """The fields with which a model loop announces a function."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.input_schema(),
        }

    def parse(self, arguments: Any) -> Input:
        """The checked arguments of a call. An argument that is null was not given.

        Raises:
            InvalidArgument: for whatever the schema does not admit; names the argument.
        """
        if arguments is None:
            arguments = {}
        names = argument_names(self.input)
        takes = f"{self.name} takes {', '.join(names)}" if names else f"{self.name} takes none"
        if not isinstance(arguments, Mapping):
            raise InvalidArgument(
                f"the arguments are {_json_type(arguments)}, not an object", hint=takes
            )
        given = cast(Mapping[Any, Any], arguments)
        unknown = [_shown_name(name) for name in given if name not in names]
        if unknown:
            shown = ", ".join(unknown[:8]) + (", …" if len(unknown) > 8 else "")
            raise InvalidArgument(
                f"unknown argument{'s' if len(unknown) > 1 else ''} {shown}", hint=takes
            )
        try:
            return self.input.model_validate(
                {name: value for name, value in given.items() if value is not None}
            )
        except ValidationError as error:
            raise _refusal(self.name, error) from None


def argument_names(input: type[ToolInput]) -> tuple[str, ...]:
    """The names of arguments as a caller gives them, in the order of the schema."""
    return tuple(field.alias or name for name, field in input.model_fields.items())


def schema_fingerprint(tools: Iterable[Tool[Any]]) -> str:
    """SHA-256 of the canonical JSON of the definitions; their order does not matter."""
    schemas = sorted((tool.schema() for tool in tools), key=lambda schema: schema["name"])
    return hashlib.sha256(orjson.dumps(schemas, option=orjson.OPT_SORT_KEYS)).hexdigest()


# ---------------------------------------------------------------- refusals


def _refusal(tool: str, error: ValidationError) -> InvalidArgument:
    """The first argument that is wrong, with all that was expected of it."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    name = str(details[0]["loc"][0]) if details[0]["loc"] else ""
    expected: dict[str, None] = {}
    for each in details:
        if not each["loc"] or str(each["loc"][0]) != name:
            continue
        if each["type"] == "missing" and len(each["loc"]) == 1:
            return InvalidArgument(f"argument {name!r} is missing", hint=_see(tool))
        message = each["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        if each["type"] == "extra_forbidden":
            message = f"no field {_shown_name(each['loc'][-1])}"
        expected[message] = None
    return InvalidArgument(
        f"argument {name!r} is not as expected: {'; or '.join(expected)}", hint=_see(tool)
    )


def _see(tool: str) -> str:
    return f"call {tool} with arguments as its schema says"


def _shown_name(name: Any) -> str:
    return repr(clip_text(clean_text(str(name)), _NAME_BYTES))


def _json_type(value: Any) -> str:
    for types, name in (
        (bool, "true or false"), ((int, float), "a number"), (str, "a string"), (list, "a list")
    ):  # fmt: skip
        if isinstance(value, types):
            return name
    return f"a {type(value).__name__}"


# ---------------------------------------------------------------- schemas


@lru_cache(maxsize=256)
def _input_schema(model: type[BaseModel]) -> dict[str, Any]:
    return _plain(model.model_json_schema(mode="validation"), takes_null=False)


@lru_cache(maxsize=256)
def _output_schema(model: type[BaseModel]) -> dict[str, Any]:
    return _plain(model.model_json_schema(mode="serialization"), takes_null=True)


def _plain(schema: Any, *, takes_null: bool) -> Any:
    """A schema without generated titles; of arguments also without the null of optional ones."""
    if isinstance(schema, list):
        return [_plain(each, takes_null=takes_null) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            plain[key] = {name: _plain(each, takes_null=takes_null) for name, each in value.items()}
        elif key in ("enum", "const", "default", "required"):
            plain[key] = value
        elif key != "title":
            plain[key] = _plain(value, takes_null=takes_null)
    if not takes_null and {"type": "null"} in plain.get("anyOf", ()):
        rest = [each for each in plain.pop("anyOf") if each != {"type": "null"}]
        plain = (rest[0] if len(rest) == 1 else {"anyOf": rest}) | plain
    if not takes_null and plain.get("default", "") is None:
        del plain["default"]
    return plain
