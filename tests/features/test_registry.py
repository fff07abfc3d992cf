"""The registry: what a feature may install, and that a call answers whatever it is given."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mcp.types
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import sessiondex.features
from sessiondex.errors import Damaged, Failed, InternalError, InvalidArgument, SessiondexError
from sessiondex.features import (
    CAPTURE,
    CLOCK,
    Annotations,
    Clock,
    Contribution,
    FeatureDescriptor,
    Instruction,
    Registry,
    ServiceKey,
    Services,
    SessionExplore,
    SessionLog,
    Skipped,
    Tool,
    ToolInput,
    ToolOutput,
    all_features,
    all_tools,
    schema_fingerprint,
)
from sessiondex.features.tool import Text, Whole
from sessiondex.limits import REPLY_BYTES
from tests.features.calls import JSON
from tests.query.made_sessions import SECRET, capture_of


class EchoInput(ToolInput):
    text: Text = Field("", description="What to say.")
    times: Whole = Field(1, description="How often; at most 10.")
    from_ref: Text | None = Field(None, alias="from", description="Where from.")


class EchoOutput(ToolOutput):
    text: str


def echo_tool(name: str = "Echo") -> Tool[EchoInput]:
    return Tool(name, "Says it again.", EchoInput, EchoOutput)


ECHO = echo_tool()


def echo(asked: EchoInput) -> dict[str, Any]:
    return {"text": asked.text * min(asked.times, 10)}


class Made:
    """A feature as a test wants it."""

    def __init__(
        self,
        *tools: Tool[Any],
        id: str = "builtin:made",
        contribute: Callable[[Services], Sequence[Contribution[Any] | Skipped]] | None = None,
        **declared: Any,
    ) -> None:
        self.descriptor = FeatureDescriptor(id, "Made", "For a test.", tools, **declared)
        self._contribute = contribute

    def contribute(self, services: Services) -> Sequence[Contribution[Any] | Skipped]:
        if self._contribute is not None:
            return self._contribute(services)
        return [Contribution.of(tool, echo) for tool in self.descriptor.tools]


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def serving(serve: Callable[[EchoInput], Mapping[str, Any]], **options: Any) -> Registry:
    registry = Registry(**options)
    registry.add(Contribution.of(ECHO, serve))
    return registry


def why(registry: Registry, *features: Any, services: Services | None = None) -> str:
    """Why the last of some features was not installed."""
    last = registry.install(features, services or Services()).features[-1]
    assert not last.installed
    assert last.tools == ()
    assert {each.name for each in last.skipped} == {
        tool.name for tool in features[-1].descriptor.tools
    }
    assert all(each.why == last.diagnostics[0] for each in last.skipped)
    return "; ".join(last.diagnostics)


# ---------------------------------------------------------------- installing


def test_a_feature_installs_its_tools_and_its_instructions() -> None:
    policy = Instruction("builtin:made.policy", "Be kind.")
    registry = Registry()
    assert registry.instructions == ()
    report = registry.install([Made(ECHO, instructions=(policy,))], Services())
    assert report.to_json() == {
        "features": [
            {"feature": "builtin:made", "installed": True, "tools": ("Echo",), "skipped": [],
             "diagnostics": ()}
        ]
    }  # fmt: skip
    assert registry.tools == (ECHO,)
    assert registry.instructions == (policy,)
    assert [feature.id for feature in registry.features] == ["builtin:made"]
    assert registry.call("Echo", {"text": "hi"}).value == {"text": "hi"}


def test_a_feature_id_is_installed_once() -> None:
    registry = Registry()
    assert "'builtin:made' is installed already" in why(
        registry, Made(ECHO), Made(echo_tool("Other"))
    )
    assert registry.tools == (ECHO,)


@pytest.mark.parametrize("id", ["made", "builtin:", "builtin:Made", "builtin:a b", "other:made"])
def test_a_feature_id_has_its_form(id: str) -> None:
    assert "builtin:<slug>" in why(Registry(), Made(ECHO, id=id))


def test_a_tool_name_of_another_feature_is_taken() -> None:
    second = Made(echo_tool(), id="builtin:second")
    assert why(Registry(), Made(ECHO), second) == "the tool name 'Echo' is taken"


def test_a_tool_name_of_the_host_is_taken() -> None:
    registry = serving(echo)
    assert why(registry, Made(echo_tool())) == "the tool name 'Echo' is taken"
    assert why(Registry(taken=["Echo"]), Made(ECHO)) == "the tool name 'Echo' is taken"


def test_a_host_tool_cannot_take_a_name_either() -> None:
    registry = Registry()
    registry.install([Made(ECHO)], Services())
    with pytest.raises(InvalidArgument, match="'Echo' is taken"):
        registry.add(Contribution.of(ECHO, echo))
    with pytest.raises(InvalidArgument, match="seen by models as 'Other'"):
        registry.add(Contribution("Wrong", echo_tool("Other"), echo))


def test_a_tool_that_was_not_declared_is_refused() -> None:
    extra = echo_tool("Extra")
    feature = Made(
        ECHO, contribute=lambda _: [Contribution.of(ECHO, echo), Contribution.of(extra, echo)]
    )
    assert why(Registry(), feature) == "tool 'Extra' was not declared"


def test_a_tool_that_is_not_the_declared_one_is_refused() -> None:
    feature = Made(ECHO, contribute=lambda _: [Contribution.of(echo_tool(), echo)])
    assert why(Registry(), feature) == "tool 'Echo' is not the one that was declared"


def test_a_contribution_has_the_name_that_models_see() -> None:
    feature = Made(ECHO, contribute=lambda _: [Contribution("echo", ECHO, echo)])
    assert why(Registry(), feature) == "contribution 'echo' is seen by models as 'Echo'"


def test_a_tool_is_contributed_once_and_not_forgotten() -> None:
    twice = Made(ECHO, contribute=lambda _: [Contribution.of(ECHO, echo)] * 2)
    assert why(Registry(), twice) == "tool 'Echo' is contributed twice"
    forgotten = Made(ECHO, contribute=lambda _: [])
    assert why(Registry(), forgotten) == "tool 'Echo' was declared and not contributed"
    assert "declared twice" in why(Registry(), Made(ECHO, echo_tool()))


def test_a_required_service_that_nobody_provides_is_named() -> None:
    text = ServiceKey("text", str)
    assert why(Registry(), Made(ECHO, requires=(text,))) == (
        "required service 'text' is not provided"
    )


def test_an_optional_service_that_is_missing_is_a_diagnostic() -> None:
    report = Registry().install([Made(ECHO, optional=(CLOCK,))], Services())
    assert report.features[0].installed
    assert report.features[0].diagnostics == ("optional service 'clock' is not provided",)


def test_a_feature_gets_the_services_that_it_declared_and_no_other() -> None:
    text, other = ServiceKey("text", str), ServiceKey("other", str)
    seen: list[Services] = []

    def contribute(services: Services) -> list[Contribution[Any]]:
        seen.append(services)
        return [Contribution.of(ECHO, echo)]

    services = Services({text: "a", other: "b"})
    Registry().install([Made(ECHO, requires=(text,), contribute=contribute)], services)
    assert text in seen[0]
    assert other not in seen[0]
    with pytest.raises(InvalidArgument, match="'other' is not provided"):
        seen[0].require(other)


def test_a_service_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="service 'clock' is a str"):
        Services({CLOCK: "noon"})


def test_a_tool_that_is_left_out_is_reported_with_its_reason() -> None:
    other = echo_tool("Other")
    feature = Made(
        ECHO, other, contribute=lambda _: [Contribution.of(ECHO, echo), Skipped("Other", "no need")]
    )
    report = Registry().install([feature], Services()).features[0]
    assert report.tools == ("Echo",)
    assert report.to_json()["skipped"] == [{"name": "Other", "why": "no need"}]


def test_installing_one_feature_is_all_or_nothing() -> None:
    registry = Registry(taken=["Taken"])
    before = registry.fingerprint()
    policy = Instruction("builtin:made.policy", "Be kind.")
    why(registry, Made(ECHO, echo_tool("Taken"), instructions=(policy,)))
    assert registry.tools == ()
    assert registry.features == ()
    assert registry.instructions == ()
    assert registry.fingerprint() == before
    assert registry.call("Echo").value["error"]["kind"] == "not_found"


def test_a_feature_that_cannot_be_installed_hinders_no_other() -> None:
    broken = Made(ECHO, id="builtin:broken", contribute=failing(Failed("no disk")))
    registry = Registry()
    report = registry.install([broken, Made(ECHO)], Services())
    assert [each.installed for each in report.features] == [False, True]
    assert report.features[0].diagnostics == ("no disk",)
    with pytest.raises(Failed, match="'builtin:broken' was not installed: no disk"):
        report.require_all()


def test_a_fault_in_a_feature_leaves_the_registry_as_it_was() -> None:
    registry = Registry()
    with pytest.raises(ZeroDivisionError):
        registry.install([Made(ECHO, contribute=failing(ZeroDivisionError()))], Services())
    assert registry.tools == ()


# ---------------------------------------------------------------- one definition


@pytest.mark.parametrize("tool", all_tools().values(), ids=all_tools())
def test_every_rendering_has_the_same_schema(tool: Tool[Any]) -> None:
    schema = tool.schema()
    announced = mcp.types.Tool(**tool.for_mcp()).model_dump(by_alias=True, exclude_none=True)
    model = tool.for_model()
    assert announced["name"] == model["name"] == schema["name"]
    assert announced["description"] == model["description"] == schema["description"]
    assert announced["inputSchema"] == model["parameters"] == schema["input_schema"]
    assert announced["outputSchema"] == schema["output_schema"]
    assert announced["annotations"]["readOnlyHint"] == schema["annotations"]["read_only"]


def _objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [found for each in schema for found in _objects(each)]
    if not isinstance(schema, dict):
        return []
    return [schema, *(found for each in schema.values() for found in _objects(each))]


@pytest.mark.parametrize("tool", all_tools().values(), ids=all_tools())
def test_schemas_refuse_unknown_fields_and_hold_no_maximum(tool: Tool[Any]) -> None:
    schema = tool.input_schema()
    for each in _objects(schema):
        if each.get("type") == "object":
            assert each["additionalProperties"] is False
    keywords = {key for each in _objects(schema) for key in each}
    assert not keywords & {"maximum", "maxLength", "maxItems", "exclusiveMaximum"}
    assert all(each.get("description") for each in schema["properties"].values())
    for each in _objects(tool.output_schema()):
        if each.get("type") == "object":
            assert each["additionalProperties"] is False


@pytest.mark.parametrize("tool", all_tools().values(), ids=all_tools())
def test_nothing_that_a_model_can_say_reveals_what_is_masked(tool: Tool[Any]) -> None:
    said = orjson.dumps(tool.input_schema()).lower()
    assert b"reveal" not in said
    assert b"path" not in said.replace(b"never a path", b"")


def test_the_features_and_their_tools_are_those_of_the_contract() -> None:
    assert {each.id: [tool.name for tool in each.tools] for each in all_features()} == {
        "builtin:session-explore": ["ShowOverview", "SearchEntries", "ReadEntry"],
        "builtin:memory-extract": ["StageMemoryCandidate", "FinishMemoryExtraction"],
        "builtin:worker-observation": [
            "ListWorkerSessions", "ViewSessionOverview", "SearchSessionEntries", "ReadSessionEntry",
        ],
        "builtin:session-log": ["search_session_log", "read_session_items"],
        "builtin:sub-worker": ["SubWorkerList", "SubWorkerSend", "SubWorkerStop"],
        "builtin:library": [
            "SearchLibrary", "ListSessions", "ShowLibraryOverview", "ReadLibraryEntry",
        ],
    }  # fmt: skip
    assert len(all_tools()) == sum(len(each.tools) for each in all_features())


def test_only_the_tools_that_write_say_so() -> None:
    writing = {name for name, tool in all_tools().items() if not tool.annotations.read_only}
    assert writing == {
        "StageMemoryCandidate", "FinishMemoryExtraction", "SubWorkerSend", "SubWorkerStop",
    }  # fmt: skip


def test_no_feature_imports_another() -> None:
    assert sessiondex.features.__file__ is not None
    folder = Path(sessiondex.features.__file__).parent
    modules = {
        "session_explore", "memory_extract", "worker_observation", "session_log", "sub_worker",
        "library_tools",
    }  # fmt: skip
    for module in modules:
        tree = ast.parse((folder / f"{module}.py").read_text())
        imported = {
            node.module.rpartition(".")[2]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
        }
        assert not imported & (modules - {module}), module


def test_every_public_name_can_be_loaded() -> None:
    for name in sessiondex.features.__all__:
        assert getattr(sessiondex.features, name) is not None


# ---------------------------------------------------------------- the fingerprint


def test_the_fingerprint_changes_with_all_that_models_see() -> None:
    base = schema_fingerprint([ECHO])
    assert base == schema_fingerprint([echo_tool()])
    assert len(base) == 64

    class LessInput(ToolInput):
        text: Text = Field("", description="What to say.")

    changed = [
        echo_tool("Other"),
        Tool("Echo", "Says it twice.", EchoInput, EchoOutput),
        Tool("Echo", "Says it again.", LessInput, EchoOutput),
        Tool("Echo", "Says it again.", EchoInput, ToolOutput),
        Tool("Echo", "Says it again.", EchoInput, EchoOutput, Annotations(read_only=False)),
    ]
    assert len({base, *(schema_fingerprint([tool]) for tool in changed)}) == 6
    other = echo_tool("Other")
    assert schema_fingerprint([ECHO, other]) == schema_fingerprint([other, ECHO])


def test_what_models_see_changes_only_when_it_is_meant_to() -> None:
    """Changes with every name, description and schema of a tool: then set it anew on purpose."""
    assert {each.id: schema_fingerprint(each.tools)[:16] for each in all_features()} == {
        "builtin:session-explore": "7d9d2685a633f821",
        "builtin:memory-extract": "5527e2d49911a5b0",
        "builtin:worker-observation": "0bcb51ce0bccf1f1",
        "builtin:session-log": "8e64d730d3815308",
        "builtin:sub-worker": "74f2550af9622183",
        "builtin:library": "1313281db610c801",
    }


def test_the_main_registry_stays_the_same_while_another_is_made_beside_it() -> None:
    capture = capture_of("one", "two")
    main = serving(echo)
    main.install([SessionLog()], Services({CAPTURE: capture}))
    before, tools = main.fingerprint(), main.tools
    beside = Registry()
    beside.install([SessionExplore()], Services({CAPTURE: capture})).require_all()
    assert main.fingerprint() == before
    assert not beside.call("ShowOverview").is_error
    assert main.fingerprint() == before
    del beside
    assert (main.fingerprint(), main.tools) == (before, tools)
    assert main.call("ShowOverview").value["error"]["kind"] == "not_found"


# ---------------------------------------------------------------- arguments


def test_unknown_fields_are_refused_by_name() -> None:
    error = serving(echo).call("Echo", {"text": "a", "txet": "b", "\ud800": 1}).value["error"]
    assert error == {
        "class": "invalid_argument",
        "kind": "invalid_argument",
        "message": "unknown arguments 'txet', '\ufffd'",
        "hint": "Echo takes text, times, from",
    }
    # The inner name of a field is no argument.
    assert "'from_ref'" in serving(echo).call("Echo", {"from_ref": "E1"}).value["error"]["message"]


def test_unknown_fields_inside_an_argument_are_refused_by_name() -> None:
    class Inner(BaseModel, extra="forbid"):
        a: int = 0

    class NestedInput(ToolInput):
        inner: Inner

    registry = Registry()
    registry.add(Contribution.of(Tool("N", "x", NestedInput, EchoOutput), lambda _: {"text": ""}))
    error = registry.call("N", {"inner": {"a": 1, "path": "/etc"}}).value["error"]
    assert error["message"] == "argument 'inner' is not as expected: no field 'path'"
    assert registry.call("N").value["error"]["message"] == "argument 'inner' is missing"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(20.0, 10), (2, 2), (10**400, 10), (1e308, 10)],
)
def test_whole_numbers_are_taken_as_json_knows_them(value: float, shown: int) -> None:
    assert serving(echo).call("Echo", {"text": "a", "times": value}).value == {"text": "a" * shown}


@pytest.mark.parametrize("value", ["20", True, 1.5, float("nan"), float("inf"), [1], {}])
def test_other_values_are_not_taken_for_whole_numbers(value: Any) -> None:
    error = serving(echo).call("Echo", {"times": value}).value["error"]
    assert error["kind"] == "invalid_argument"
    assert error["message"] == "argument 'times' is not as expected: a valid integer"


def test_a_null_was_not_given() -> None:
    assert serving(echo).call("Echo", {"text": None, "times": None}).value == {"text": ""}
    assert serving(echo).call("Echo", None).value == {"text": ""}


@pytest.mark.parametrize("arguments", [[], "x", 3, True, 1.5])
def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    error = serving(echo).call("Echo", arguments).value["error"]
    assert error["kind"] == "invalid_argument"
    assert "not an object" in error["message"]


def test_deep_arguments_are_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert serving(echo).call("Echo", {"text": deep}).value["error"]["kind"] == "invalid_argument"
    text = '{"text":' + "[" * 100_000 + "]" * 100_000 + "}"
    assert serving(echo).call_json("Echo", text).value["error"]["kind"] == "invalid_argument"


@pytest.mark.parametrize("text", ["{", "nan", '{"times": NaN}', '"\\ud800"', b"\xff", "{} {}"])
def test_arguments_that_are_no_json_are_refused(text: str | bytes) -> None:
    error = serving(echo).call_json("Echo", text).value["error"]
    assert error["kind"] == "invalid_argument"


def test_arguments_may_come_as_json_text() -> None:
    assert serving(echo).call_json("Echo", '{"text": "a", "times": 2}').value == {"text": "aa"}
    assert serving(echo).call_json("Echo", b" ").value == {"text": ""}


@given(arguments=JSON)
def test_a_call_answers_any_json(arguments: Any) -> None:
    reply = serving(echo).call("Echo", arguments)
    assert orjson.loads(reply.data) == reply.value
    assert reply.value.get("error", {}).get("class") in (None, "invalid_argument")


@given(name=st.text() | st.sampled_from(["\ud800", "echo", "Echo ", "x" * 10_000]))
def test_any_other_name_is_not_found(name: str) -> None:
    error = serving(echo).call(name).value["error"]
    assert error["kind"] == "not_found"
    assert error["hint"] == "the tools are Echo"


# ---------------------------------------------------------------- errors


def _subclasses(of: type[SessiondexError]) -> list[type[SessiondexError]]:
    return [of, *(found for each in of.__subclasses__() for found in _subclasses(each))]


@pytest.mark.parametrize("kind", _subclasses(SessiondexError), ids=lambda kind: kind.__name__)
def test_every_error_reaches_a_model_as_one_of_three_classes(kind: type[SessiondexError]) -> None:
    reply = serving(failing(kind("it is so", hint="do that"))).call("Echo")
    assert reply.is_error
    assert reply.exit_code == kind.exit_code
    error = reply.value["error"]
    assert error["class"] in ("invalid_argument", "failed", "internal")
    assert error["kind"] == kind.kind
    if kind.error_class != "internal":
        assert (error["message"], error["hint"]) == ("it is so", "do that")


@pytest.mark.parametrize(
    "fault",
    [ValueError("text of a session"), RecursionError(), MemoryError(), KeyError("x"),
     InternalError("text of a session"), OSError(28, "no space")],
    ids=repr,
)  # fmt: skip
def test_a_fault_inside_a_tool_is_internal_and_tells_a_model_nothing(fault: Exception) -> None:
    told: list[tuple[str, Exception]] = []
    registry = serving(failing(fault), on_fault=lambda name, error: told.append((name, error)))
    reply = registry.call("Echo")
    assert reply.value["error"]["class"] == reply.value["error"]["kind"] == "internal"
    assert b"text of a session" not in reply.data
    assert told == [("Echo", fault)]


@pytest.mark.parametrize(
    "value",
    [{"text": "x" * REPLY_BYTES.maximum}, {"text": object()}, {"text": "\ud800"}, {1: 2}],
    ids=["large", "no json", "surrogate", "key"],
)
def test_a_reply_that_breaks_its_promise_is_not_sent(value: Any) -> None:
    reply = serving(lambda _: value).call("Echo")
    assert reply.value["error"]["kind"] == "internal"
    assert len(reply.data) < 1_000


def test_the_texts_of_an_error_are_masked_and_bounded() -> None:
    error = Failed(f"{SECRET} " + "x" * 100_000, hint=f"{SECRET}\ud800" + "é" * 100_000)
    reply = serving(failing(error)).call("Echo")
    assert SECRET.encode() not in reply.data
    assert "[REDACTED:github_token]" in reply.value["error"]["message"]
    assert len(reply.data) < 5_000


def test_a_failure_names_no_path() -> None:
    error = Damaged(
        "/home/ada/lib/items-1/texts.arrow: checksum at offset 3", hint="see ./x and/or y"
    )
    shown = serving(failing(error)).call("Echo").value["error"]
    assert shown["message"] == "…: checksum at offset 3"
    assert shown["hint"] == "see ./x and/or y"
    remote = Failed("http://127.0.0.1:80/api answered 500")
    assert serving(failing(remote)).call("Echo").value["error"]["message"] == remote.message


def test_an_argument_of_any_length_is_refused_in_few_words() -> None:
    reply = serving(echo).call("Echo", {"x" * 1_000_000: 1, "y" * 1_000_000: 1})
    assert len(reply.data) < 1_000
    many = serving(echo).call("Echo", {f"x{n}": 1 for n in range(10_000)})
    assert len(many.data) < 1_000


def test_the_clock_of_a_host_tells_the_time() -> None:
    assert Clock().now().tzinfo is not None
