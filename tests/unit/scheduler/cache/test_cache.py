"""What informers tell, as what decisions are made on; and when a round may help."""

from typing import Any

import msgspec

from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheduler_views import CSINode
from gangline.api.scheduling import GANG_GATE, Queue, QueueSpec
from gangline.runtime.informer import Delta
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.settings import SchedulerSettings
from support.builders.gang_pods import make_gang_pod, make_pod_group, make_ready_node


class Told:
    """A world, and how often it said that a round may help."""

    def __init__(self) -> None:
        self.rounds = self.notices = 0
        self.deleted: list[str] = []
        self.world = SchedulerCache(
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
        """Whether a change asked for a round."""
        count = self.rounds
        delta: Delta[Any] = Delta(before, after)
        self.world.handle(delta)
        return self.rounds > count


def test_a_new_node_asks_for_a_round_and_its_heartbeat_does_not() -> None:
    told = Told()
    assert told.see(make_ready_node("a", cpu="4"))
    assert not told.see(make_ready_node("a", cpu="4"))
    assert told.see(make_ready_node("a", cpu="8"))
    assert told.see(None, make_ready_node("a", cpu="8"))


def test_how_many_volumes_a_node_can_have_asks_for_a_round_only_when_it_changes() -> None:
    def limits(count: int) -> CSINode:
        driver = {"name": "disks.example.com", "allocatable": {"count": count}}
        return msgspec.convert({"metadata": {"name": "a"}, "spec": {"drivers": [driver]}}, CSINode)

    told = Told()
    assert told.see(limits(1))
    assert not told.see(limits(1))
    assert told.see(limits(2))
    assert told.see(None, limits(2))


def test_a_pod_that_waits_asks_for_a_round() -> None:
    assert Told().see(make_gang_pod("p"))


def test_a_pod_of_others_asks_for_one_only_when_it_goes() -> None:
    told = Told()
    theirs = make_gang_pod("p", node="a", scheduler="default-scheduler", phase="Running")
    assert not told.see(theirs)
    assert told.world.nodes.bound_pod("uid-p") is not None
    assert told.see(make_gang_pod("p", node="a", scheduler="default-scheduler", phase="Succeeded"))
    assert told.world.nodes.bound_pod("uid-p") is None
    assert not told.see(None, theirs)


def test_a_pod_that_begins_to_leave_asks_for_a_round() -> None:
    told = Told()
    told.see(make_gang_pod("p", node="a", scheduler="x"))
    assert told.see(make_gang_pod("p", node="a", scheduler="x", leaving=True))


def test_a_pod_seen_where_we_put_it_changes_nothing() -> None:
    told = Told()
    told.see(make_gang_pod("p"))
    member = told.world.gangs.member("uid-p")
    assert member is not None
    told.world.assume(member, "a")
    version = told.world.version
    assert not told.see(make_gang_pod("p", node="a"))
    assert told.world.version == version
    assert told.notices == 1


def test_a_place_that_came_to_nothing_is_free_again() -> None:
    told = Told()
    told.see(make_gang_pod("p"))
    member = told.world.gangs.member("uid-p")
    assert member is not None
    told.world.assume(member, "a")
    count = told.rounds
    told.world.forget("uid-p")
    assert told.rounds > count
    assert told.world.nodes.bound_pod("uid-p") is None


def test_one_whom_the_server_refused_is_not_tried_again_before_it_is_seen_to_be_otherwise() -> None:
    told = Told()
    told.see(make_ready_node("a", cpu="4"))
    told.see(make_gang_pod("p"))
    member = told.world.gangs.member("uid-p")
    assert member is not None
    told.world.assume(member, "a")
    told.world.forget_refused("uid-p")
    assert told.world.nodes.bound_pod("uid-p") is None
    assert told.world.gangs.requests() == []
    assert told.see(make_gang_pod("p"))
    assert len(told.world.gangs.requests()) == 1


def test_one_whom_somebody_else_pinned_first_has_its_place_there() -> None:
    told = Told()
    for name in ("a", "b"):
        told.see(make_ready_node(name, cpu="4"))
    told.see(make_gang_pod("p", "g", scheduler="theirs", gates=[GANG_GATE]))
    member = told.world.gangs.member("uid-p")
    assert member is not None
    told.world.assume(member, "a")
    pinned = make_gang_pod("p", "g", scheduler="theirs", pinned_to="b")
    told.see(pinned)
    told.world.forget_refused("uid-p")
    found = told.world.nodes.bound_pod("uid-p")
    assert found is not None
    assert found.node == "b"


def test_other_terms_of_a_group_matter_to_all_and_other_words_to_nobody() -> None:
    told = Told()
    told.see(make_pod_group("g", 2))
    before = told.world.version
    told.see(make_pod_group("g", 2, phase="Pending", version="2"))
    assert told.world.version == before
    assert told.see(make_pod_group("g", 1, phase="Pending", version="3"))
    assert told.world.version > before


def test_who_is_gone_is_told() -> None:
    told = Told()
    told.see(make_gang_pod("p", "g"))
    told.see(make_pod_group("g", 1))
    told.see(None, make_gang_pod("p", "g"))
    told.see(None, make_pod_group("g", 1))
    assert told.deleted == ["uid-p", "uid-g"]


def test_who_is_asked_to_leave_is_on_its_way_at_once_and_may_stay_after_all() -> None:
    told = Told()
    told.see(make_gang_pod("p", node="a"))
    told.world.set_evicting("uid-p", evicting=True)
    assert told.world.nodes.what_if().terminating == ("uid-p",)
    # Its watch has something else to say, before the server has done it.
    told.see(make_gang_pod("p", node="a", phase="Running"))
    assert told.world.nodes.what_if().terminating == ("uid-p",)
    told.world.set_evicting("uid-p", evicting=False)
    assert told.world.nodes.what_if().terminating == ()


def test_a_pod_that_was_pinned_has_its_place_by_the_nodes_own_name() -> None:
    told = Told()
    machine = make_ready_node("a", cpu="4")
    labels = {"kubernetes.io/hostname": "host-a"}
    named = msgspec.structs.replace(machine, metadata=ObjectMeta(name="a", labels=labels))
    told.see(named)
    assert told.world.hostname("a") == "host-a"
    told.see(make_pod_group("g", 1))
    told.see(make_gang_pod("p", "g", scheduler="default-scheduler", nodeSelector=labels, pinned_to="a"))
    found = told.world.nodes.bound_pod("uid-p")
    assert found is not None
    assert found.node == "a"


def test_a_pod_whose_owner_chose_the_node_was_not_pinned_by_us() -> None:
    told = Told()
    told.see(make_ready_node("a", cpu="4"))
    told.see(make_pod_group("g", 1))
    told.see(make_gang_pod("p", "g", scheduler="default-scheduler", nodeSelector={"kubernetes.io/hostname": "a"}))
    assert told.world.nodes.bound_pod("uid-p") is None


def test_a_gated_pod_holds_nothing() -> None:
    told = Told()
    told.see(make_pod_group("g", 1))
    told.see(make_gang_pod("p", "g", scheduler="default-scheduler", gates=[GANG_GATE]))
    assert told.world.nodes.bound_pod("uid-p") is None


def test_the_members_of_a_gang_have_one_shape() -> None:
    told = Told()
    told.see(make_pod_group("g", 2))
    for number in range(2):
        told.see(make_gang_pod(f"g-{number}", "g", role="worker", index=number))
    first, second = (told.world.gangs.member(f"uid-g-{number}") for number in range(2))
    assert first is not None
    assert second is not None
    assert first.shape is second.shape


def test_a_pod_that_cannot_be_read_is_left_out() -> None:
    told = Told()
    assert not told.see(make_gang_pod("p", cpu="a lot"))
    assert list(told.world.gangs) == []
    assert not told.see(make_ready_node("a", cpu="much"))
    assert len(told.world.nodes) == 0


def queue(weight: int = 1, **capability: str) -> Queue:
    spec = QueueSpec(weight=weight, capability=capability or None)
    return Queue(metadata=ObjectMeta(name="red", uid="u"), spec=spec)


def test_a_queue_asks_for_a_round_when_its_rule_changes() -> None:
    told = Told()
    assert told.see(queue(2, cpu="4"))
    assert told.world.queues["red"].cap == {"cpu": 4000}
    version = told.world.version
    assert not told.see(queue(2, cpu="4"))
    assert told.see(queue(3, cpu="4"))
    assert told.world.version > version
    assert told.see(None, queue(3))
    assert set(told.world.queues) == {"default"}


def test_keys_of_pods_and_groups_of_one_name_do_not_meet() -> None:
    told = Told()
    told.see(make_gang_pod("same", uid="uid-pod"))
    told.see(make_pod_group("same", 1))
    told.see(make_gang_pod("same-0", "same"))
    asks = told.world.gangs.requests()
    assert sorted(ask.uid for ask in asks) == ["uid-pod", "uid-same"]
    assert {ask.key for ask in asks} == {Key("ns", "same")}


def test_what_nobody_decides_on_asks_for_nothing() -> None:
    told = Told()
    told.see(make_pod_group("g", 1))
    assert told.see(make_gang_pod("p", "g"))
    (ask,) = told.world.gangs.requests()
    # Our own mark on the pod, and our own words about the group, come back by the watch.
    assert not told.see(make_gang_pod("p", "g", condition=("False", "Unschedulable")))
    assert not told.see(make_pod_group("g", 1, version="2"))
    assert told.world.gangs.requests()[0] is ask
    member = told.world.gangs.member("uid-p")
    assert member is not None
    assert member.pod.status.conditions
    # A phase is another matter: who is broken goes first.
    assert told.see(make_pod_group("g", 1, version="3", phase="Recovering"))
    assert told.world.gangs.requests()[0].recovering
