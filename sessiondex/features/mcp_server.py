"""The MCP face of a registry: low-level server, over stdio and streamable HTTP on loopback.

A tool is announced with the schemas of its one definition and called through the registry, which
bounds, checks and masks. Whoever makes the registry is the host: what is served is fixed before
the first request, and nothing here depends on who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import anyio
import mcp_types as types
import orjson
from anyio.to_thread import run_sync
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from sessiondex._version import __version__
from sessiondex.errors import NotFound
from sessiondex.features.listening import LOOPBACK, bind, url_of
from sessiondex.features.reply import ToolReply

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from sessiondex.features.registry import Registry

PATH: Final = "/mcp"

ENTRY_TEMPLATE: Final = "session://{session}/{ref}"

REQUEST_BYTES: Final = 256 * 1024
"""One request over HTTP; the largest arguments that a tool takes are far smaller."""

_FIXED_MS: Final = 3_600_000
"""How long a client may keep a list: it changes only with the process."""

McpServer = Server[Any]
Context = ServerRequestContext[Any, Any]
Paged = types.PaginatedRequestParams | None


def mcp_server(registry: Registry, *, session: str = "") -> McpServer:
    """A server of the tools of a registry; `session` is the id of the one session that its
    `ReadEntry` reads."""
    tools = [types.Tool.model_validate(tool.for_mcp()) for tool in registry.tools]
    names = {tool.name for tool in registry.tools}
    schemas = {tool.name: tool.input_schema() for tool in registry.tools}
    templates = _templates(names)

    async def list_tools(_: Context, asked: Paged) -> types.ListToolsResult:
        _only_page(asked)
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        reply = await run_sync(registry.call, asked.name, asked.arguments, abandon_on_cancel=True)
        return _result(reply)

    async def list_resources(_: Context, asked: Paged) -> types.ListResourcesResult:
        _only_page(asked)
        return types.ListResourcesResult(resources=[])

    async def list_templates(_: Context, asked: Paged) -> types.ListResourceTemplatesResult:
        _only_page(asked)
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def read_resource(
        _: Context, asked: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        reply = await run_sync(_read_entry, registry, session, asked.uri, abandon_on_cancel=True)
        if reply.is_error:
            error = reply.value["error"]
            code = types.INTERNAL_ERROR if error["class"] == "internal" else types.INVALID_PARAMS
            raise MCPError(code=code, message=error["message"], data=dict(reply.value))
        text = types.TextResourceContents(
            uri=asked.uri, mime_type="application/json", text=reply.data.decode()
        )
        return types.ReadResourceResult(contents=[text])

    fixed = CacheHint(ttl_ms=_FIXED_MS, scope="private")
    return Server(
        "sessiondex",
        version=__version__,
        title="sessiondex",
        description="Full-text search and bounded reading of the sessions of AI agents.",
        instructions="\n\n".join(each.text for each in registry.instructions) or None,
        cache_hints={"tools/list": fixed, "resources/templates/list": fixed},
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources if templates else None,
        on_list_resource_templates=list_templates if templates else None,
        on_read_resource=read_resource if templates else None,
    )


def _result(reply: ToolReply) -> types.CallToolResult:
    """A reply as structured content and the same JSON as text; an error as text alone.

    Clients check structured content against the output schema even where it is an error
    (modelcontextprotocol/typescript-sdk#1943), and would show the model their own complaint.
    """
    text = [types.TextContent(text=reply.data.decode())]
    if reply.is_error:
        return types.CallToolResult(content=list(text), is_error=True)
    return types.CallToolResult(content=list(text), structured_content=orjson.loads(reply.data))


def _only_page(asked: Paged) -> None:
    """Every list is one page: no cursor was ever given."""
    if asked is not None and asked.cursor is not None:
        raise MCPError(code=types.INVALID_PARAMS, message="unknown cursor; every list is one page")


# ---------------------------------------------------------------- entries as resources


def _templates(tools: set[str]) -> list[types.ResourceTemplate]:
    if not tools & {"ReadEntry", "ReadLibraryEntry"}:
        return []
    return [
        types.ResourceTemplate(
            name="entry",
            title="An entry of a session",
            uri_template=ENTRY_TEMPLATE,
            description="One entry with its text, as the reading tool gives it. 'session' and"
            " 'ref' are the 'session' and 'entry_ref' of a reply.",
            mime_type="application/json",
        )
    ]


def _read_entry(registry: Registry, captured: str, uri: str) -> ToolReply:
    """What the reading tool answers for the entry that a URI names."""
    scheme, _, rest = uri.partition("://")
    session, slash, ref = rest.rpartition("/")
    session, ref = unquote(session), unquote(ref)
    names = {tool.name for tool in registry.tools}
    if scheme == "session" and slash and ref:
        if session == captured and "ReadEntry" in names:
            return registry.call("ReadEntry", {"entry_ref": ref})
        if "ReadLibraryEntry" in names:
            return registry.call("ReadLibraryEntry", {"session": session, "entry_ref": ref})
    return ToolReply.of_error(NotFound("no such entry", hint=f"expected {ENTRY_TEMPLATE}"))


# ---------------------------------------------------------------- transports


def serve_stdio(server: McpServer) -> None:
    """Serves one client over stdin and stdout until stdin ends; stdout is the protocol's alone."""
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())

    anyio.run(serve)


def http_app(server: McpServer) -> Starlette:
    """The server as a web application. It holds nothing of a client between two requests, and
    refuses requests whose `Host` or `Origin` is not of this machine."""
    return server.streamable_http_app(
        streamable_http_path=PATH, stateless_http=True, json_response=True, host=LOOPBACK,
        max_request_body_size=REQUEST_BYTES,
    )  # fmt: skip


def serve_http(server: McpServer, *, port: int, announce: Callable[[str], None]) -> None:
    """Serves clients of this machine over HTTP until the process is interrupted.

    `announce` is told the address once it accepts connections; port 0 takes a free one.

    Raises:
        Failed: the port cannot be used.
    """
    import uvicorn

    config = uvicorn.Config(
        http_app(server), log_config=None, access_log=False, timeout_graceful_shutdown=5
    )
    with bind(port=port) as listening:
        announce(url_of(listening) + PATH)
        uvicorn.Server(config).run(sockets=[listening])
