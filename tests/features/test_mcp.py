"""The MCP face: in memory first, then one process for each transport, with the SDK's own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from sessiondex.features.catalogue import all_tools
from sessiondex.features.local_host import LocalHost
from sessiondex.features.mcp_server import ENTRY_TEMPLATE, REQUEST_BYTES, McpServer, mcp_server
from sessiondex.features.registry import Contribution, Registry
from sessiondex.features.state import State
from sessiondex.features.tool import Tool, ToolInput, ToolOutput
from sessiondex.features.worker_observation import POLICY
from sessiondex.indexer.library import Library
from tests.builders import (
    claude_assistant,
    claude_path,
    claude_user,
    conversation,
    index,
    write_lines,
)

SESSION = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
CHILD = f"{SESSION}/a1b2c3d"
PATIENCE = 120
"""Seconds after which a test that waits for another process gives up."""

LIBRARY_TOOLS = ["SearchLibrary", "ListSessions", "ShowLibraryOverview", "ReadLibraryEntry"]
EXPLORE_TOOLS = ["ShowOverview", "SearchEntries", "ReadEntry"]
ERAS = ("auto", "legacy")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two sessions, one with a sub-agent."""
    home = tmp_path_factory.mktemp("mcp") / "home"
    write_lines(claude_path(home, SESSION), conversation(3))
    write_lines(claude_path(home, OTHER), conversation(2, word="ratchet"))
    child = claude_path(home, SESSION).with_suffix("") / "subagents" / "agent-a1b2c3d.jsonl"
    lines = [claude_user("find the gauge", 0), claude_assistant("The gauge hangs here.", 1)]
    write_lines(child, [{**line, "isSidechain": True, "agentId": "a1b2c3d"} for line in lines])
    return home


@pytest.fixture(scope="module")
def library_path(home: Path) -> Path:
    path = home.parent / "library"
    with Library.create(path) as library:
        index(library, home)
    return path


@pytest.fixture
def library(library_path: Path) -> Generator[Library]:
    with Library.open(library_path) as library:
        yield library


def host(library: Library, home: Path, **more: Any) -> LocalHost:
    assert library.path is not None
    if "session" in more:
        named = more.pop("session")
        more["open_capture"] = lambda: library.capture(named)
    return LocalHost(
        folder=library.path, open_library=lambda: library, homes=[home], environ={}, **more
    )


def within(use: Callable[[Client], Awaitable[None]], target: Any, mode: str = "auto") -> None:
    """Connects a client, uses it and leaves."""

    async def run() -> None:
        with anyio.fail_after(PATIENCE):
            async with Client(target, mode=mode) as client:
                await use(client)

    anyio.run(run)


async def called(client: Client, name: str, **arguments: Any) -> Any:
    """The structured content of a reply that is no error."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


def text_of(result: Any) -> str:
    assert len(result.content) == 1
    return result.content[0].text


# ---------------------------------------------------------------- in memory


@pytest.mark.parametrize("mode", ERAS)
def test_tools_have_the_one_definition_of_the_registry(
    library: Library, home: Path, mode: str
) -> None:
    registry = host(library, home, session=SESSION, observer="ada").registry(
        "library", "session-explore", "session-log", "worker-observation"
    )
    definitions = all_tools()

    async def use(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == [tool.name for tool in registry.tools]
        for tool in listed:
            definition = definitions[tool.name]
            assert tool.description == definition.description
            assert tool.input_schema == definition.input_schema()
            assert tool.output_schema == definition.output_schema()
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is True
            assert tool.annotations.destructive_hint is False
            assert tool.annotations.open_world_hint is False

    within(use, mcp_server(registry), mode)


@pytest.mark.parametrize("mode", ERAS)
def test_a_reply_is_structured_content_and_the_same_json_as_text(
    library: Library, home: Path, mode: str
) -> None:
    registry = host(library, home).registry("library")
    arguments = {"query": "spindle", "limit": 3}
    registry.call("SearchLibrary", arguments)  # what is read from disk is counted in the reply
    expected = registry.call("SearchLibrary", arguments)

    async def use(client: Client) -> None:
        result = await client.call_tool("SearchLibrary", arguments)
        assert not result.is_error
        assert result.structured_content == json.loads(text_of(result))
        assert text_of(result).encode() == expected.data

    within(use, mcp_server(registry), mode)


@pytest.mark.parametrize("mode", ERAS)
def test_an_error_is_the_error_object_as_text_alone(
    library: Library, home: Path, mode: str
) -> None:
    registry = host(library, home).registry("library")

    async def use(client: Client) -> None:
        for name, arguments, kind in (
            ("SearchLibrary", {"qery": "spindle"}, "invalid_argument"),
            ("ReadLibraryEntry", {"session": SESSION, "entry_ref": "E1"}, "hidden_entry"),
            ("ReadLibraryEntry", {"session": SESSION, "entry_ref": "E999"}, "past_end"),
            ("ReadLibraryEntry", {"session": "nobody", "entry_ref": "E1"}, "not_found"),
            ("StageMemoryCandidate", {}, "not_found"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert result.structured_content is None
            error = json.loads(text_of(result))["error"]
            assert set(error) == {"class", "kind", "message", "hint"}
            assert error["kind"] == kind, error
        result = await client.call_tool("SearchLibrary", {"qery": "x", "session": SESSION})
        assert "unknown argument 'qery'" in text_of(result)

    within(use, mcp_server(registry), mode)


def test_a_fault_of_a_tool_says_nothing_of_itself() -> None:
    class Nothing(ToolInput):
        pass

    class Answer(ToolOutput):
        pass

    def broken(_: Nothing) -> dict[str, Any]:
        raise ZeroDivisionError("the secret of the forge")

    registry = Registry()
    registry.add(Contribution.of(Tool("Broken", "Breaks.", Nothing, Answer), broken))

    async def use(client: Client) -> None:
        result = await client.call_tool("Broken", {})
        assert result.is_error
        assert json.loads(text_of(result))["error"]["class"] == "internal"
        assert "secret" not in text_of(result)

    within(use, mcp_server(registry))


def test_a_cursor_that_nobody_gave_is_refused(library: Library, home: Path) -> None:
    server = mcp_server(host(library, home).registry("library"))

    async def use(client: Client) -> None:
        for listing in (client.list_tools, client.list_resource_templates, client.list_resources):
            with pytest.raises(MCPError, match="unknown cursor"):
                await listing(cursor="x")

    within(use, server)


def test_entries_are_resources_by_their_ref(library: Library, home: Path) -> None:
    registry = host(library, home).registry("library")

    async def use(client: Client) -> None:
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [ENTRY_TEMPLATE]
        assert (await client.list_resources()).resources == []
        for session, name in ((SESSION, SESSION), (CHILD, CHILD.replace("/", "%2F"))):
            uri = f"session://{name}/E00000000"
            contents = (await client.read_resource(uri)).contents
            assert [each.uri for each in contents] == [uri]
            arguments = {"session": session, "entry_ref": "E0"}
            text = contents[0].text  # type: ignore[union-attr]
            assert text.encode() == registry.call("ReadLibraryEntry", arguments).data

    within(use, mcp_server(registry))


@pytest.mark.parametrize(
    "uri",
    [f"session://{OTHER}/E0", f"session://{SESSION[:8]}/E0", "session://E0", f"session://{SESSION}",
     f"session://{SESSION}/", f"file://{SESSION}/E0", "nonsense"],
)  # fmt: skip
def test_a_server_of_one_session_reads_resources_of_no_other(
    library: Library, home: Path, uri: str
) -> None:
    registry = host(library, home, session=SESSION).registry("session-explore")

    async def use(client: Client) -> None:
        contents = (await client.read_resource(f"session://{SESSION}/E0")).contents
        assert "please check the spindle" in contents[0].text  # type: ignore[union-attr]
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
        assert caught.value.error.code == -32602
        assert caught.value.error.data["error"]["kind"] == "not_found"
        assert caught.value.error.message == "no such entry"

    within(use, mcp_server(registry, session=SESSION))


def test_observation_comes_with_its_policy_and_has_no_resources(
    library: Library, home: Path
) -> None:
    server = mcp_server(host(library, home, observer="ada").registry("worker-observation"))

    async def use(client: Client) -> None:
        assert client.instructions == POLICY.text
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.resources is None

    within(use, server)


def test_calls_of_one_client_are_served_side_by_side(library: Library, home: Path) -> None:
    registry = host(library, home).registry("library")
    expected = registry.call("SearchLibrary", {"query": "ratchet"}).value["hits"]

    async def use(client: Client) -> None:
        found: list[Any] = []

        async def ask() -> None:
            found.append((await called(client, "SearchLibrary", query="ratchet"))["hits"])

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert found == [expected] * 20

    within(use, mcp_server(registry))


def test_a_session_that_is_explored_stays_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = write_lines(claude_path(home, SESSION), conversation(1))
    with Library.create(tmp_path / "library") as library:
        index(library, home)
        registry = host(library, home, session=SESSION).registry("library", "session-explore")

        async def use(client: Client) -> None:
            before = await called(client, "SearchEntries", query="spindle")
            write_lines(path, conversation(1, start=5), append=True)
            after = await called(client, "SearchEntries", query="spindle")
            assert after["hits"] == before["hits"]
            assert after["capture"] == before["capture"]
            live = await called(client, "SearchLibrary", query="spindle", session=SESSION)
            assert len(live["hits"]) > len(before["hits"])

        within(use, mcp_server(registry, session=SESSION))


# ---------------------------------------------------------------- over stdio


def stdio(library_path: Path, home: Path, *words: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "sessiondex", "mcp", "--library", str(library_path), *words],
        env=environment(home),
    )


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    config = str(home.parent / "config")
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": config, "XDG_DATA_HOME": config}


def test_over_stdio_it_serves_the_library_and_nothing_else_while_another_process_indexes(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    write_lines(claude_path(home, SESSION), conversation(3))
    with Library.create(tmp_path / "library") as library:
        index(library, home)
    words = [sys.executable, "-m", "sessiondex", "index", "--library", str(tmp_path / "library")]

    async def use(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == LIBRARY_TOOLS
        assert (await called(client, "SearchLibrary", query="ratchet"))["hits"] == []
        write_lines(claude_path(home, OTHER), conversation(40, word="ratchet"))
        process = await anyio.open_process(words, env=environment(home))
        while process.returncode is None:
            # Whatever the other process is at, every call is served.
            found = await called(client, "SearchLibrary", query="spindle")
            assert len(found["hits"]) == 12
            with anyio.move_on_after(0):
                await process.wait()
        assert process.returncode == 0
        await process.aclose()
        assert len((await called(client, "SearchLibrary", query="ratchet"))["hits"]) == 20

    within(use, stdio(tmp_path / "library", home))


def test_over_stdio_it_works_while_another_process_holds_the_writer_lock(
    library_path: Path, home: Path
) -> None:
    async def use(client: Client) -> None:
        assert (await called(client, "ListSessions"))["returned"] == 3
        overview = await called(client, "ShowOverview")
        assert overview["session"] == SESSION

    with Library.open(library_path) as library, library.writing():
        words = ("--feature", "library", "--feature", "builtin:session-explore")
        within(use, stdio(library_path, home, *words, "--session", SESSION[:4]), "legacy")


def test_a_grant_that_is_revoked_is_gone_at_the_next_call(library_path: Path, home: Path) -> None:
    from sessiondex.features.local_sessions import local_subject

    ours, theirs = local_subject("claude-code", SESSION), local_subject("claude-code", OTHER)
    claude_path(home, SESSION).touch()
    claude_path(home, OTHER).touch()

    async def use(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "ListWorkerSessions", "ViewSessionOverview", "SearchSessionEntries", "ReadSessionEntry",
        ]  # fmt: skip
        listed = (await called(client, "ListWorkerSessions"))["subjects"]
        assert [each["subject"] for each in listed] == [ours.model_dump()]
        subject = listed[0]["subject"]
        page = await called(client, "SearchSessionEntries", subject=subject, limit=2)
        state.remove_grant("ada", ours, now=2)
        refused = await client.call_tool(
            "SearchSessionEntries", {"subject": subject, "limit": 2, "cursor": page["next_cursor"]}
        )
        never = await client.call_tool("ViewSessionOverview", {"subject": theirs.model_dump()})
        assert refused.is_error
        assert text_of(refused) == text_of(never)
        assert (await called(client, "ListWorkerSessions"))["subjects"] == []

    with State.beside(library_path) as state:
        state.add_grant("ada", ours, now=1)
        state.add_grant("bob", theirs, now=1)
        words = ("--feature", "worker-observation", "--observer", "ada")
        within(use, stdio(library_path, home, *words))


def test_a_client_of_the_first_protocol_gets_text_and_stdout_holds_nothing_else(
    library_path: Path, home: Path
) -> None:
    parameters = stdio(library_path, home)
    version = "2024-11-05"
    about = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "old",
             "version": "1"}}  # fmt: skip
    call = {"name": "SearchLibrary", "arguments": {"query": "ratchet", "limit": 1}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "Nothing"}},
    ]
    with subprocess.Popen(
        [parameters.command, *parameters.args], env=parameters.env, text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        answers: dict[int, Any] = {}
        for message in messages:
            process.stdin.write(json.dumps(message) + "\n")
            if "id" in message:
                answer = json.loads(process.stdout.readline())
                answers[answer["id"]] = answer["result"]
        rest, complaints = process.communicate(timeout=PATIENCE)
    assert (process.returncode, rest, complaints) == (0, "", "")
    assert answers[1]["protocolVersion"] == version
    assert answers[1]["serverInfo"]["name"] == "sessiondex"
    assert [tool["name"] for tool in answers[2]["tools"]] == LIBRARY_TOOLS
    assert answers[2]["tools"][0]["inputSchema"] == all_tools()["SearchLibrary"].input_schema()
    assert json.loads(answers[3]["content"][0]["text"])["returned"] == 1
    assert answers[4]["isError"]
    assert "StageMemoryCandidate" not in json.dumps(answers[2])


# ---------------------------------------------------------------- over HTTP


@contextmanager
def http_server(library_path: Path, home: Path, *words: str) -> Iterator[str]:
    """A server at a free port of this machine; gives its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "sessiondex", "mcp", "--http", "0", *words,
         "--library", str(library_path)],
        env=environment(home), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            assert said.startswith("serving MCP at http://127.0.0.1:"), said
            yield said.split()[-1]
        finally:
            process.terminate()
            out, _ = process.communicate(timeout=PATIENCE)
    assert out == ""


def test_over_http_it_serves_clients_of_both_eras_and_of_this_machine_only(
    library_path: Path, home: Path
) -> None:
    words = ("--feature", "session-explore", "--session", SESSION)
    with http_server(library_path, home, *words) as url:
        replies: list[str] = []

        async def use(client: Client) -> None:
            assert [tool.name for tool in (await client.list_tools()).tools] == EXPLORE_TOOLS
            result = await client.call_tool("ReadEntry", {"entry_ref": "E0"})
            assert result.structured_content == json.loads(text_of(result))
            replies.append(text_of(result))
            wrong = await client.call_tool("ReadEntry", {"entry_ref": "E0", "session": OTHER})
            assert wrong.is_error
            assert "unknown argument 'session'" in text_of(wrong)

        for mode in ERAS:
            within(use, url, mode)
        assert replies[0] == replies[1]

        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        headers = {"accept": "application/json, text/event-stream"}
        with httpx.Client(headers=headers, trust_env=False) as stranger:
            assert stranger.post(url, json=body).status_code == 200
            for name, value, status in (
                ("host", "evil.example", 421), ("origin", "https://evil.example", 403)
            ):  # fmt: skip
                answer = stranger.post(url, json=body, headers={name: value})
                assert answer.status_code == status
            large = stranger.post(url, json={**body, "params": {"x": "y" * REQUEST_BYTES}})
            assert large.status_code == 413


def test_a_port_that_is_taken_is_said(library_path: Path, home: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = subprocess.run(
            [sys.executable, "-m", "sessiondex", "mcp", "--http", port,
             "--library", str(library_path)],
            env=environment(home), capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert ended.returncode == 1
    assert f"127.0.0.1 port {port} cannot be used" in ended.stderr
    assert ended.stdout == ""


def test_a_server_is_typed_for_whoever_embeds_it(library: Library, home: Path) -> None:
    server: McpServer = mcp_server(host(library, home).registry("library"))
    assert server.name == "sessiondex"
