"""The cache as informers change it, and when it requests a cycle."""

from typing import Any

import msgspec

from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheduler_views import CSINode
from gangline.api.scheduling import GANG_GATE, Queue, QueueSpec
from gangline.runtime.informer import Delta
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.settings import SchedulerSettings
from support.builders.gang_pods import make_gang_pod, make_pod_group
from support.builders.scheduler_inputs import make_scheduler_node


class CountingCache:
    """A cache that counts its requests for a cycle."""

    def __init__(self) -> None:
        self.rounds = self.notices = 0
        self.deleted: list[str] = []
        self.cache = SchedulerCache(
            SchedulerSettings(),
            request_cycle=self._round,
            gang_changed=self._notice,
            object_deleted=self.deleted.append,
        )

    def _round(self) -> None:
        self.rounds += 1

    def _notice(self) -> None:
        self.notices += 1

    def see(self, after: Any, before: Any = None) -> bool:
        """Apply a change. Returns whether it requested a cycle."""
        count = self.rounds
        delta: Delta[Any] = Delta(before, after)
        self.cache.handle(delta)
        return self.rounds > count


def test_a_new_node_asks_for_a_round_and_its_heartbeat_does_not() -> None:
    counting = CountingCache()
    assert counting.see(make_scheduler_node("a", cpu="4"))
    assert not counting.see(make_scheduler_node("a", cpu="4"))
    assert counting.see(make_scheduler_node("a", cpu="8"))
    assert counting.see(None, make_scheduler_node("a", cpu="8"))


def test_how_many_volumes_a_node_can_have_asks_for_a_round_only_when_it_changes() -> None:
    def limits(count: int) -> CSINode:
        driver = {"name": "disks.example.com", "allocatable": {"count": count}}
        return msgspec.convert({"metadata": {"name": "a"}, "spec": {"drivers": [driver]}}, CSINode)

    counting = CountingCache()
    assert counting.see(limits(1))
    assert not counting.see(limits(1))
    assert counting.see(limits(2))
    assert counting.see(None, limits(2))


def test_a_pod_that_waits_asks_for_a_round() -> None:
    assert CountingCache().see(make_gang_pod("p"))


def test_a_pod_of_others_asks_for_one_only_when_it_goes() -> None:
    counting = CountingCache()
    theirs = make_gang_pod("p", node="a", scheduler="default-scheduler", phase="Running")
    assert not counting.see(theirs)
    assert counting.cache.nodes.bound_pod("uid-p") is not None
    assert counting.see(make_gang_pod("p", node="a", scheduler="default-scheduler", phase="Succeeded"))
    assert counting.cache.nodes.bound_pod("uid-p") is None
    assert not counting.see(None, theirs)


def test_a_pod_that_begins_to_leave_asks_for_a_round() -> None:
    counting = CountingCache()
    counting.see(make_gang_pod("p", node="a", scheduler="x"))
    assert counting.see(make_gang_pod("p", node="a", scheduler="x", leaving=True))


def test_a_pod_seen_where_we_put_it_changes_nothing() -> None:
    counting = CountingCache()
    counting.see(make_gang_pod("p"))
    member = counting.cache.gangs.member("uid-p")
    assert member is not None
    counting.cache.assume(member, "a")
    version = counting.cache.version
    assert not counting.see(make_gang_pod("p", node="a"))
    assert counting.cache.version == version
    assert counting.notices == 1


def test_a_place_that_came_to_nothing_is_free_again() -> None:
    counting = CountingCache()
    counting.see(make_gang_pod("p"))
    member = counting.cache.gangs.member("uid-p")
    assert member is not None
    counting.cache.assume(member, "a")
    count = counting.rounds
    counting.cache.forget("uid-p")
    assert counting.rounds > count
    assert counting.cache.nodes.bound_pod("uid-p") is None


def test_one_whom_the_server_refused_is_not_tried_again_before_it_is_seen_to_be_otherwise() -> None:
    counting = CountingCache()
    counting.see(make_scheduler_node("a", cpu="4"))
    counting.see(make_gang_pod("p"))
    member = counting.cache.gangs.member("uid-p")
    assert member is not None
    counting.cache.assume(member, "a")
    counting.cache.forget_refused("uid-p")
    assert counting.cache.nodes.bound_pod("uid-p") is None
    assert counting.cache.gangs.requests() == []
    assert counting.see(make_gang_pod("p"))
    assert len(counting.cache.gangs.requests()) == 1


def test_one_whom_somebody_else_pinned_first_has_its_place_there() -> None:
    counting = CountingCache()
    for name in ("a", "b"):
        counting.see(make_scheduler_node(name, cpu="4"))
    counting.see(make_gang_pod("p", "g", scheduler="theirs", gates=[GANG_GATE]))
    member = counting.cache.gangs.member("uid-p")
    assert member is not None
    counting.cache.assume(member, "a")
    pinned = make_gang_pod("p", "g", scheduler="theirs", pinned_to="b")
    counting.see(pinned)
    counting.cache.forget_refused("uid-p")
    result = counting.cache.nodes.bound_pod("uid-p")
    assert result is not None
    assert result.node == "b"


def test_other_terms_of_a_group_matter_to_all_and_other_words_to_nobody() -> None:
    counting = CountingCache()
    counting.see(make_pod_group("g", 2))
    before = counting.cache.version
    counting.see(make_pod_group("g", 2, phase="Pending", version="2"))
    assert counting.cache.version == before
    assert counting.see(make_pod_group("g", 1, phase="Pending", version="3"))
    assert counting.cache.version > before


def test_who_is_gone_is_told() -> None:
    counting = CountingCache()
    counting.see(make_gang_pod("p", "g"))
    counting.see(make_pod_group("g", 1))
    counting.see(None, make_gang_pod("p", "g"))
    counting.see(None, make_pod_group("g", 1))
    assert counting.deleted == ["uid-p", "uid-g"]


def test_who_is_asked_to_leave_is_on_its_way_at_once_and_may_stay_after_all() -> None:
    counting = CountingCache()
    counting.see(make_gang_pod("p", node="a"))
    counting.cache.set_evicting("uid-p", evicting=True)
    assert counting.cache.nodes.what_if().terminating == ("uid-p",)
    # The watch shows another change of the pod before the server has carried out ours.
    counting.see(make_gang_pod("p", node="a", phase="Running"))
    assert counting.cache.nodes.what_if().terminating == ("uid-p",)
    counting.cache.set_evicting("uid-p", evicting=False)
    assert counting.cache.nodes.what_if().terminating == ()


def test_a_pod_that_was_pinned_has_its_place_by_the_nodes_own_name() -> None:
    counting = CountingCache()
    machine = make_scheduler_node("a", cpu="4")
    labels = {"kubernetes.io/hostname": "host-a"}
    named = msgspec.structs.replace(machine, metadata=ObjectMeta(name="a", labels=labels))
    counting.see(named)
    assert counting.cache.hostname("a") == "host-a"
    counting.see(make_pod_group("g", 1))
    counting.see(make_gang_pod("p", "g", scheduler="default-scheduler", nodeSelector=labels, pinned_to="a"))
    result = counting.cache.nodes.bound_pod("uid-p")
    assert result is not None
    assert result.node == "a"


def test_a_pod_whose_owner_chose_the_node_was_not_pinned_by_us() -> None:
    counting = CountingCache()
    counting.see(make_scheduler_node("a", cpu="4"))
    counting.see(make_pod_group("g", 1))
    counting.see(make_gang_pod("p", "g", scheduler="default-scheduler", nodeSelector={"kubernetes.io/hostname": "a"}))
    assert counting.cache.nodes.bound_pod("uid-p") is None


def test_a_gated_pod_holds_nothing() -> None:
    counting = CountingCache()
    counting.see(make_pod_group("g", 1))
    counting.see(make_gang_pod("p", "g", scheduler="default-scheduler", gates=[GANG_GATE]))
    assert counting.cache.nodes.bound_pod("uid-p") is None


def test_the_members_of_a_gang_have_one_shape() -> None:
    counting = CountingCache()
    counting.see(make_pod_group("g", 2))
    for number in range(2):
        counting.see(make_gang_pod(f"g-{number}", "g", role="worker", index=number))
    first, second = (counting.cache.gangs.member(f"uid-g-{number}") for number in range(2))
    assert first is not None
    assert second is not None
    assert first.shape is second.shape


def test_a_pod_that_cannot_be_read_is_left_out() -> None:
    counting = CountingCache()
    assert not counting.see(make_gang_pod("p", cpu="a lot"))
    assert list(counting.cache.gangs) == []
    assert not counting.see(make_scheduler_node("a", cpu="much"))
    assert len(counting.cache.nodes) == 0


def queue(weight: int = 1, **capability: str) -> Queue:
    spec = QueueSpec(weight=weight, capability=capability or None)
    return Queue(metadata=ObjectMeta(name="red", uid="u"), spec=spec)


def test_a_queue_asks_for_a_round_when_its_rule_changes() -> None:
    counting = CountingCache()
    assert counting.see(queue(2, cpu="4"))
    assert counting.cache.queues["red"].cap == {"cpu": 4000}
    version = counting.cache.version
    assert not counting.see(queue(2, cpu="4"))
    assert counting.see(queue(3, cpu="4"))
    assert counting.cache.version > version
    assert counting.see(None, queue(3))
    assert set(counting.cache.queues) == {"default"}


def test_keys_of_pods_and_groups_of_one_name_do_not_meet() -> None:
    counting = CountingCache()
    counting.see(make_gang_pod("same", uid="uid-pod"))
    counting.see(make_pod_group("same", 1))
    counting.see(make_gang_pod("same-0", "same"))
    requests = counting.cache.gangs.requests()
    assert sorted(request.uid for request in requests) == ["uid-pod", "uid-same"]
    assert {request.key for request in requests} == {Key("ns", "same")}


def test_what_nobody_decides_on_asks_for_nothing() -> None:
    counting = CountingCache()
    counting.see(make_pod_group("g", 1))
    assert counting.see(make_gang_pod("p", "g"))
    (request,) = counting.cache.gangs.requests()
    # Our own condition on the pod, and our own message on the PodGroup, come back through the watch.
    assert not counting.see(make_gang_pod("p", "g", condition=("False", "Unschedulable")))
    assert not counting.see(make_pod_group("g", 1, version="2"))
    assert counting.cache.gangs.requests()[0] is request
    member = counting.cache.gangs.member("uid-p")
    assert member is not None
    assert member.pod.status.conditions
    # A new phase matters: recovering gangs go first.
    assert counting.see(make_pod_group("g", 1, version="3", phase="Recovering"))
    assert counting.cache.gangs.requests()[0].recovering
