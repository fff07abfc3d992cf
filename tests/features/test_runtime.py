"""The worker runtime: spawn and restore, and what each worker may observe."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest

from sessiondex.errors import InvalidArgument, NotFound
from sessiondex.features.composite_provider import Member, serves_elsewhere, serves_local
from sessiondex.features.local_sessions import (
    LocalAgentObservationProvider,
    LocalAgentSessions,
    local_subject,
)
from sessiondex.features.observation import GrantBook
from sessiondex.features.registry import Registry
from sessiondex.features.runtime import (
    CreateWorkerRequest,
    WorkerHandle,
    WorkerRuntime,
    WorkerSpawnRequest,
    observer_name,
)
from sessiondex.features.services import Services
from sessiondex.features.state import State
from sessiondex.features.subjects import RuntimeWorker, Subject, runtime_worker, sub_worker
from sessiondex.features.worker_observation import DESCRIPTOR, PROVIDER, WorkerObservation
from tests.builders import Clock, claude_path, conversation, write_lines
from tests.features.made_workers import PATIENCE, Given, Talker, listed, talk

BOSS = observer_name("shop", "boss")


class Host:
    """A host with a runtime and a grant book; keeps the workers alive."""

    def __init__(self, **options: Any) -> None:
        self.state = State.open(None)
        self.created: list[CreateWorkerRequest] = []
        self.runtime = WorkerRuntime(
            "shop", make=self.make, grants=self.state, clock=Clock(), **options
        )
        self.handles: dict[str, WorkerHandle] = {}

    def make(self, request: CreateWorkerRequest, provider: Any, children: Any) -> Talker:
        self.created.append(request)
        return Talker(f"I am {request.worker_id}", "yes", session=request.worker_id)

    def begin(
        self, worker_id: str, *, how: str = "spawn", workspace: str = "w", enabled: bool = False,
        grants: tuple[RuntimeWorker, ...] = (), has_sub_workers: bool = False,
    ) -> WorkerHandle:  # fmt: skip
        request = WorkerSpawnRequest(
            worker_id=worker_id, workspace=workspace, has_sub_workers=has_sub_workers
        ).with_resolved_observation(enabled=enabled, grants=grants)
        begin = self.runtime.spawn if how == "spawn" else self.runtime.restore
        self.handles[worker_id] = begin(request)
        return self.handles[worker_id]

    def grant(self, *subjects: RuntimeWorker) -> tuple[RuntimeWorker, ...]:
        for subject in subjects:
            self.state.add_grant(BOSS, subject, now=1, workspace="w")
        return subjects


@pytest.fixture
def host():
    made = Host()
    yield made
    made.state.close()


def peer(name: str) -> RuntimeWorker:
    return runtime_worker("shop", name)


def seen_by(handle: WorkerHandle) -> list[Subject]:
    assert handle.provider is not None
    return sorted((each.subject for each in handle.provider.list_sessions().subjects), key=str)


def is_observed(handle: WorkerHandle, subject: Subject) -> bool:
    assert handle.provider is not None
    try:
        handle.provider.capture(subject)
    except NotFound:
        return False
    return True


# ---------------------------------------------------------------- the request


HOST_ONLY = ("resolved_worker_observation_enabled", "resolved_worker_observation_grants")


@pytest.mark.parametrize("name", [*HOST_ONLY, "_enabled", "_grants", "worker_observation_enabled",
                                  "worker_observation_grants"])  # fmt: skip
def test_input_that_names_a_host_only_field_is_refused(name: str) -> None:
    for value in (True, [], [{"kind": "runtime_worker", "runtime_id": "r", "worker_id": "w"}]):
        with pytest.raises(InvalidArgument, match=name):
            WorkerSpawnRequest.parse({"worker_id": "a", "workspace": "w", name: value})


def test_host_only_fields_stand_in_no_schema_and_no_serialization() -> None:
    request = WorkerSpawnRequest(worker_id="a", workspace="w").with_resolved_observation(
        enabled=True, grants=(peer("ada"),)
    )
    shown = json.dumps([
        WorkerSpawnRequest.model_json_schema(mode="validation"),
        WorkerSpawnRequest.model_json_schema(mode="serialization"),
        request.model_dump(),
        json.loads(request.model_dump_json()),
        [tool.schema() for tool in DESCRIPTOR.tools],
    ])  # fmt: skip
    assert "observation_enabled" not in shown
    assert "grants" not in shown
    assert '"ada"' not in shown


def test_a_request_of_a_client_grants_nothing() -> None:
    request = WorkerSpawnRequest.parse({"worker_id": "a", "workspace": "w"})
    assert request.resolved_worker_observation_enabled is False
    assert request.resolved_worker_observation_grants == ()


@pytest.mark.parametrize("value", [{}, {"worker_id": "a"}, {"worker_id": "", "workspace": "w"},
                                   {"worker_id": "a" * 201, "workspace": "w"},
                                   {"worker_id": 1, "workspace": "w"}])  # fmt: skip
def test_a_malformed_request_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="malformed spawn request"):
        WorkerSpawnRequest.parse(value)


def test_at_most_a_hundred_workers_of_runtimes_can_be_resolved() -> None:
    request = WorkerSpawnRequest(worker_id="a", workspace="w")
    many = [peer(f"w{n}") for n in range(101)]
    resolved = request.with_resolved_observation(enabled=True, grants=many[:100])
    assert len(resolved.resolved_worker_observation_grants) == 100
    with pytest.raises(InvalidArgument, match="101 grants"):
        request.with_resolved_observation(enabled=True, grants=many)
    with pytest.raises(InvalidArgument, match="only a runtime_worker"):
        request.with_resolved_observation(
            enabled=True,
            grants=[sub_worker("kid")],  # type: ignore[list-item]
        )


@pytest.mark.parametrize("how", ["spawn", "restore"])
def test_what_the_host_resolved_is_forwarded(host: Host, how: str) -> None:
    host.begin("boss", how=how, enabled=True, grants=(peer("ada"),))
    [request] = host.created
    assert request.worker_observation_enabled is True
    assert request.worker_observation_grants == (peer("ada"),)
    assert request.is_restore is (how == "restore")


# ---------------------------------------------------------------- binding


@pytest.mark.parametrize("how", ["spawn", "restore"])
def test_spawn_and_restore_bind_alike(host: Host, how: str) -> None:
    host.begin("ada")
    host.begin("bob")
    granted = host.grant(peer("ada"))
    boss = host.begin("boss", how=how, enabled=True, grants=granted)
    assert seen_by(boss) == [peer("ada")]
    assert is_observed(boss, peer("ada"))
    assert not is_observed(boss, peer("bob"))


@pytest.mark.parametrize("how", ["spawn", "restore"])
def test_a_worker_that_is_not_enabled_gets_no_provider_and_no_tools(host: Host, how: str) -> None:
    host.begin("ada")
    granted = host.grant(peer("ada"))
    boss = host.begin("boss", how=how, enabled=False, grants=granted)
    assert boss.provider is None
    registry = Registry()
    report = registry.install([WorkerObservation()], Services(
        {PROVIDER: boss.provider} if boss.provider is not None else {}
    ))  # fmt: skip
    assert not report.features[0].installed
    assert registry.tools == ()


@pytest.mark.parametrize("how", ["spawn", "restore"])
def test_a_worker_that_is_not_enabled_sees_its_own_children_and_nobody_else(
    host: Host, how: str
) -> None:
    host.begin("ada")
    granted = host.grant(peer("ada"))
    boss = host.begin("boss", how=how, enabled=False, grants=granted, has_sub_workers=True)
    assert boss.children is not None
    boss.children.add("kid", Talker("hi", "there"))
    assert seen_by(boss) == [sub_worker("kid")]
    assert not is_observed(boss, peer("ada"))


def test_children_of_one_worker_are_not_those_of_another(host: Host) -> None:
    one, two = (host.begin(name, has_sub_workers=True) for name in ("one", "two"))
    assert one.children is not None
    one.children.add("kid", Talker("hi", "there"))
    assert is_observed(one, sub_worker("kid"))
    assert not is_observed(two, sub_worker("kid"))


def test_resolved_grants_count_only_while_they_stand_in_the_book(host: Host) -> None:
    host.begin("ada")
    boss = host.begin("boss", enabled=True, grants=(peer("ada"),))
    assert seen_by(boss) == []
    host.grant(peer("ada"))
    assert seen_by(boss) == [peer("ada")]
    host.state.remove_grant(BOSS, peer("ada"), now=2, workspace="w")
    assert seen_by(boss) == []
    assert not is_observed(boss, peer("ada"))


def test_a_grant_revoked_before_a_restore_is_gone_after_it(host: Host) -> None:
    host.begin("ada")
    granted = host.grant(peer("ada"))
    host.begin("boss", enabled=True, grants=granted)
    host.state.remove_grant(BOSS, peer("ada"), now=2, workspace="w")
    boss = host.begin("boss", how="restore", enabled=True, grants=granted)
    assert seen_by(boss) == []
    assert not is_observed(boss, peer("ada"))


def test_nothing_that_was_bound_before_a_restore_answers_after_it(host: Host) -> None:
    host.begin("ada")
    granted = host.grant(peer("ada"))
    before = host.begin("boss", enabled=True, grants=granted)
    assert is_observed(before, peer("ada"))
    host.begin("boss", how="restore", enabled=False)
    assert seen_by(before) == []
    assert not is_observed(before, peer("ada"))


def test_a_restore_takes_only_what_it_is_given(host: Host) -> None:
    for name in ("ada", "bob"):
        host.begin(name)
    host.grant(peer("ada"), peer("bob"))
    host.begin("boss", enabled=True, grants=(peer("ada"),))
    boss = host.begin("boss", how="restore", enabled=True, grants=(peer("bob"),))
    assert seen_by(boss) == [peer("bob")]


def test_a_stopped_worker_observes_nobody(host: Host) -> None:
    host.begin("ada")
    boss = host.begin("boss", enabled=True, grants=host.grant(peer("ada")))
    host.runtime.stop("boss")
    assert seen_by(boss) == []


# ---------------------------------------------------------------- whom others see


def test_a_dead_handle_is_never_listed(host: Host) -> None:
    host.begin("ada")
    boss = host.begin("boss", enabled=True, grants=host.grant(peer("ada")))
    assert seen_by(boss) == [peer("ada")]
    del host.handles["ada"]
    gc.collect()
    assert seen_by(boss) == []
    assert not is_observed(boss, peer("ada"))


def test_a_worker_of_another_workspace_is_never_listed(host: Host) -> None:
    host.begin("ada", workspace="elsewhere")
    boss = host.begin("boss", enabled=True, grants=host.grant(peer("ada")))
    assert seen_by(boss) == []
    assert not is_observed(boss, peer("ada"))


def test_a_worker_of_another_runtime_is_never_listed(host: Host) -> None:
    host.begin("ada")
    foreign = runtime_worker("forge", "ada")
    boss = host.begin("boss", enabled=True, grants=host.grant(foreign))
    assert seen_by(boss) == []
    assert not is_observed(boss, foreign)


def test_a_stopped_peer_is_not_listed_and_a_failed_one_is(host: Host) -> None:
    ada, bob = host.begin("ada"), host.begin("bob")
    boss = host.begin("boss", enabled=True, grants=host.grant(peer("ada"), peer("bob")))
    broken = bob.turns.worker
    assert isinstance(broken, Talker)
    broken.breaks_with = ValueError("out of steel")
    bob.turns.send("turn")
    bob.turns._turn.exception(PATIENCE)  # type: ignore[union-attr]
    ada.turns.stop()
    assert seen_by(boss) == [peer("bob")]
    assert is_observed(boss, peer("bob"))


def test_an_observer_of_the_same_name_in_another_runtime_has_no_part_in_a_grant() -> None:
    names = {observer_name(*pair) for pair in (("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"))}
    assert len(names) == 3


def test_an_enabled_worker_gets_further_providers_of_the_host() -> None:
    elsewhere = runtime_worker("forge", "eve")
    given = Given([listed(elsewhere)], {elsewhere: talk("hi", "there")})
    host = Host(
        more_members=lambda request, grants: [Member("workspace", given, serves_elsewhere("shop"))]
    )
    assert seen_by(host.begin("boss", enabled=True)) == [elsewhere]
    assert host.begin("clerk", enabled=False).provider is None


def test_local_sessions_can_be_among_what_a_bound_worker_observes(tmp_path: Path) -> None:
    path = write_lines(claude_path(tmp_path, "s"), conversation(1))
    sessions = LocalAgentSessions([tmp_path / ".claude"], clock=Clock(path.stat().st_mtime))
    subject = local_subject("claude-code", "s")

    def local(request: CreateWorkerRequest, grants: GrantBook) -> list[Member]:
        provider = LocalAgentObservationProvider(
            sessions, observer=request.observer, grants=grants, workspace=request.workspace
        )
        return [Member("local", provider, serves_local)]

    host = Host(more_members=local)
    before = host.begin("boss", enabled=True)
    assert seen_by(before) == []
    host.grant(subject)
    assert seen_by(before) == [subject]
    after = host.begin("boss", how="restore", enabled=True)
    assert (seen_by(before), seen_by(after)) == ([], [subject])


# ---------------------------------------------------------------- life


def test_a_live_worker_is_neither_spawned_twice_nor_restored_while_it_runs(host: Host) -> None:
    ada = host.begin("ada")
    with pytest.raises(InvalidArgument, match="there already"):
        host.begin("ada")
    talker = ada.turns.worker
    assert isinstance(talker, Talker)
    talker.goes_on.clear()
    ada.turns.send("work")
    with pytest.raises(InvalidArgument, match="is running"):
        host.begin("ada", how="restore")
    ada.turns.stop()
    assert host.begin("ada").turns.status == "idle"


def test_a_peer_that_runs_a_turn_is_observed_while_it_runs(host: Host) -> None:
    ada = host.begin("ada")
    boss = host.begin("boss", enabled=True, grants=host.grant(peer("ada")))
    talker = ada.turns.worker
    assert isinstance(talker, Talker)
    talker.goes_on.clear()
    ada.turns.send("a long piece of work")
    assert talker.began.wait(PATIENCE)
    assert boss.provider is not None
    [each] = boss.provider.list_sessions().subjects
    assert each.status == "running"
    capture = boss.provider.capture(peer("ada"))
    assert capture.text(capture.entry(2)) == b"a long piece of work"
    ada.turns.stop()
