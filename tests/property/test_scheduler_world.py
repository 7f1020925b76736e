"""Whatever happens to pods and in whatever order, no room is lost and none is given twice."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.api.scheduler_views import Pod
from gangline.runtime.informer import Delta
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.settings import SchedulerSettings
from support.builders.gang_pods import make_gang_pod, make_pod_group
from support.builders.scheduler_inputs import make_scheduler_node

NODES = ("a", "b")
MEMBERS = 4
OFFERED = 9000
STEPS = (
    *("made", "bound", "runs", "succeeds", "fails", "leaves", "gone"),
    *("decided", "in vain", "refused", "asked", "stays"),
    *("group", "no group"),
)


class History:
    """A world, and what the server knows of its pods: name -> what is true of each."""

    def __init__(self) -> None:
        self.world = SchedulerCache(SchedulerSettings())
        self.pods: dict[int, dict[str, Any]] = {}
        self.made = 0
        for name in NODES:
            self.world.on_node(Delta(None, make_scheduler_node(name, cpu="9")))

    def happens(self, step: str, number: int, where: str) -> None:
        """What cannot be, does not happen."""
        facts, there = self.pods.get(number), number in self.pods
        match step:
            case "made" if not there:
                self.made += 1
                self.pods[number] = {"uid": f"uid-{number}-{self.made}"}
                self.tell(number)
            case "bound" if facts and "node" not in facts and "leaving" not in facts:
                facts["node"] = where
                self.tell(number)
            case "runs" | "succeeds" | "fails" if facts and "node" in facts:
                ends = {"runs": "Running", "succeeds": "Succeeded", "fails": "Failed"}
                if facts.get("phase", "Running") == "Running":
                    facts["phase"] = ends[step]
                    self.tell(number)
            case "leaves" if facts:
                facts["leaving"] = True
                self.tell(number)
            case "gone" if facts:
                seen = self.seen(number)
                del self.pods[number]
                self.world.on_pod(Delta(seen, None))
            case "group":
                self.world.on_group(Delta(None, make_pod_group("g", MEMBERS)))
            case "no group":
                self.world.on_group(Delta(make_pod_group("g", MEMBERS), None))
            case _ if facts:
                self.decides(step, facts["uid"], where)

    def decides(self, step: str, uid: str, where: str) -> None:
        """What the scheduler does, and what becomes of it."""
        world, member = self.world, self.world.gangs.member(uid)
        assert member is not None
        match step:
            case "decided" if member.is_waiting:
                world.assume(member, where)
            case "in vain":
                world.forget(uid)
            case "refused":
                world.forget_refused(uid)
            case "asked" if member.is_placed:
                world.set_evicting(uid, evicting=True)
            case "stays" if member.evicting:
                world.set_evicting(uid, evicting=False)

    def seen(self, number: int) -> Pod:
        return make_gang_pod(f"g-{number}", "g", role="worker", index=number, **self.pods[number])

    def tell(self, number: int) -> None:
        self.world.on_pod(Delta(None, self.seen(number)))

    def check(self) -> None:
        """Room is used by exactly those who have a place, and every place is known once."""
        cluster, gangs = self.world.nodes, self.world.gangs
        used = dict.fromkeys(NODES, 0)
        holding = {each.uid: each for found in gangs.allocations() for each in found.pods}
        for facts in self.pods.values():
            member = gangs.member(facts["uid"])
            assert member is not None
            place = facts.get("node") or member.assumed_node
            resident = cluster.bound_pod(member.uid)
            if not place or facts.get("phase") in ("Succeeded", "Failed"):
                assert resident is None
                assert member.uid not in holding
                continue
            assert resident is not None
            assert (resident.node, resident.terminating) == (place, "leaving" in facts or member.evicting)
            assert holding[member.uid].node == place
            assert holding[member.uid].terminating == resident.terminating
            used[place] += 1000
        trial = cluster.what_if()
        assert trial.free()["cpu"] == len(NODES) * OFFERED - sum(used.values())
        assert set(trial.terminating) == {uid for uid, each in holding.items() if each.terminating}
        assert len(holding) == sum(used.values()) // 1000
        members = [gangs.member(facts["uid"]) for facts in self.pods.values()]
        waiting = sum(member is not None and member.is_waiting for member in members)
        for ask in gangs.requests():
            assert sum(need.count for need in ask.pod_sets) == waiting


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, MEMBERS - 1), st.sampled_from(NODES)), max_size=40))
def test_room_is_used_by_exactly_those_who_have_a_place(steps: list[tuple[str, int, str]]) -> None:
    history = History()
    for number in range(MEMBERS):
        history.happens("made", number, "")
    history.happens("group", 0, "")
    for step in steps:
        history.happens(*step)
        history.check()
