"""A server on loopback that speaks the wire formats of OpenAI and Anthropic, driven by a script.

Real provider clients talk to it, in this process or in another one::

    def script(received: Received) -> Answer | Fault:
        if not received.messages[-1].returns:
            return Answer(calls=(Call("ListSessions", {"limit": 3}),))
        return Answer("done")

    with WireServer(script) as server:
        model = open_model("openai-chat:any", base_url=server.base_url("openai-chat"), environ={})
        ...
    assert [tool.name for tool in server.received[0].tools] == ["ListSessions"]

A script is a function of what was received, or a list of answers and faults, one a request. It
serves `POST /v1/chat/completions` (wire `openai-chat`), `/v1/responses` (`openai-responses`) and
`/v1/messages` (`anthropic`), not streamed, any number at once. `server.received` holds every
request in the order of arrival, in one form for all three wires and raw (`body`).

`Fault` has a function for each thing that can go wrong (`Fault.rate_limit("7")`, `Fault.cut()`,
...). `Fault.hang(event)` answers nothing until the event is set, or the server closes, and
`Fault.trickle(event)` goes on answering as long.
`server.wait_for(count)` waits until so many requests came, so that no test sleeps.

For a command line in a subprocess pass `server.base_url(wire)` as the base URL, and
`LOOPBACK_ENVIRONMENT` on top of its environment, so that no proxy stands in between.

A script that raises or runs out, and a request that is none of these formats, is answered with
HTTP 400 and raised again as `ScriptError` when the server closes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, cast

Wire = Literal["openai-chat", "openai-responses", "anthropic"]
WIRES: tuple[Wire, ...] = ("openai-chat", "openai-responses", "anthropic")

LOOPBACK_ENVIRONMENT = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
"""What a process must have in its environment to reach the server past any proxy."""

_WAIT_SECONDS = 30.0
_TRICKLE_SECONDS = 0.02

# ---------------------------------------------------------------- what a script says


class Call(NamedTuple):
    """A call of a tool. `arguments` as a text go out as they are, also where they are no JSON."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str = ""
    """'' in a script: one is made up."""


@dataclass(frozen=True)
class Answer:
    """What a model says: text, calls, and what it thought before."""

    text: str = ""
    calls: Sequence[Call] = ()
    reasoning: str = ""
    input_tokens: int = 11
    output_tokens: int = 7
    is_cut_short: bool = False
    """Whether the model was stopped by its limit of tokens."""


@dataclass(frozen=True)
class Fault:
    """Something other than an answer; made by one of its functions."""

    kind: str
    status: int = 0
    """0 where what is wrong is not the status."""
    error: Mapping[Wire | Literal[""], tuple[str, str]] = field(
        default_factory=dict[Wire | Literal[""], tuple[str, str]]
    )
    """Error type and code by wire; '' for all others."""
    message: str = "it did not work"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    release: threading.Event | None = None
    payload: bytes = b""

    @classmethod
    def rate_limit(cls, retry_after: str = "", **headers: str) -> Fault:
        """429, with the header Retry-After where it is given."""
        errors: dict[Wire | Literal[""], tuple[str, str]] = {
            "": ("requests", "rate_limit_exceeded"),
            "anthropic": ("rate_limit_error", ""),
        }
        if retry_after:
            headers["Retry-After"] = retry_after
        return cls("rate_limit", 429, errors, "slow down", headers)

    @classmethod
    def quota(cls) -> Fault:
        """The account has no money left: 429 at OpenAI, 402 at Anthropic."""
        return cls(
            "quota",
            429,
            {"": ("insufficient_quota", "insufficient_quota"), "anthropic": ("billing_error", "")},
            "you exceeded your current quota",
        )

    @classmethod
    def server_error(cls, status: int = 500) -> Fault:
        return cls("server_error", status, {"": ("server_error", ""), "anthropic": _API_ERROR})

    @classmethod
    def overloaded(cls) -> Fault:
        """529."""
        return cls("overloaded", 529, {"": ("overloaded_error", "")}, "overloaded")

    @classmethod
    def unauthorized(cls) -> Fault:
        """401, with a message that quotes the key."""
        return cls(
            "unauthorized",
            401,
            {
                "": ("invalid_request_error", "invalid_api_key"),
                "anthropic": ("authentication_error", ""),
            },
            "incorrect API key provided: {key}",
        )

    @classmethod
    def not_found(cls) -> Fault:
        """404: no such model."""
        return cls(
            "not_found",
            404,
            {
                "": ("invalid_request_error", "model_not_found"),
                "anthropic": ("not_found_error", ""),
            },
            "model: {model}",
        )

    @classmethod
    def rejected(cls) -> Fault:
        """400, with a message that quotes the last message of the request."""
        return cls(
            "rejected",
            400,
            {"": ("invalid_request_error", "")},
            "invalid message: {prompt}",
        )

    @classmethod
    def context_too_long(cls) -> Fault:
        """400: more than the model's context window."""
        return cls(
            "context_too_long",
            400,
            {
                "": ("invalid_request_error", "context_length_exceeded"),
                "anthropic": ("invalid_request_error", ""),
            },
            "prompt is too long: 250000 tokens > 200000 maximum",
        )

    @classmethod
    def hang(cls, release: threading.Event) -> Fault:
        """Answers nothing until the event is set or the server closes; then closes."""
        return cls("hang", release=release)

    @classmethod
    def trickle(cls, release: threading.Event) -> Fault:
        """An answer that begins, and goes on a byte at a time until the event is set."""
        return cls("trickle", release=release)

    @classmethod
    def cut(cls) -> Fault:
        """An answer that ends before its Content-Length."""
        return cls("cut")

    @classmethod
    def reset(cls) -> Fault:
        """The connection is reset before any answer."""
        return cls("reset")

    @classmethod
    def garbage(cls, payload: bytes = b"<html>502 Bad Gateway</html>") -> Fault:
        """200 and JSON by its header, but the body is this."""
        return cls("garbage", payload=payload)

    @classmethod
    def empty(cls) -> Fault:
        """A well-formed answer in which the model said nothing: no choices, output or content."""
        return cls("empty")


_API_ERROR = ("api_error", "")

Script = Callable[["Received"], Answer | Fault] | Iterable[Answer | Fault]

# ---------------------------------------------------------------- what was received


class Tool(NamedTuple):
    """A tool that was announced to the model."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Return(NamedTuple):
    """What a tool returned."""

    call_id: str
    text: str


class Message(NamedTuple):
    """All that one side said before the other one spoke. Instructions are no message."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[Call, ...] = ()
    returns: tuple[Return, ...] = ()
    reasoning: tuple[str, ...] = ()
    """One for each block of reasoning; '' where it is encrypted or a mere reference."""


@dataclass(frozen=True)
class Received:
    """One request."""

    wire: Wire
    model: str
    instructions: str
    tools: tuple[Tool, ...]
    messages: tuple[Message, ...]
    key: str
    headers: Mapping[str, str]
    """By names in lower case."""
    body: Mapping[str, Any]
    """As it came."""

    @property
    def has_reasoning(self) -> bool:
        """Whether reasoning of earlier answers was sent along."""
        return any(message.reasoning for message in self.messages)


class ScriptError(AssertionError):
    """The script failed, or a request came that the server does not serve."""


# ---------------------------------------------------------------- the server


class WireServer:
    """Listens on a free port of 127.0.0.1 from its making until `close`."""

    def __init__(self, script: Script) -> None:
        self._script = script if callable(script) else _in_turn(script)
        self._received: list[Received] = []
        self._arrival = threading.Condition()
        self._releases: list[threading.Event] = []
        self._is_closing = False
        self._ids = itertools.count(1)
        self._mistakes: list[Exception] = []
        self._http = _Server(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def received(self) -> list[Received]:
        """The requests so far, in the order of arrival."""
        with self._arrival:
            return list(self._received)

    def base_url(self, wire: Wire) -> str:
        """What the provider client of a wire takes as its base URL."""
        origin = f"http://127.0.0.1:{self._http.server_address[1]}"
        return origin if wire == "anthropic" else f"{origin}/v1"

    def wait_for(self, count: int) -> list[Received]:
        """The requests, once so many have come; an AssertionError after half a minute."""
        with self._arrival:
            arrived = self._arrival.wait_for(lambda: len(self._received) >= count, _WAIT_SECONDS)
            assert arrived, f"only {len(self._received)} of {count} requests came"
            return list(self._received)

    def close(self) -> None:
        """Releases what hangs, closes every connection, and waits for the threads.

        Raises:
            ScriptError: the first mistake, see the module's text.
        """
        with self._arrival:
            self._is_closing = True
            for release in self._releases:
                release.set()
        self._http.shutdown()
        self._thread.join()
        self._http.close_connections()
        self._http.server_close()
        if self._mistakes:
            raise ScriptError(str(self._mistakes[0])) from self._mistakes[0]

    def __enter__(self) -> WireServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ for the handler

    def answer_to(self, path: str, headers: Mapping[str, str], data: bytes) -> _Reply:
        """What to send for a request."""
        try:
            received = _received(path, headers, data)
            with self._arrival:
                self._received.append(received)
                self._arrival.notify_all()
                # In turn, so that a list of answers is used in the order of arrival.
                said = self._script(received)
                if isinstance(said, Fault) and said.release is not None:
                    self._releases.append(said.release)
                    if self._is_closing:
                        said.release.set()
        except Exception as error:  # noqa: BLE001 - raised again by `close`
            self._mistakes.append(error)
            body = {"error": {"message": f"script: {error!r}", "type": "invalid_request_error"}}
            return _Reply(400, _encoded(body))
        if isinstance(said, Answer):
            return _Reply(200, _encoded(self._answered(received, said)))
        return self._failed(received, said)

    def _failed(self, received: Received, fault: Fault) -> _Reply:
        if fault.status:
            type_, code = fault.error.get(received.wire) or fault.error[""]
            status = fault.status
            if fault.kind == "quota" and received.wire == "anthropic":
                status = 402
            message = fault.message.format(
                key=received.key,
                model=received.model,
                prompt=received.messages[-1].text if received.messages else "",
            )
            error: dict[str, Any] = {"type": type_, "message": message}
            if received.wire == "anthropic":
                body: dict[str, Any] = {"type": "error", "error": error}
            else:
                body = {"error": error | {"code": code or None, "param": None}}
            return _Reply(status, _encoded(body), fault.headers)
        if fault.kind == "empty":
            body = self._answered(received, Answer())
            for name in ("choices", "output", "content"):
                if name in body:
                    body[name] = []
            return _Reply(200, _encoded(body))
        if fault.kind == "garbage":
            return _Reply(200, fault.payload)
        if fault.kind == "cut":
            whole = _encoded(self._answered(received, Answer("this answer is cut")))
            return _Reply(200, whole[: len(whole) // 2], missing_bytes=len(whole) // 2 + 1)
        if fault.kind == "trickle":
            return _Reply(200, b"{", missing_bytes=1 << 20, release=fault.release)
        if fault.kind == "hang":
            return _Reply(0, release=fault.release)
        assert fault.kind == "reset", fault
        return _Reply(0, is_reset=True)

    def _answered(self, received: Received, answer: Answer) -> dict[str, Any]:
        number = next(self._ids)
        calls = [
            Call(call.name, call.arguments, call.id or f"call_{number}_{index}")
            for index, call in enumerate(answer.calls)
        ]
        make = {
            "openai-chat": _chat_answer,
            "openai-responses": _responses_answer,
            "anthropic": _anthropic_answer,
        }[received.wire]
        return make(number, received.model, answer, calls)


class _Reply(NamedTuple):
    status: int
    """0: the connection ends without an answer."""
    data: bytes = b""
    headers: Mapping[str, str] = {}
    missing_bytes: int = 0
    release: threading.Event | None = None
    is_reset: bool = False


class _Server(ThreadingHTTPServer):
    """Threads are waited for at the end; connections that clients keep open are closed then."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, owner: WireServer) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):  # the client was faster
                    each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no news; what the script did wrong is kept elsewhere."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        data = self.rfile.read(int(headers.get("content-length", "0")))
        reply = self.server.owner.answer_to(self.path.partition("?")[0], headers, data)
        if reply.release is not None and reply.status == 0:
            reply.release.wait()
        if reply.status == 0:
            self.close_connection = True
            if reply.is_reset:
                no_lingering = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_lingering)
                os.close(self.connection.detach())
            return
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply.data) + reply.missing_bytes))
        for name, value in reply.headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(reply.data)
        while reply.release is not None and not reply.release.wait(_TRICKLE_SECONDS):
            self.wfile.write(b" ")
        if reply.missing_bytes:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""


def _in_turn(answers: Iterable[Answer | Fault]) -> Callable[[Received], Answer | Fault]:
    waiting = iter(answers)

    def script(received: Received) -> Answer | Fault:
        said = next(waiting, None)
        if said is None:
            raise LookupError("the script is over")
        return said

    return script


def _encoded(body: object) -> bytes:
    return json.dumps(body).encode()


# ---------------------------------------------------------------- answers by wire


def _chat_answer(number: int, model: str, answer: Answer, calls: list[Call]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _as_text(call.arguments)},
            }
            for call in calls
        ]
    finish = "length" if answer.is_cut_short else "tool_calls" if calls else "stop"
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": answer.input_tokens,
            "completion_tokens": answer.output_tokens,
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }


def _responses_answer(number: int, model: str, answer: Answer, calls: list[Call]) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": answer.reasoning}]
        output.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        output.append(
            {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    output += [
        {
            "type": "function_call",
            "id": f"fc_{number}_{index}",
            "call_id": call.id,
            "name": call.name,
            "arguments": _as_text(call.arguments),
            "status": "completed",
        }
        for index, call in enumerate(calls)
    ]
    body: dict[str, Any] = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }
    if answer.is_cut_short:
        body |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return body


def _anthropic_answer(number: int, model: str, answer: Answer, calls: list[Call]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if answer.reasoning:
        signature = f"signature-{number}"
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": signature})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _as_input(call.arguments)}
        for call in calls
    ]
    stop = "max_tokens" if answer.is_cut_short else "tool_use" if calls else "end_turn"
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens},
    }


def _as_text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _as_input(arguments: Mapping[str, Any] | str) -> object:
    """Anthropic's wire has an object here; a text that is none goes out as a JSON string."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


# ---------------------------------------------------------------- requests by wire

_PATHS: dict[str, Wire] = {
    "/v1/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
}


class _Conversation:
    """Puts what comes one after the other together as messages."""

    def __init__(self) -> None:
        self.instructions: list[str] = []
        self.messages: list[Message] = []

    def add(self, role: str, **said: Any) -> None:
        """`said` holds fields of `Message`."""
        if role in ("system", "developer"):
            self.instructions.append(said["text"])
            return
        assert role in ("user", "assistant"), role
        addition = Message(role, **said)
        if not self.messages or self.messages[-1].role != role:
            self.messages.append(addition)
            return
        last = self.messages[-1]
        self.messages[-1] = Message(
            role,
            "\n".join(text for text in (last.text, addition.text) if text),
            last.calls + addition.calls,
            last.returns + addition.returns,
            last.reasoning + addition.reasoning,
        )


def _received(path: str, headers: Mapping[str, str], data: bytes) -> Received:
    wire = _PATHS[path]
    body = json.loads(data)
    assert not body.get("stream"), "this server does not stream"
    conversation = _Conversation()
    read = {
        "openai-chat": _read_chat,
        "openai-responses": _read_responses,
        "anthropic": _read_anthropic,
    }[wire]
    tools = read(body, conversation)
    return Received(
        wire=wire,
        model=body["model"],
        instructions="\n".join(conversation.instructions),
        tools=tuple(tools),
        messages=tuple(conversation.messages),
        key=headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer "),
        headers=headers,
        body=body,
    )


def _read_chat(body: Mapping[str, Any], conversation: _Conversation) -> list[Tool]:
    for message in body["messages"]:
        text = _text_of(message.get("content"))
        if message["role"] == "tool":
            conversation.add("user", returns=(Return(message["tool_call_id"], text),))
            continue
        calls = tuple(
            Call(call["function"]["name"], call["function"]["arguments"], call["id"])
            for call in message.get("tool_calls") or ()
        )
        reasoning = tuple(
            message[name] for name in ("reasoning_content", "reasoning") if message.get(name)
        )
        conversation.add(message["role"], text=text, calls=calls, reasoning=reasoning)
    return [
        Tool(
            tool["function"]["name"],
            tool["function"].get("description", ""),
            tool["function"]["parameters"],
        )
        for tool in body.get("tools") or ()
    ]


def _read_responses(body: Mapping[str, Any], conversation: _Conversation) -> list[Tool]:
    if body.get("instructions"):
        conversation.add("system", text=body["instructions"])
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = item.get("type", "message")
        if kind == "message":
            conversation.add(item["role"], text=_text_of(item["content"]))
        elif kind == "function_call":
            call = Call(item["name"], item["arguments"], item["call_id"])
            conversation.add("assistant", calls=(call,))
        elif kind == "function_call_output":
            given = Return(item["call_id"], _text_of(item["output"]))
            conversation.add("user", returns=(given,))
        else:
            assert kind == "reasoning", kind
            conversation.add("assistant", reasoning=(_text_of(item.get("summary")),))
    return [
        Tool(tool["name"], tool.get("description") or "", tool["parameters"])
        for tool in body.get("tools") or ()
    ]


def _read_anthropic(body: Mapping[str, Any], conversation: _Conversation) -> list[Tool]:
    if body.get("system"):
        conversation.add("system", text=_text_of(body["system"]))
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            kind = block["type"]
            if kind == "text":
                conversation.add(message["role"], text=block["text"])
            elif kind == "tool_use":
                call = Call(block["name"], _call_input(block["input"]), block["id"])
                conversation.add("assistant", calls=(call,))
            elif kind == "tool_result":
                given = Return(block["tool_use_id"], _text_of(block.get("content")))
                conversation.add("user", returns=(given,))
            else:
                assert kind in ("thinking", "redacted_thinking"), kind
                conversation.add("assistant", reasoning=(block.get("thinking", ""),))
    return [
        Tool(tool["name"], tool.get("description", ""), tool["input_schema"])
        for tool in body.get("tools") or ()
    ]


def _call_input(value: object) -> str:
    """Arguments as a text, as the other two wires have them."""
    return value if isinstance(value, str) else json.dumps(value)


def _text_of(content: object) -> str:
    """The text of a content: a text, nothing, or a list of parts with texts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = cast("list[Mapping[str, Any]]", content)
    return "\n".join(part["text"] for part in parts)
