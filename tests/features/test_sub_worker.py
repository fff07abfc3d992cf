"""Children: their states, the tools for their life cycle, and what their parent is told."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from sessiondex.errors import InvalidArgument, NotFound
from sessiondex.features.providers import SpawnedSubWorkerObservationProvider
from sessiondex.features.registry import Registry
from sessiondex.features.services import Services
from sessiondex.features.sub_worker import SUB_WORKERS, SubWorkerFeature, SubWorkerRegistry
from sessiondex.features.subjects import sub_worker
from sessiondex.features.worker_observation import PROVIDER, WorkerObservation
from sessiondex.limits import CHILD_MESSAGE
from tests.builders import Clock
from tests.features.made_workers import PATIENCE, Talker


class Parent:
    """A worker with children, and its registry."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.children = SubWorkerRegistry(clock=self.clock, **options)
        self.registry = Registry()
        services = Services(
            {SUB_WORKERS: self.children,
             PROVIDER: SpawnedSubWorkerObservationProvider(self.children)}
        )  # fmt: skip
        features = [SubWorkerFeature(), WorkerObservation()]
        self.registry.install(features, services).require_all()

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return json.loads(self.registry.call(tool, arguments).data)

    def status(self, name: str) -> str:
        found = {child["subject"]["name"]: child["status"]
                 for child in self("SubWorkerList")["children"]}  # fmt: skip
        return found[name]

    def told(self) -> Any:
        """The notification that a turn is over, once its thread has ended."""
        _join_turns()
        [notification] = self.children.take_notifications()
        return notification


def _join_turns() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("turn-"):
            thread.join(PATIENCE)


# ---------------------------------------------------------------- states


def test_a_child_goes_from_idle_through_running_to_idle() -> None:
    parent, talker = Parent(), Talker()
    talker.goes_on.clear()
    parent.children.add("kid", talker)
    assert parent.status("kid") == "idle"
    sent = parent("SubWorkerSend", name="kid", message="sweep the floor")
    assert sent == {"subject": {"kind": "sub_worker", "name": "kid"}, "display_name": "kid",
                    "status": "running"}  # fmt: skip
    assert parent.status("kid") == "running"
    talker.goes_on.set()
    assert parent.told().status == "idle"
    assert parent.status("kid") == "idle"
    assert talker.said == ["sweep the floor", "done: sweep the floor"]


def test_a_message_reaches_an_idle_child_only() -> None:
    parent, talker = Parent(), Talker()
    talker.goes_on.clear()
    parent.children.add("kid", talker)
    parent("SubWorkerSend", name="kid", message="one")
    told = parent("SubWorkerSend", name="kid", message="two")["error"]
    assert told["class"] == "invalid_argument"
    assert "is running" in told["message"]
    talker.goes_on.set()
    parent.told()
    parent("SubWorkerStop", name="kid")
    assert "is stopped" in parent("SubWorkerSend", name="kid", message="x")["error"]["message"]
    assert talker.said == ["one", "done: one"]


def test_stop_cancels_a_running_turn_and_waits() -> None:
    parent, talker = Parent(), Talker()
    talker.goes_on.clear()
    parent.children.add("kid", talker)
    parent("SubWorkerSend", name="kid", message="never ending work")
    assert talker.began.wait(PATIENCE)
    assert parent("SubWorkerStop", name="kid")["status"] == "stopped"
    assert talker.was_cancelled.is_set()
    assert parent.children.take_notifications() == []


def test_a_child_that_does_not_heed_is_stopping_until_its_turn_ends() -> None:
    parent, talker = Parent(wait=lambda futures: None), Talker()
    talker.goes_on.clear()
    talker.ignores_cancel = True
    parent.children.add("kid", talker)
    parent("SubWorkerSend", name="kid", message="stubborn work")
    assert parent("SubWorkerStop", name="kid")["status"] == "stopping"
    assert "is stopping" in parent("SubWorkerSend", name="kid", message="x")["error"]["message"]
    talker.goes_on.set()
    _join_turns()
    assert parent.status("kid") == "stopped"
    assert parent.children.take_notifications() == []


def test_stopping_twice_and_stopping_an_idle_child_is_no_error() -> None:
    parent = Parent()
    parent.children.add("kid", Talker())
    for _ in range(2):
        assert parent("SubWorkerStop", name="kid")["status"] == "stopped"


def test_a_failed_child_stays_observable_until_it_is_stopped() -> None:
    parent, talker = Parent(), Talker()
    talker.breaks_with = ValueError("the lathe is on fire")
    parent.children.add("kid", talker)
    parent("SubWorkerSend", name="kid", message="turn the spindle")
    assert parent.told().status == "failed"
    subject = {"kind": "sub_worker", "name": "kid"}
    [listed] = parent("ListWorkerSessions")["subjects"]
    assert (listed["subject"], listed["relation"], listed["status"]) == (
        subject, "child", "failed",
    )  # fmt: skip
    [hit] = parent("SearchSessionEntries", subject=subject, query="on fire")["hits"]
    read = parent("ReadSessionEntry", subject=subject, entry_ref=hit["entry_ref"])
    assert read["entries"][0]["text"] == "failed: the lathe is on fire"
    assert "is failed" in parent("SubWorkerSend", name="kid", message="again")["error"]["message"]
    parent("SubWorkerStop", name="kid")
    assert parent("ListWorkerSessions")["subjects"] == []
    told = parent("ReadSessionEntry", subject=subject, entry_ref=hit["entry_ref"])["error"]
    assert told["message"] == "no such worker session"


@pytest.mark.parametrize("fault", [RuntimeError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_whatever_a_turn_raises_makes_the_child_fail_and_nothing_else(
    fault: BaseException,
) -> None:
    parent, talker = Parent(), Talker()
    talker.breaks_with = fault
    parent.children.add("kid", talker)
    parent("SubWorkerSend", name="kid", message="go")
    assert parent.told().status == "failed"


# ---------------------------------------------------------------- what nobody is told


def test_no_tool_returns_what_a_child_said() -> None:
    parent, talker = Parent(), Talker("the child's own words")
    parent.children.add("kid", talker)
    replies = [parent("SubWorkerList"), parent("SubWorkerSend", name="kid", message="the task")]
    notification = parent.told()
    replies += [parent("SubWorkerList"), parent("SubWorkerStop", name="kid")]
    shown = json.dumps(replies) + notification.text
    assert "own words" not in shown
    assert "the task" not in shown


def test_a_notification_names_the_subject_and_says_that_its_session_may_be_read() -> None:
    parent = Parent()
    parent.children.add("kid", Talker())
    parent("SubWorkerSend", name="kid", message="go")
    notification = parent.told()
    assert notification.subject == sub_worker("kid")
    assert '{"kind":"sub_worker","name":"kid"}' in notification.text
    assert "may be read" in notification.text


def test_notifications_wait_until_the_parent_is_between_turns_and_come_once() -> None:
    parent = Parent()
    for name in ("one", "two"):
        parent.children.add(name, Talker())
        parent("SubWorkerSend", name=name, message="go")
    _join_turns()
    taken = parent.children.take_notifications()
    assert {each.subject.name for each in taken} == {"one", "two"}
    assert parent.children.take_notifications() == []


# ---------------------------------------------------------------- names and bounds


def test_a_child_that_is_not_there_is_not_found() -> None:
    parent = Parent()
    for tool, more in (("SubWorkerSend", {"message": "x"}), ("SubWorkerStop", {})):
        assert parent(tool, name="nobody", **more)["error"]["kind"] == "not_found"
    with pytest.raises(NotFound):
        parent.children.stop("nobody")


@pytest.mark.parametrize("message", ["", "  \n", "x" * (CHILD_MESSAGE.maximum + 1)])
def test_a_message_is_neither_blank_nor_too_long(message: str) -> None:
    parent = Parent()
    parent.children.add("kid", Talker())
    told = parent("SubWorkerSend", name="kid", message=message)["error"]
    assert told["kind"] == "invalid_argument"
    assert parent.status("kid") == "idle"


def test_a_name_is_taken_until_its_child_is_stopped() -> None:
    parent = Parent()
    parent.children.add("kid", Talker())
    with pytest.raises(InvalidArgument, match="there already"):
        parent.children.add("kid", Talker())
    parent.children.stop("kid")
    parent.children.add("kid", Talker())
    assert [child.status for child in parent.children.children()] == ["idle"]


def test_there_are_at_most_a_hundred_children_and_stopped_ones_make_room() -> None:
    children = SubWorkerRegistry(clock=Clock())
    for n in range(100):
        children.add(f"kid {n}", Talker())
    with pytest.raises(InvalidArgument, match="100 sub-workers"):
        children.add("one more", Talker())
    children.stop("kid 7")
    children.add("one more", Talker())
    assert len(children.children()) == 100


def test_unknown_arguments_are_refused_by_name() -> None:
    parent = Parent()
    parent.children.add("kid", Talker())
    told = parent("SubWorkerSend", name="kid", message="x", grants=["all"])["error"]
    assert "'grants'" in told["message"]
