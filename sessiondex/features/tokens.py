"""Bearer tokens of a workspace server: who may ask, and as whom. Only digests are kept."""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple, get_args

from sessiondex.errors import InvalidArgument, NotFound
from sessiondex.features.state import State, checked_name, condition

TokenRole = Literal["user", "runtime"]


class Token(NamedTuple):
    """Who a bearer token stands for. The token itself is not kept."""

    workspace: str
    name: str
    role: TokenRole
    created: int
    revoked: int | None


class TokenRows:
    """The tokens in a state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def add(self, secret: str, *, name: str, role: TokenRole, workspace: str, now: int) -> Token:
        """Keeps the digest of a bearer token that the caller made, at random.

        Raises:
            InvalidArgument: the name has a token in force already, or a value is malformed.
        """
        if role not in get_args(TokenRole):
            raise InvalidArgument(f"unknown role {role!r}", hint="expected user or runtime")
        if len(secret) < 16:
            raise InvalidArgument("the token is too short", hint="give at least 16 characters")
        place = checked_name(workspace, "workspace")
        row = (_digest(secret), place, checked_name(name, "name"), role, now)
        with self._state.transaction() as db:
            if db.execute(
                "SELECT 1 FROM tokens WHERE workspace=? AND name=? AND revoked IS NULL", row[1:3]
            ).fetchone():
                raise InvalidArgument(
                    f"{name!r} has a token in workspace {workspace!r} already",
                    hint="revoke it first, or choose another name",
                )
            if db.execute("SELECT 1 FROM tokens WHERE digest=?", row[:1]).fetchone():
                raise InvalidArgument("the token was used before", hint="make a new one")
            db.execute(
                "INSERT INTO tokens (digest,workspace,name,role,created) VALUES (?,?,?,?,?)", row
            )
        return Token(workspace, name, role, now, None)

    def find(self, secret: str) -> Token | None:
        """Who a bearer token stands for; None for one that is unknown or revoked."""
        rows = self._state.rows(
            "SELECT workspace,name,role,created,revoked FROM tokens"
            " WHERE digest=? AND revoked IS NULL",
            (_digest(secret),),
        )
        return Token(*rows[0]) if rows else None

    def all(self, *, workspace: str | None = None, include_revoked: bool = False) -> list[Token]:
        """Tokens, the newest first."""
        where, values = condition(workspace=workspace)
        if not include_revoked:
            where += " AND revoked IS NULL"
        rows = self._state.rows(
            "SELECT workspace,name,role,created,revoked FROM tokens"
            f" WHERE {where} ORDER BY created DESC, name",
            values,
        )
        return [Token(*row) for row in rows]

    def revoke(self, name: str, *, workspace: str, now: int) -> None:
        """Revokes the token of a name.

        Raises:
            NotFound: there is none in force.
        """
        with self._state.transaction() as db:
            changed = db.execute(
                "UPDATE tokens SET revoked=? WHERE workspace=? AND name=? AND revoked IS NULL",
                (now, workspace, name),
            ).rowcount
        if not changed:
            raise NotFound("no such token is in force", hint="see 'sessiondex serve token list'")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
