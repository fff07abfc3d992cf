"""Listening sockets of the servers: on loopback, at a port that is free, unless told otherwise."""

from __future__ import annotations

import socket
from typing import Final

from sessiondex.errors import Failed

LOOPBACK: Final = "127.0.0.1"


def bind(*, host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        Failed: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without the protocol asyncio leaves Nagle's algorithm on: 40 ms a reply.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        raise Failed(
            f"{host} port {port} cannot be used: {error}", hint="choose another port"
        ) from error
    return listening


def url_of(listening: socket.socket) -> str:
    """The address of a socket, as a client names it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
