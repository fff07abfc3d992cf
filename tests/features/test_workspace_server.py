"""The workspace server over a real connection on loopback, with plain httpx and with our client."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessiondex.errors import Failed, InvalidArgument, NotFound, Stale
from sessiondex.features.listening import bind, url_of
from sessiondex.features.local_sessions import LocalAgentSessions
from sessiondex.features.rates import Rate, Rates
from sessiondex.features.reachable_sessions import ReachableSessions
from sessiondex.features.staging.folder import StagingFolder
from sessiondex.features.staging.record import StagingRecord
from sessiondex.features.state import State, subject_not_found
from sessiondex.features.subjects import runtime_worker, sub_worker
from sessiondex.features.tokens import TokenRows
from sessiondex.features.worker_rows import ACTIVE_MS, WorkerRows
from sessiondex.features.workspace_client import WorkspaceClient
from sessiondex.features.workspace_provider import WorkspaceClientWorkerObservationProvider
from sessiondex.features.workspace_routes import WorkspaceServices
from sessiondex.features.workspace_server import (
    BODY_BYTES,
    CALLER_RATE,
    STRANGER_RATE,
    json_log,
    serving,
    workspace_app,
)
from sessiondex.indexer.capture import Capture
from sessiondex.indexer.library import Library
from sessiondex.model import EntryRef
from tests.builders import (
    Clock,
    claude_assistant,
    claude_path,
    claude_user,
    conversation,
    index,
    write_lines,
)
from tests.features.extract_runs import Host
from tests.query.made_sessions import SECRET

SESSION = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
ADA = runtime_worker("forge", "ada")
BOB = runtime_worker("forge", "bob")

LISTING = "/api/w/mill/worker-observation/sessions"
CAPTURING = "/api/w/mill/worker-observation/session"
WORKERS = "/api/w/mill/workers"
BACKEND = "/api/w/mill/memory/backend"


def token_of(name: str) -> str:
    return f"token-of-{name}-0123456789"


class Workshop:
    """A server over a library of two sessions, its state, and who may ask it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = Clock()
        self.ticks = 0.0
        self.path = claude_path(home, SESSION)
        write_lines(self.path, conversation(3))
        write_lines(claude_path(home, OTHER), conversation(1, word="other"))
        self.library = Library.in_memory()
        index(self.library, home)
        self.state = State.open(None)
        self.tokens = TokenRows(self.state)
        self.rows = WorkerRows(self.state)
        self.staging = StagingFolder(home / "staging")
        self.log = io.StringIO()
        self.reached: list[str] = []
        self.while_reaching: Any = None
        self._reachable = ReachableSessions(self.library, clock=self.clock)
        for name, role, workspace in (
            ("olga", "user", "mill"), ("otto", "user", "mill"), ("forge", "runtime", "mill"),
            ("anvil", "runtime", "mill"), ("eve", "user", "attic"), ("loft", "runtime", "attic"),
        ):  # fmt: skip
            self.tokens.add(token_of(name), name=name, role=role, workspace=workspace, now=1)  # type: ignore[arg-type]
        self.url = ""
        self._http = httpx.Client(trust_env=False, verify=False)

    def close(self) -> None:
        self._http.close()
        self.state.close()

    def reach(self, session: str) -> Capture:
        self.reached.append(session)
        capture = self._reachable.capture(session)
        if self.while_reaching is not None:
            self.while_reaching()
        return capture

    @property
    def now(self) -> int:
        return int(self.clock.now * 1000)

    def app(self) -> Any:
        services = WorkspaceServices(
            state=self.state, reach=self.reach, staging=self.staging, clock=self.clock
        )
        return workspace_app(services, log=json_log(self.log), monotonic=lambda: self.ticks)

    def ask(
        self, method: str, path: str, *, by: str = "olga", body: Any = None, **more: Any
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {token_of(by)}"} if by else {}
        content = None if body is None else json.dumps(body)
        return self._http.request(
            method, self.url + path, headers={**headers, **more.pop("headers", {})},
            **({"content": content} | more),
        )  # fmt: skip

    def report(
        self, *, by: str = "forge", workspace: str = "mill", **worker: Any
    ) -> httpx.Response:
        reported = {"worker_id": "ada", "session": SESSION, "status": "running"} | worker
        path = f"/api/w/{workspace}/workers"
        return self.ask("POST", path, by=by, body={"workers": [reported]})

    def grant(self, observer: str = "olga", subject: Any = ADA) -> None:
        self.state.add_grant(observer, subject, now=self.now, workspace="mill")

    def revoke(self, observer: str = "olga", subject: Any = ADA) -> None:
        self.state.remove_grant(observer, subject, now=self.now, workspace="mill")

    def listed(self, by: str = "olga") -> list[str]:
        reply = self.ask("GET", LISTING, by=by)
        assert reply.status_code == 200, reply.text
        return [each["subject"]["worker_id"] for each in reply.json()["sessions"]]

    def session(self, subject: Any = ADA, *, by: str = "olga", **held: Any) -> httpx.Response:
        return self.ask("POST", CAPTURING, by=by, body={"subject": subject.model_dump(), **held})

    def client(self, by: str = "olga", workspace: str = "mill") -> Any:
        return closing(WorkspaceClient(self.url, workspace=workspace, token=token_of(by)))

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@contextmanager
def opened(home: Path) -> Generator[Workshop]:
    shop = Workshop(home)
    with serving(shop.app()) as shop.url:
        yield shop
    shop.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with opened(tmp_path) as made:
        yield made


def whole(reply: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
    """Everything that a caller can see of a reply."""
    return reply.status_code, sorted(reply.headers.multi_items()), reply.content


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong-token-0123456789", "Basic b2xnYTp4",
     token_of("olga"), f"Token {token_of('olga')}"],
)  # fmt: skip
def test_without_a_valid_token_every_request_is_told_401_and_nothing_else(
    shop: Workshop, authorization: str | None
) -> None:
    shop.report()
    shop.grant()
    headers = {} if authorization is None else {"authorization": authorization}
    seen = {
        json.dumps(whole(shop.ask(method, path, by="", headers=headers)), default=str)
        for method, path in [
            ("GET", LISTING), ("POST", CAPTURING), ("POST", WORKERS), ("POST", BACKEND),
            ("GET", "/api/w/nowhere/worker-observation/sessions"), ("GET", "/"),
            ("DELETE", LISTING), ("POST", WORKERS + "/"),
        ]
    }  # fmt: skip
    assert len(seen) == 1
    reply = shop.ask("GET", LISTING, by="", headers=headers)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"


def test_a_revoked_token_is_a_strangers_at_the_next_call(shop: Workshop) -> None:
    assert shop.listed() == []
    shop.tokens.revoke("olga", workspace="mill", now=shop.now)
    assert shop.ask("GET", LISTING).status_code == 401


def test_a_token_is_named_without_regard_to_the_case_of_its_scheme(shop: Workshop) -> None:
    headers = {"authorization": f"bearer {token_of('olga')}"}
    assert shop.ask("GET", LISTING, by="", headers=headers).status_code == 200


# ---------------------------------------------------------------- one and the same 404


def test_what_is_missing_and_what_is_forbidden_get_byte_identical_replies(shop: Workshop) -> None:
    shop.report()
    shop.report(worker_id="gone", session="no-such-session")
    shop.report(worker_id="stopped", status="stopped")
    shop.report(worker_id="away", by="loft", workspace="attic")
    shop.grant("otto", ADA)
    for runtime, name in (("forge", "gone"), ("forge", "stopped"), ("forge", "never-was"),
                          ("loft", "away")):  # fmt: skip
        shop.grant("olga", runtime_worker(runtime, name))
    replies = {
        "not granted": shop.session(ADA),
        "never there": shop.session(runtime_worker("forge", "nobody")),
        "granted, never there": shop.session(runtime_worker("forge", "never-was")),
        "its session is gone": shop.session(runtime_worker("forge", "gone")),
        "stopped": shop.session(runtime_worker("forge", "stopped")),
        "of another workspace": shop.session(runtime_worker("loft", "away")),
        "no worker of a runtime": shop.session(sub_worker("kid")),
        "another workspace": shop.ask("GET", LISTING, by="eve"),
        "no workspace": shop.ask("GET", LISTING.replace("mill", "nowhere")),
        "a runtime that observes": shop.ask("GET", LISTING, by="forge"),
        "a user that reports": shop.report(by="olga"),
        "another workspace's runtime": shop.report(by="loft"),
        "no such route": shop.ask("GET", "/api/w/mill/worker-observation"),
        "a trailing slash": shop.ask("GET", LISTING + "/"),
        "another method": shop.ask("PUT", CAPTURING, body={}),
        "the root": shop.ask("GET", "/"),
        "documentation": shop.ask("GET", "/docs"),
    }  # fmt: skip
    seen = {name: whole(reply) for name, reply in replies.items()}
    first = seen["not granted"]
    assert first[0] == 404
    assert {name for name, each in seen.items() if each != first} == set()
    assert shop.session(ADA, by="otto").status_code == 200


def test_another_workspaces_token_opens_nothing(shop: Workshop) -> None:
    shop.report()
    shop.state.add_grant("eve", ADA, now=shop.now, workspace="mill")
    for method, path, body in [
        ("GET", LISTING, None), ("POST", CAPTURING, {"subject": ADA.model_dump()}),
        ("POST", WORKERS, {}), ("POST", BACKEND, {}),
    ]:  # fmt: skip
        assert shop.ask(method, path, by="eve", body=body).status_code == 404
    assert shop.reached == []


# ---------------------------------------------------------------- workers and their list


def test_a_runtime_reports_its_workers_and_an_observer_lists_those_it_was_granted(
    shop: Workshop,
) -> None:
    body = {"workers": [
        {"worker_id": "ada", "session": SESSION, "status": "running", "display_name": "Ada"},
        {"worker_id": "bob", "session": OTHER, "status": "idle"},
    ]}  # fmt: skip
    reply = shop.ask("POST", WORKERS, by="forge", body=body)
    assert reply.json() == {"runtime_id": "forge", "reported": 2, "gone": 0}
    assert shop.listed() == []
    shop.grant("olga", ADA)
    reply = shop.ask("GET", LISTING).json()
    assert reply == {
        "sessions": [
            {"subject": {"kind": "runtime_worker", "runtime_id": "forge", "worker_id": "ada"},
             "display_name": "Ada", "relation": "workspace", "status": "running",
             "last_seen": shop.now}
        ],
        "has_more": False,
    }  # fmt: skip
    shop.grant("olga", BOB)
    assert sorted(shop.listed()) == ["ada", "bob"]


def test_a_runtime_can_speak_for_no_other(shop: Workshop) -> None:
    body = {"workers": [{"worker_id": "ada", "session": SESSION, "status": "idle",
                         "runtime_id": "forge"}]}  # fmt: skip
    assert "runtime_id" in shop.ask("POST", WORKERS, by="anvil", body=body).text
    shop.report()
    shop.report(by="anvil", session=OTHER)
    shop.ask("POST", WORKERS, by="anvil", body={"gone": ["ada"]})
    shop.grant("olga", ADA)
    assert shop.listed() == ["ada"]
    assert shop.session(ADA).json()["session"] == SESSION


def test_workers_are_listed_newest_first_and_vanish_when_they_are_not_reported(
    shop: Workshop,
) -> None:
    for name in ("one", "two", "three"):
        shop.report(worker_id=name)
        shop.grant("olga", runtime_worker("forge", name))
        shop.clock.now += 1
    assert shop.listed() == ["three", "two", "one"]
    shop.report(worker_id="one")
    assert shop.listed() == ["one", "three", "two"]
    shop.clock.now += ACTIVE_MS / 1000 - 1
    assert shop.listed() == ["one"]
    shop.report(worker_id="one", status="stopped")
    assert shop.listed() == []
    shop.report(worker_id="two")
    shop.ask("POST", WORKERS, by="forge", body={"gone": ["two", "never-was"]})
    assert shop.listed() == []


def test_a_list_holds_a_hundred_and_says_that_there_are_more(shop: Workshop) -> None:
    shop.rows.set_orchestrator("mill", "olga")
    workers = [{"worker_id": f"w{n}", "session": SESSION, "status": "idle"} for n in range(100)]
    assert shop.ask("POST", WORKERS, by="forge", body={"workers": workers}).status_code == 200
    reply = shop.ask("GET", LISTING).json()
    assert (len(reply["sessions"]), reply["has_more"]) == (100, False)
    shop.report(worker_id="one-more")
    reply = shop.ask("GET", LISTING).json()
    assert (len(reply["sessions"]), reply["has_more"]) == (100, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"workers": [{"worker_id": "a", "session": "s", "status": "busy"}]}, "status"),
        ({"workers": [{"worker_id": "", "session": "s", "status": "idle"}]}, "worker_id"),
        ({"workers": [{"worker_id": "a" * 201, "session": "s", "status": "idle"}]}, "worker_id"),
        ({"workers": [{"worker_id": "a", "session": "", "status": "idle"}]}, "session"),
        ({"workers": [{"worker_id": "a", "session": "s", "status": "idle", "path": "/x"}]}, "path"),
        ({"workers": [{"worker_id": "a", "session": "s", "status": "idle"}] * 101}, "workers"),
        ({"grants": []}, "grants"),
        ([], "malformed"),
    ],
)
def test_a_malformed_report_is_refused_with_the_field(shop: Workshop, body: Any, said: str) -> None:
    reply = shop.ask("POST", WORKERS, by="forge", body=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["kind"] == "invalid_argument"
    assert said in reply.text


def test_a_runtime_may_not_take_the_name_of_local_sessions(shop: Workshop) -> None:
    shop.tokens.add(token_of("local"), name="local:claude-code", role="runtime", workspace="mill",
                    now=1)  # fmt: skip
    assert shop.report(by="local").status_code == 400


# ---------------------------------------------------------------- who may observe


def test_the_current_orchestrator_may_observe_every_active_worker(shop: Workshop) -> None:
    shop.report()
    shop.report(worker_id="bob", session=OTHER)
    assert shop.listed() == [] and shop.session(ADA).status_code == 404
    shop.rows.set_orchestrator("mill", "olga")
    assert sorted(shop.listed()) == ["ada", "bob"] and shop.session(BOB).status_code == 200
    shop.rows.set_orchestrator("mill", "otto")
    assert shop.listed() == [] and shop.session(BOB).status_code == 404
    assert sorted(shop.listed(by="otto")) == ["ada", "bob"]
    shop.rows.set_orchestrator("mill", None)
    assert shop.listed(by="otto") == []


def test_an_orchestrator_of_another_workspace_is_none_here(shop: Workshop) -> None:
    shop.report()
    shop.rows.set_orchestrator("attic", "olga")
    shop.tokens.add(token_of("eve2"), name="olga", role="user", workspace="attic", now=1)
    assert shop.listed() == []
    assert shop.ask("GET", LISTING.replace("mill", "attic"), by="eve2").json()["sessions"] == []


def test_a_revoked_grant_is_gone_at_the_next_call(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    assert shop.session().status_code == 200
    shop.revoke()
    assert shop.session().status_code == 404 and shop.listed() == []


def test_a_grant_that_is_revoked_while_the_session_is_fetched_shows_nothing(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    shop.while_reaching = shop.revoke
    assert shop.session().status_code == 404
    assert shop.reached == [SESSION]


def test_a_worker_that_moves_on_while_it_is_fetched_shows_nothing(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    shop.while_reaching = lambda: shop.report(session=OTHER)
    assert shop.session().status_code == 404


# ---------------------------------------------------------------- captures


def test_a_capture_is_the_sessions_committed_entries(shop: Workshop) -> None:
    shop.clock.now = shop.path.stat().st_mtime + 1
    shop.report()
    shop.grant()
    reply = shop.session().json()
    assert {"segment_id", "capture", "entries"} <= set(reply)
    assert reply["segment_id"] == SESSION
    assert reply["entries"][0]["text"] == "please check the spindle number 0"
    assert "secret thought" not in json.dumps(reply)
    with open(shop.path, "a", encoding="utf-8") as file:
        file.write(json.dumps(claude_user("not finished", 99)))
    assert "not finished" not in shop.session().text


def test_a_request_that_names_what_it_holds_gets_only_what_follows(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    first = shop.session().json()
    count = len(first["entries"])
    held = {"generation": first["generation"], "count": count}
    assert shop.session(**held).json()["entries"] == []
    write_lines(shop.path, [claude_assistant("one more answer", 50)], append=True)
    reply = shop.session(**held).json()
    assert reply["first"] == count
    assert [entry["text"] for entry in reply["entries"]] == ["one more answer"]
    assert reply["capture"] != first["capture"]


def test_a_rewritten_session_is_sent_anew(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    first = shop.session().json()
    write_lines(shop.path, [*conversation(1), claude_user("other words", 60)])
    reply = shop.session(generation=first["generation"], count=len(first["entries"])).json()
    assert reply["generation"] == first["generation"] + 1
    assert reply.get("first", 0) == 0
    assert reply["entries"][-1]["text"] == "other words"


def test_secrets_do_not_leave_the_server(shop: Workshop) -> None:
    write_lines(shop.path, [claude_user(f"the key is {SECRET}", 40)], append=True)
    shop.report()
    shop.grant()
    reply = shop.session()
    assert SECRET not in reply.text
    assert reply.json()["entries"][-1]["text"] == "the key is [REDACTED:github_token]"


@pytest.mark.parametrize("session", [SESSION[:8], "path", ""])
def test_a_worker_row_names_a_session_by_its_whole_id_only(shop: Workshop, session: str) -> None:
    named = str(shop.path) if session == "path" else session
    shop.report(session=named)
    shop.grant()
    assert shop.session().status_code == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "subject"),
        ({"subject": {"kind": "runtime_worker", "runtime_id": "forge"}}, "worker_id"),
        ({"subject": {"kind": "path", "path": "/etc"}}, "subject"),
        ({"subject": ADA.model_dump() | {"url": "http://x"}}, "url"),
        ({"subject": ADA.model_dump(), "observer": "otto"}, "observer"),
        ({"subject": ADA.model_dump(), "count": -1}, "count"),
        ({"subject": ADA.model_dump(), "count": "1"}, "count"),
        (None, "malformed"),
    ],
)
def test_a_malformed_request_is_refused_with_the_field(
    shop: Workshop, body: Any, said: str
) -> None:
    shop.report()
    shop.grant()
    reply = shop.ask("POST", CAPTURING, body=body)
    assert reply.status_code == 400
    assert said in reply.text


def test_a_session_whose_file_is_gone_is_served_from_the_library(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    before = shop.session().json()
    shop.path.unlink()
    assert shop.session().json()["entries"] == before["entries"]


def test_an_active_session_that_is_in_no_library_yet_can_be_reached(tmp_path: Path) -> None:
    path = claude_path(tmp_path, SESSION)
    write_lines(path, conversation(1))
    clock = Clock(path.stat().st_mtime + 5)
    local = LocalAgentSessions([tmp_path / ".claude" / "projects"], clock=clock)
    sessions = ReachableSessions(Library.in_memory(), clock=clock, local=local)
    assert sessions.capture(SESSION).entry_count == 4
    for name in (OTHER, SESSION[:8], str(path)):
        with pytest.raises(NotFound):
            sessions.capture(name)
    clock.now += 10_000
    with pytest.raises(NotFound):
        sessions.capture(SESSION)


def test_a_capture_costs_the_new_bytes_of_its_file(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.report()
    shop.grant()
    shop.session()
    write_lines(shop.path, [claude_assistant("one more answer", 50)], append=True)
    size = shop.path.stat().st_size
    shop.session()
    write_lines(shop.path, [claude_assistant("another answer", 51)], append=True)
    offsets: list[int] = []
    import sessiondex.indexer.sources.lines as lines

    real = lines.read_values

    def watched(source: Any, **options: Any) -> Any:
        offsets.append(options.get("offset", 0))
        return real(source, **options)

    monkeypatch.setattr(lines, "read_values", watched)
    assert shop.session().json()["entries"][-1]["text"] == "another answer"
    assert offsets and min(offsets) >= size


# ---------------------------------------------------------------- the client as a provider


def provider_of(client: WorkspaceClient) -> WorkspaceClientWorkerObservationProvider:
    return WorkspaceClientWorkerObservationProvider(client, clock=Clock())


def test_the_client_lists_and_captures_like_any_provider(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    with shop.client() as client:
        provider = provider_of(client)
        (listed,) = provider.list_sessions().subjects
        assert (listed.subject, listed.status, listed.relation) == (ADA, "running", "workspace")
        capture = provider.capture(ADA)
        there = shop.library.capture(SESSION)
        assert (capture.entry_count, capture.record_count) == (
            there.entry_count, there.record_count
        )  # fmt: skip
        write_lines(shop.path, [claude_assistant("one more answer", 50)], append=True)
        grown = provider.capture(ADA)
        assert grown.entry_count == capture.entry_count + 1
        assert grown.text(grown.entry(grown.entry_count - 1)) == b"one more answer"
        shop.revoke()
        with pytest.raises(NotFound) as caught:
            provider.capture(ADA)
        assert caught.value.to_json() == subject_not_found().to_json()


def test_a_grant_that_is_revoked_between_two_pages_shows_no_more(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessiondex.features.workspace_wire.PAGE_ENTRIES", 3)
    shop.report()
    shop.grant()
    with shop.client() as client:
        provider = provider_of(client)
        whole = provider.capture(ADA)
        assert (len(shop.reached), whole.entry_count) == (4, 12)
        provider = provider_of(client)
        shop.while_reaching = lambda: len(shop.reached) == 6 and shop.revoke()
        with pytest.raises(NotFound):
            provider.capture(ADA)
    assert len(shop.reached) == 6


def test_refs_of_a_session_that_was_rewritten_are_stale_over_http_too(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    with shop.client() as client:
        provider = provider_of(client)
        before = provider.capture(ADA)
        write_lines(shop.path, [*conversation(1), claude_user("other words", 60)])
        after = provider.capture(ADA)
        after.admit(before.token, [EntryRef(1)])
        with pytest.raises(Stale):
            after.admit(before.token, [EntryRef(7)])


def test_a_wrong_token_and_a_server_that_is_gone_are_failures(shop: Workshop) -> None:
    with closing(WorkspaceClient(shop.url, workspace="mill", token="x" * 20)) as client:
        with pytest.raises(Failed, match="token"):
            provider_of(client).list_sessions()
        with pytest.raises(Failed, match="token"):
            provider_of(client).capture(ADA)
    with bind() as listening:
        address = url_of(listening)
    client = WorkspaceClient(address, workspace="mill", token="x" * 20)
    with closing(client), pytest.raises(Failed, match="cannot be reached"):
        provider_of(client).list_sessions()


def test_a_runtime_reports_through_the_client(shop: Workshop) -> None:
    shop.grant()
    with shop.client("forge") as client:
        client.report_workers([{"worker_id": "ada", "session": SESSION, "status": "idle"}])
        assert shop.listed() == ["ada"]
        client.report_workers([], gone=["ada"])
        assert shop.listed() == []
        with pytest.raises(InvalidArgument, match="status"):
            client.report_workers([{"worker_id": "ada", "session": SESSION, "status": "dead"}])


@pytest.mark.parametrize(
    "url", ["", "mill", "ftp://mill", "file:///etc", "http://", "http://ada:pw@mill", "http://[::"]
)
def test_an_address_that_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        WorkspaceClient(url, workspace="mill", token="x" * 20)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "schlüssel"])
def test_a_token_that_cannot_be_sent_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgument):
        WorkspaceClient("http://127.0.0.1:1", workspace="mill", token=token)


def answering(status: int, content: bytes = b"{}", **headers: str) -> WorkspaceClient:
    """A client of a server that answers everything alike."""
    transport = httpx.MockTransport(
        lambda request: httpx.Response(status, content=content, headers=headers)
    )
    return WorkspaceClient("http://mill", workspace="mill", token="x" * 20, transport=transport)


@pytest.mark.parametrize(
    "status", [201, 301, 307, 400, 401, 403, 409, 413, 418, 422, 429, 500, 503]
)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"sessions": 3}'])
def test_whatever_a_server_answers_is_a_failure_of_the_provider_alone(
    status: int, content: bytes
) -> None:
    with closing(answering(status, content, location="http://elsewhere/")) as client:
        with pytest.raises(Failed):
            provider_of(client).list_sessions()
        with pytest.raises(Failed):
            provider_of(client).capture(ADA)


def test_an_endless_reply_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessiondex.features.workspace_client.REPLY_BYTES", 1_000)
    with closing(answering(200, b" " * 1_001)) as client, pytest.raises(Failed, match="1000 bytes"):
        client.list_sessions()


def test_a_reply_that_trickles_in_is_given_up() -> None:
    times = iter([0.0, 30.0, 61.0])
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, content=iter([b"{", b" ", b"}"]))
    )
    client = WorkspaceClient("http://mill", workspace="mill", token="x" * 20, transport=transport,
                             monotonic=lambda: next(times))  # fmt: skip
    with closing(client), pytest.raises(Failed, match="too long"):
        client.list_sessions()


# ---------------------------------------------------------------- staging


def staged(count: int = 1) -> list[StagingRecord]:
    host = Host()
    for n in range(count):
        host.stage(f"Claim number {n} is true.")
    return list(host.shelf.records.values())


@pytest.mark.parametrize("by", ["olga", "forge"])
def test_a_run_stages_over_http_into_the_folder_of_the_workspace(shop: Workshop, by: str) -> None:
    with shop.client(by) as client:
        host = Host(backend=client)
        reply = host.stage()
        host.stage()
        assert host.finish(staged_count=1)["sealed"] is True
    (record,) = shop.staging.waiting().records
    assert record.id == reply["id"]
    assert record.is_same(host.run.staged[0])


def test_the_same_record_once_more_is_kept_once(shop: Workshop) -> None:
    (record,) = staged()
    with shop.client() as client:
        client.stage(record)
        client.stage(record)
        assert len(shop.staging.waiting().records) == 1
        with pytest.raises(InvalidArgument, match="another record has the id"):
            client.stage(record.model_copy(update={"claim": "Something else."}))


def test_the_reply_names_the_record_that_is_kept(shop: Workshop) -> None:
    (record,) = staged()
    body = {"operation": "stage_candidate", "record": record.to_json()}
    reply = shop.ask("POST", BACKEND, body=body)
    assert reply.json() == {"ok": True, "operation": "stage_candidate", "id": record.id}
    conflict = body | {"record": record.to_json() | {"claim": "Something else."}}
    reply = shop.ask("POST", BACKEND, body=conflict)
    assert (reply.status_code, reply.json()["ok"]) == (200, False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"operation": "delete"}, "operation"),
        ({"record": {}}, "schema_version|id|Field required"),
        ({"record": {"schema_version": 1}}, "schema_version"),
        ({"path": "/x"}, "path"),
        ({"record": None}, "record"),
    ],
)
def test_what_is_no_candidate_is_the_callers_error(
    shop: Workshop, change: dict[str, Any], said: str
) -> None:
    (record,) = staged()
    body = {"operation": "stage_candidate", "record": record.to_json()} | change
    reply = shop.ask("POST", BACKEND, body=body)
    assert reply.status_code == 400
    assert any(word in reply.text for word in said.split("|"))
    assert shop.staging.waiting().records == []


def test_a_record_with_a_secret_is_masked_before_it_is_kept(shop: Workshop) -> None:
    (record,) = staged()
    with shop.client() as client:
        client.stage(record.model_copy(update={"claim": f"Use {SECRET}."}))
    assert shop.staging.show(record.id).claim == "Use [REDACTED:github_token]."


def test_a_disk_that_fails_is_no_error_of_the_caller_and_names_no_path(shop: Workshop) -> None:
    (shop.home / "staging").write_text("a file")
    (record,) = staged()
    body = {"operation": "stage_candidate", "record": record.to_json()}
    reply = shop.ask("POST", BACKEND, body=body)
    assert reply.status_code == 503
    assert str(shop.home) not in reply.text
    with shop.client() as client, pytest.raises(Failed):
        client.stage(record)


@pytest.mark.parametrize(
    ("status", "content", "error"),
    [
        (400, b'{"error":{"message":"no such segment"}}', InvalidArgument),
        (422, b'{"message":"no such segment"}', InvalidArgument),
        (200, b'{"ok":false,"error":{"message":"no such segment"}}', InvalidArgument),
        (200, b'{"status":"rejected","reason":"no such segment"}', InvalidArgument),
        (200, b'{"error":"no such segment"}', InvalidArgument),
        (200, b'{"ok":true,"id":"another"}', Failed),
        (200, b"{}", Failed),
        (200, b"", Failed),
        (401, b"{}", Failed),
        (404, b"{}", Failed),
        (409, b'{"error":"x"}', Failed),
        (429, b"{}", Failed),
        (500, b'{"error":"x"}', Failed),
    ],
)
def test_only_a_rejection_of_the_backend_is_the_callers_error(
    status: int, content: bytes, error: type[Exception]
) -> None:
    (record,) = staged()
    with closing(answering(status, content)) as client, pytest.raises(error) as caught:
        client.stage(record)
    if error is InvalidArgument:
        assert "no such segment" in str(caught.value)


def test_a_backend_that_fails_leaves_the_candidate_to_be_staged_again(
    shop: Workshop,
) -> None:
    (record,) = staged()
    with shop.client() as client:
        host = Host(backend=client)
        (shop.home / "staging").write_text("a file")
        assert host.stage()["error"]["class"] == "failed"
        (shop.home / "staging").unlink()
        assert host.stage()["staged_count"] == 1
    assert record.id in [each.id for each in shop.staging.waiting().records]


# ---------------------------------------------------------------- limits


def test_a_body_above_its_bound_is_refused(shop: Workshop) -> None:
    reply = shop.ask("POST", BACKEND, content=b" " * (BODY_BYTES + 1))
    assert reply.status_code == 413
    pieces = (b" " * 65_536 for _ in range(BODY_BYTES // 65_536 + 1))
    assert shop.ask("POST", BACKEND, content=pieces).status_code == 413
    assert shop.ask("POST", BACKEND, content=b" " * BODY_BYTES).status_code == 400


def test_the_largest_record_passes_also_when_its_text_is_escaped(shop: Workshop) -> None:
    (record,) = staged()
    evidence = record.evidence[0].model_copy(update={"excerpt": "日" * 20_000})
    large = record.model_copy(update={"evidence": [evidence]})
    assert 60_000 < len(large.to_bytes()) < 65_536
    body = {"operation": "stage_candidate", "record": large.to_json()}
    reply = shop.ask("POST", BACKEND, content=json.dumps(body, ensure_ascii=True).encode())
    assert reply.json()["ok"] is True


def test_a_request_that_does_not_arrive_in_time_is_given_up(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessiondex.features.workspace_server.BODY_SECONDS", 0.01)
    with connected(shop) as connection:
        connection.sendall(head_of(BACKEND, length=100) + b"half")
        connection.settimeout(10)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 408 ")


def connected(shop: Workshop) -> socket.socket:
    host, _, port = shop.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)))


def head_of(path: str, *, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token_of('olga')}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def test_a_caller_that_asks_too_often_waits_and_hinders_no_other(shop: Workshop) -> None:
    headers = {"authorization": f"Bearer {token_of('olga')}"}
    with httpx.Client(trust_env=False, headers=headers) as client:
        statuses = [
            client.get(shop.url + LISTING).status_code for _ in range(CALLER_RATE.burst + 1)
        ]
        assert statuses == [200] * CALLER_RATE.burst + [429]
        reply = client.get(shop.url + LISTING)
        assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
        assert shop.listed(by="otto") == []
        shop.ticks += 0.1
        assert [client.get(shop.url + LISTING).status_code for _ in range(6)] == [200] * 5 + [429]


def test_a_stranger_that_guesses_tokens_is_slowed_down_and_hinders_no_caller(
    shop: Workshop,
) -> None:
    guesses = [
        shop.ask("GET", LISTING, by="", headers={"authorization": f"Bearer guess-{n:032}"})
        for n in range(STRANGER_RATE.burst + 1)
    ]
    assert [reply.status_code for reply in guesses] == [401] * STRANGER_RATE.burst + [429]
    assert shop.listed() == []


def test_rates_forget_the_keys_that_asked_longest_ago() -> None:
    now = 0.0
    rates = Rates(Rate(1, 1), monotonic=lambda: now, kept_keys=2)
    assert [rates.wait_seconds(key) for key in ("a", "a", "b", "c", "a")] == [0, 1, 0, 0, 0]


def test_a_port_that_is_taken_is_a_failure() -> None:
    with bind() as listening, pytest.raises(Failed, match="cannot be used"):
        bind(port=listening.getsockname()[1])
    with pytest.raises(Failed):
        bind(port=70_000)


def test_the_server_listens_on_loopback_unless_told_otherwise() -> None:
    with bind() as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        assert url_of(listening).startswith("http://127.0.0.1:")


# ---------------------------------------------------------------- the log


def test_the_log_says_who_asked_for_what_and_nothing_of_what_was_said(shop: Workshop) -> None:
    shop.report()
    shop.grant()
    shop.session()
    shop.ask("GET", "/api/w/mill/please check the spindle", by="otto")
    shop.ask("GET", LISTING, by="", headers={"authorization": "Bearer guessed-token-0123456789"})
    (record,) = staged()
    shop.ask("POST", BACKEND, body={"operation": "stage_candidate", "record": record.to_json()})
    lines = shop.log_lines()
    assert [(line["route"], line["caller"], line["role"], line["status"]) for line in lines] == [
        ("workers", "forge", "runtime", 200),
        ("worker-observation/session", "olga", "user", 200),
        ("", "otto", "user", 404),
        ("worker-observation/sessions", "", "", 401),
        ("memory/backend", "olga", "user", 200),
    ]
    assert set(lines[1]) == {
        "time", "method", "route", "workspace", "caller", "role", "status", "error", "bytes",
        "milliseconds",
    }  # fmt: skip
    written = shop.log.getvalue()
    for secret in ("spindle", "Claim", "token-of", "guessed"):
        assert secret not in written


def test_a_fault_of_the_server_is_told_to_its_log_and_not_to_the_caller(shop: Workshop) -> None:
    shop.report()
    shop.grant()

    def fault() -> None:
        raise ZeroDivisionError("please check the spindle")

    shop.while_reaching = fault
    reply = shop.session()
    assert (reply.status_code, reply.json()["error"]["class"]) == (500, "internal")
    assert "spindle" not in reply.text
    assert shop.log_lines()[-1]["error"] == "ZeroDivisionError"
    assert "spindle" not in shop.log.getvalue()


# ---------------------------------------------------------------- everything at once


def test_a_grant_that_comes_and_goes_shows_the_session_only_while_it_stands(
    shop: Workshop,
) -> None:
    shop.report()
    is_over = threading.Event()
    statuses: set[int] = set()

    def ask() -> None:
        headers = {"authorization": f"Bearer {token_of('olga')}"}
        with httpx.Client(trust_env=False, headers=headers) as client:
            while not is_over.is_set():
                body = {"subject": ADA.model_dump()}
                statuses.add(client.post(shop.url + CAPTURING, json=body).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(20):
            shop.grant()
            shop.session()
            shop.revoke()
            assert shop.session().status_code == 404
    finally:
        is_over.set()
        thread.join(30)
    assert statuses <= {200, 404, 429}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["subject", "kind", "runtime_id", "worker_id", "name", "generation",
                         "count", "workers", "gone", "session", "status", "operation", "record"]),
        inner, max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from([LISTING, CAPTURING, WORKERS, BACKEND, "/api/w/mill/%00", "/%ff"]),
            st.sampled_from(["olga", "forge", "eve", ""]),
            JSON.map(json.dumps).map(str.encode) | st.binary(max_size=20),
        ),
        max_size=4,
    )
)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_body_on_any_route_gets_one_of_few_statuses(
    fuzzed: Workshop, requests: list[tuple[str, str, bytes]]
) -> None:
    for path, by, content in requests:
        reply = fuzzed.ask("POST", path, by=by, content=content)
        assert reply.status_code in {200, 400, 401, 404, 429}
        assert isinstance(reply.json(), dict)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with opened(tmp_path_factory.mktemp("fuzzed")) as made:
        made.rows.set_orchestrator("mill", "olga")
        yield made


def test_a_request_that_is_cut_off_leaves_the_server_serving(shop: Workshop) -> None:
    with connected(shop) as connection:
        connection.sendall(head_of(BACKEND, length=100) + b"half")
    assert shop.listed() == []
