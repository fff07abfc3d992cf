"""The real clients of the providers over the three wire formats, against the server on loopback."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

import pytest
from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from sessiondex.features.loop.models import (
    RETRYABLE,
    FaultKind,
    open_model,
    provider_fault,
    request_settings,
)
from tests.features.loop.wire_server import (
    LOOPBACK_ENVIRONMENT,
    WIRES,
    Answer,
    Call,
    Fault,
    Message,
    Received,
    Return,
    Script,
    ScriptError,
    Tool,
    Wire,
    WireServer,
)

KEY = "sk-made-up-0000000000000000001"
KEYS = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
PROMPT = "the prompt of nobody else"
SCHEMA = {
    "type": "object",
    "properties": {"depth": {"type": "integer"}},
    "required": ["depth"],
    "additionalProperties": False,
}
PARAMETERS = ModelRequestParameters(
    function_tools=[
        ToolDefinition(
            name="Dig", description="Digs.", parameters_json_schema=SCHEMA, strict=False
        ),
        ToolDefinition(
            name="Rest", description="Rests.", parameters_json_schema=SCHEMA, strict=False
        ),
    ],
    instruction_parts=[InstructionPart(content="be brief")],
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LOOPBACK_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def converse(
    wire: Wire,
    script: Script,
    serve: Callable[[ToolCallPart], str] = lambda call: f"{call.tool_name} did",
    *,
    settings: ModelSettings | None = None,
    environ: Mapping[str, str] = KEYS,
    model_name: str = "any",
) -> tuple[list[ModelMessage], list[Received]]:
    """A conversation that lasts as long as the model calls tools, and what the server received."""

    async def talk(server: WireServer) -> list[ModelMessage]:
        model = open_model(f"{wire}:{model_name}", base_url=server.base_url(wire), environ=environ)
        messages: list[ModelMessage] = [ModelRequest([UserPromptPart(PROMPT)])]
        async with model:
            while True:
                answer = await model_request(
                    model,
                    messages,
                    model_settings=settings or request_settings(20),
                    model_request_parameters=PARAMETERS,
                )
                messages.append(answer)
                calls = [part for part in answer.parts if isinstance(part, ToolCallPart)]
                if not calls:
                    return messages
                returns = [
                    ToolReturnPart(call.tool_name, serve(call), call.tool_call_id) for call in calls
                ]
                messages.append(ModelRequest(returns))

    with WireServer(script) as server:
        return asyncio.run(talk(server)), server.received


def errors_of(
    wire: Wire, faults: Sequence[Fault], settings: ModelSettings | None = None
) -> list[Exception]:
    """The error that one attempt ends with for each fault, all with one client.

    That a second request for the same attempt shifts the faults, and runs out of them, is what
    proves that each attempt is one request.
    """

    async def attempts(server: WireServer) -> list[Exception]:
        errors: list[Exception] = []
        async with open_model(f"{wire}:any", base_url=server.base_url(wire), environ=KEYS) as model:
            for number, fault in enumerate(faults, 1):
                with pytest.raises(Exception) as refusal:
                    await model_request(
                        model,
                        [ModelRequest([UserPromptPart(PROMPT)])],
                        model_settings=settings or request_settings(20),
                        model_request_parameters=PARAMETERS,
                    )
                errors.append(refusal.value)
                assert len(server.received) == number, fault
        return errors

    with WireServer(faults) as server:
        return asyncio.run(attempts(server))


# ---------------------------------------------------------------- conversations


@pytest.mark.parametrize("wire", WIRES)
def test_a_conversation_of_several_turns_arrives_whole_each_time(wire: Wire) -> None:
    messages, received = converse(
        wire,
        [
            Answer("I dig", [Call("Dig", {"depth": 1})]),
            Answer(calls=[Call("Dig", {"depth": 2}, "chosen-id")]),
            Answer("deep enough"),
        ],
    )
    assert isinstance(messages[-1], ModelResponse)
    assert [part.content for part in messages[-1].parts if isinstance(part, TextPart)] == [
        "deep enough"
    ]
    assert [len(request.messages) for request in received] == [1, 3, 5]
    last = received[-1]
    first_id = last.messages[1].calls[0].id
    assert [message.role for message in last.messages] == ["user", "assistant"] * 2 + ["user"]
    assert last.messages[0] == Message("user", PROMPT)
    assert last.messages[1].text == "I dig"
    assert last.messages[2] == Message("user", returns=(Return(first_id, "Dig did"),))
    assert [json.loads(str(call.arguments)) for call in last.messages[3].calls] == [{"depth": 2}]
    assert last.messages[4].returns == (Return("chosen-id", "Dig did"),)
    for request in received:
        assert request.instructions == "be brief"
        assert request.tools == (Tool("Dig", "Digs.", SCHEMA), Tool("Rest", "Rests.", SCHEMA))
        assert request.model == "any"
        assert request.key == KEY
        assert not request.has_reasoning


@pytest.mark.parametrize("wire", WIRES)
def test_tokens_are_counted_as_the_provider_says(wire: Wire) -> None:
    messages, _ = converse(wire, [Answer("yes", input_tokens=123, output_tokens=45)])
    assert isinstance(messages[-1], ModelResponse)
    assert messages[-1].usage.input_tokens == 123
    assert messages[-1].usage.output_tokens == 45


@pytest.mark.parametrize("wire", WIRES)
def test_parallel_calls_keep_their_order_and_their_replies(wire: Wire) -> None:
    calls = [Call("Dig", {"depth": 1}), Call("Rest", {"depth": 2}), Call("Dig", {"depth": 3})]
    messages, received = converse(
        wire, [Answer(calls=calls), Answer("done")], lambda call: f"reply to {call.tool_call_id}"
    )
    assert isinstance(messages[1], ModelResponse)
    assert [part.tool_name for part in messages[1].tool_calls] == ["Dig", "Rest", "Dig"]
    assert [part.args_as_dict()["depth"] for part in messages[1].tool_calls] == [1, 2, 3]
    ids = [part.tool_call_id for part in messages[1].tool_calls]
    assert len(set(ids)) == 3
    assert [call.id for call in received[1].messages[1].calls] == ids
    assert list(received[1].messages[2].returns) == [Return(id, f"reply to {id}") for id in ids]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("written", ['{"depth": 1', "depth=1", '{"depth": 1} {"depth": 2}'])
def test_arguments_that_are_no_json_arrive_as_the_model_wrote_them(
    wire: Wire, written: str
) -> None:
    messages, received = converse(wire, [Answer(calls=[Call("Dig", written)]), Answer("done")])
    assert isinstance(messages[1], ModelResponse)
    assert [part.args for part in messages[1].tool_calls] == [written]
    assert len(received) == 2


@pytest.mark.parametrize("wire", WIRES)
def test_reasoning_of_the_model_itself_goes_back_to_its_own_provider(wire: Wire) -> None:
    answers = [Answer("hm", [Call("Dig", {"depth": 1})], reasoning="let me see"), Answer("done")]
    _, received = converse(wire, answers, model_name="gpt-5")
    assert [request.has_reasoning for request in received] == [False, True]
    assert received[1].messages[1].reasoning == ("let me see",)


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_that_is_cut_short_by_its_tokens_says_so(wire: Wire) -> None:
    messages, _ = converse(wire, [Answer("and then", is_cut_short=True)])
    assert isinstance(messages[-1], ModelResponse)
    assert messages[-1].finish_reason == "length"


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic"])
def test_an_answer_in_which_nothing_is_said_is_an_answer(wire: Wire) -> None:
    messages, _ = converse(wire, [Fault.empty()])
    assert isinstance(messages[-1], ModelResponse)
    assert messages[-1].parts == []


def test_a_server_is_told_not_to_keep_the_conversation_where_the_wire_has_a_word_for_it() -> None:
    _, [responses] = converse("openai-responses", [Answer("yes")])
    assert responses.body["store"] is False
    _, [chat] = converse("openai-chat", [Answer("yes")])
    assert "store" not in chat.body


@pytest.mark.parametrize("wire", WIRES)
def test_a_server_that_needs_no_key_is_asked_without_the_keys_of_the_process(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*KEYS, "ANTHROPIC_AUTH_TOKEN", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, KEY)
    _, [request] = converse(wire, [Answer("yes")], environ={})
    assert KEY not in str(request.headers)


# ---------------------------------------------------------------- faults

FAULTS: tuple[tuple[Fault, FaultKind], ...] = (
    (Fault.rate_limit(), "rate_limit"),
    (Fault.quota(), "quota"),
    (Fault.server_error(), "server"),
    (Fault.server_error(502), "server"),
    (Fault.server_error(503), "overloaded"),
    (Fault.overloaded(), "overloaded"),
    (Fault.unauthorized(), "authentication"),
    (Fault.not_found(), "not_found"),
    (Fault.rejected(), "rejected"),
    (Fault.context_too_long(), "context_window"),
    (Fault.cut(), "connection"),
    (Fault.reset(), "connection"),
    (Fault.garbage(), "malformed"),
    (Fault.garbage(b""), "malformed"),
    (Fault.garbage(b"\xff\xfe\x00"), "malformed"),
    (Fault.garbage(b"[]"), "malformed"),
    (Fault.garbage(b"{}"), "malformed"),
    (Fault.garbage(b"null"), "malformed"),
    (Fault.garbage(b'"text"'), "malformed"),
    (Fault.garbage(b'{"choices": 3, "output": 3, "content": 3}'), "malformed"),
)


@pytest.mark.parametrize("wire", WIRES)
def test_every_fault_has_its_class_after_one_request_and_tells_no_secret(wire: Wire) -> None:
    errors = errors_of(wire, [fault for fault, _ in FAULTS])
    for (fault, kind), error in zip(FAULTS, errors, strict=True):
        found = provider_fault(error)
        assert (found.kind, found.is_retryable) == (kind, kind in RETRYABLE), (fault, error)
        assert found.detail
        assert KEY not in found.detail
        assert PROMPT not in found.detail
        if fault.status == 401:
            assert KEY in str(error)  # the server did say it
        if fault.kind == "rejected":
            assert PROMPT in str(error)


def test_a_chat_answer_without_choices_is_malformed() -> None:
    [error] = errors_of("openai-chat", [Fault.empty()])
    assert provider_fault(error).kind == "malformed"


@pytest.mark.parametrize("wire", WIRES)
def test_the_wait_that_a_provider_asks_for_is_read(wire: Wire) -> None:
    waits: list[tuple[Fault, float | None]] = [
        (Fault.rate_limit("7"), 7.0),
        (Fault.rate_limit(retry_after_ms="1500"), 1.5),
        (Fault.rate_limit("Wed, 01 Jan 2020 00:00:00 GMT"), 0.0),
        (Fault.rate_limit("soon"), None),
        (Fault.rate_limit(), None),
    ]
    errors = errors_of(wire, [fault for fault, _ in waits])
    found = [provider_fault(error).retry_after for error in errors]
    assert found == [seconds for _, seconds in waits]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", [Fault.hang, Fault.trickle])
def test_a_server_that_never_comes_to_an_end_is_a_timeout(
    wire: Wire, kind: Callable[[threading.Event], Fault]
) -> None:
    async def ask(server: WireServer) -> None:
        async with open_model(f"{wire}:any", base_url=server.base_url(wire), environ=KEYS) as model:
            await model_request(
                model,
                [ModelRequest([UserPromptPart(PROMPT)])],
                model_settings=request_settings(0.3),
            )

    with WireServer([kind(threading.Event())]) as server:
        with pytest.raises(Exception) as refusal:
            asyncio.run(ask(server))
        assert len(server.received) <= 1
    assert provider_fault(refusal.value)[:2] == ("timeout", True)


@pytest.mark.parametrize("wire", WIRES)
def test_a_server_that_nobody_runs_is_a_connection_fault(wire: Wire) -> None:
    server = WireServer([])
    url = server.base_url(wire)
    server.close()

    async def ask() -> None:
        async with open_model(f"{wire}:any", base_url=url, environ=KEYS) as model:
            await model_request(
                model,
                [ModelRequest([UserPromptPart(PROMPT)])],
                model_settings=request_settings(20),
            )

    with pytest.raises(Exception) as refusal:
        asyncio.run(ask())
    assert provider_fault(refusal.value)[:2] == ("connection", True)


@pytest.mark.parametrize("wire", WIRES)
def test_without_our_settings_a_client_would_ask_again_on_its_own(wire: Wire) -> None:
    answers = [Fault.rate_limit(retry_after_ms="1"), Answer("yes")]
    _, received = converse(wire, answers, settings=ModelSettings(timeout=20))
    assert len(received) == 2


# ---------------------------------------------------------------- clients


@pytest.mark.parametrize("wire", WIRES)
def test_leaving_a_model_closes_its_one_client(wire: Wire) -> None:
    async def ask(server: WireServer) -> tuple[bool, bool]:
        model = open_model(f"{wire}:any", base_url=server.base_url(wire), environ=KEYS)
        assert model.provider is not None
        client = model.provider.client
        async with model:
            for _ in range(2):
                await model_request(
                    model,
                    [ModelRequest([UserPromptPart(PROMPT)])],
                    model_settings=request_settings(20),
                )
            was_closed = client.is_closed()
        return was_closed, client.is_closed()

    with WireServer([Answer("yes"), Answer("no")]) as server:
        assert asyncio.run(ask(server)) == (False, True)
    gc.collect()  # what was left open would warn now, and a warning is an error


_ASK_ALL = """
import asyncio, sys
connected = []
def audit(event, arguments):
    if event == "socket.connect":
        connected.append(arguments[1][0])
sys.addaudithook(audit)
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest, UserPromptPart
from sessiondex.features.loop.models import open_model, request_settings
async def ask(name, url):
    async with open_model(name, base_url=url, environ={}) as model:
        request = ModelRequest([UserPromptPart("hello")])
        answer = await model_request(model, [request], model_settings=request_settings(20))
        print(answer.parts[0].content)
for name, url in zip(sys.argv[1::2], sys.argv[2::2]):
    asyncio.run(ask(name, url))
print(*connected)
"""


def test_another_process_asks_the_server_and_nothing_else() -> None:
    with WireServer(lambda received: Answer(received.wire)) as server:
        arguments = [word for wire in WIRES for word in (f"{wire}:any", server.base_url(wire))]
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", _ASK_ALL, *arguments],
            capture_output=True, text=True, check=False,
            env=os.environ | LOOPBACK_ENVIRONMENT,
        )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == [*WIRES, "127.0.0.1 127.0.0.1 127.0.0.1"]
    assert len(server.received) == 3


# ---------------------------------------------------------------- the server itself


def _ask(server: WireServer, answers: int) -> Sequence[object]:
    async def ask() -> Sequence[object]:
        model = open_model("openai-chat:any", base_url=server.base_url("openai-chat"), environ={})
        async with model:
            return await asyncio.gather(
                *(
                    model_request(
                        model,
                        [ModelRequest([UserPromptPart(PROMPT)])],
                        model_settings=request_settings(20),
                    )
                    for _ in range(answers)
                ),
                return_exceptions=True,
            )

    return asyncio.run(ask())


def test_a_script_that_is_over_is_told_when_the_server_closes() -> None:
    with pytest.raises(ScriptError, match="the script is over"), WireServer([]) as server:
        _ask(server, 1)


def test_a_script_that_fails_is_told_when_the_server_closes() -> None:
    def script(received: Received) -> Answer:
        raise ValueError("a slip")

    with pytest.raises(ScriptError, match="a slip"), WireServer(script) as server:
        _ask(server, 1)


def test_requests_at_the_same_time_are_answered_apart() -> None:
    release = threading.Event()

    def script(received: Received) -> Answer | Fault:
        if len(server.received) == 1:
            return Fault.hang(release)
        release.set()
        return Answer("yes")

    with WireServer(script) as server:
        results = _ask(server, 2)
        assert len(server.wait_for(2)) == 2
    assert sorted(type(result).__name__ for result in results) == [
        "ModelConnectionError",
        "ModelResponse",
    ]
