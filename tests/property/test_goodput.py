"""The ledger of any history: it sums to replicas times time, and says the same as a count second by second."""

import os
from random import Random

import pytest

from gangline.api.meta import JSON
from support.builders.timed_teams import FAILED, TimedTeam
from support.property.goodput_oracle import GoodputOracle

HISTORIES = int(os.environ.get("GANGLINE_GOODPUT_HISTORIES", "60"))
"""`make test-soak` plays a thousand."""
STEPS = 25


class Storyteller:
    """Lets anything happen to a team that may happen, at whole seconds."""

    def __init__(self, seed: int, *, crashes: bool) -> None:
        """`crashes`: whether the operator's process is replaced now and then, and forgets what it has not written."""
        self.random = Random(seed)
        self.crashes = crashes
        scope = self.random.choice(["", "", "Job"])
        restart = self.random.choice(["OnFailure", "Never", "ExitCode"])
        self.team = TimedTeam(self.random.randint(0, 3), scope=scope, restart=restart)
        self.step = 0

    async def play(self) -> None:
        await self.team.settle()
        for _ in range(STEPS):
            # The count by seconds cannot tell what happened within one.
            await self.team.wait(self.random.choice([0 if self.crashes else 3, 1, 2, 7, 30, 61]))
            await self._happen()
            if self.team.world.job.status.finished:
                return

    async def _happen(self) -> None:
        team, random = self.team, self.random
        if self.crashes and random.random() < 0.1:
            team.world.crash()
        action = random.choice(
            [
                "bind",
                "bind",
                "start",
                "start",
                "start",
                "crash",
                "end",
                "fail",
                "evict",
                "remove",
                "remove",
                "report",
                "report",
                "save",
                "suspend",
                "resume",
                "resume",
                "scale",
                "stall",
            ]
        )
        names = [name for name in team.names if self._may(action, team.pod(name))]
        if action in ("suspend", "resume"):
            await team.change({"suspend": action == "suspend" and random.random() < 0.3})
        elif action == "scale":
            if "Worker" in team.world.manifest["spec"]["pytorchReplicaSpecs"]:
                await team.scale(random.randint(1, 4))
        elif action == "stall":
            await self._stall()
        elif names:
            await self._act(action, names)

    async def _act(self, action: str, names: list[str]) -> None:
        team, chosen = self.team, self.random.sample(names, self.random.randint(1, len(names)))
        if action == "bind":
            await team.bind(*chosen)
        elif action == "start":
            await team.start(*chosen)
        elif action == "crash":
            await team.crash(chosen[0])
        elif action == "end":
            await team.end(*chosen)
        elif action == "fail":
            await team.end(chosen[0], phase=FAILED)
        elif action == "evict":
            await team.evict(chosen[0])
        elif action == "remove":
            await team.remove(*chosen)
        elif "master-0" in names:
            self.step += self.random.randint(-5, 20)
            words = {"checkpoint": self.random.choice(["begin", "end"])} if action == "save" else {}
            await team.report("master-0", step=self.step, serial=team.now, **words)

    async def _stall(self) -> None:
        """Set condition Stalled, or let it end."""
        world = self.team.world
        body = world.body
        assert body is not None
        conditions = (body.get("status") or {}).get("conditions") or []
        is_stalled = any(found["type"] == "Stalled" and found["status"] == "True" for found in conditions)
        stalled = {
            "type": "Stalled",
            "status": "False" if is_stalled else "True",
            "lastTransitionTime": self.team._stamp(),
        }
        others = [found for found in conditions if found["type"] != "Stalled"]
        if any(found["type"] == "Running" and found["status"] == "True" for found in others):
            world.server.patch(world.plural, "bert", {"status": {"conditions": [*others, stalled]}})
            await self.team.settle()

    @staticmethod
    def _may(action: str, pod: JSON) -> bool:
        phase, container = pod["status"]["phase"], (pod["status"].get("containerStatuses") or [{}])[0]
        runs = "running" in container.get("state", {})
        is_bound = bool(pod["spec"].get("nodeName"))
        match action:
            case "bind":
                return not is_bound and phase == "Pending"
            case "start":
                return is_bound and not runs and phase in ("Pending", "Running")
            case "evict":
                return phase in ("Pending", "Running")
            case "remove":
                return "deletionTimestamp" in pod["metadata"]
        return runs


def wall_seconds(storyteller: Storyteller, until: float) -> int:
    """Replicas times time without suspensions: all that is to be booked."""
    return sum(GoodputOracle(storyteller.team.versions, until).count().values())


@pytest.mark.parametrize("part", range(4))
async def test_the_sum_of_a_ledger_is_replicas_times_time_whatever_happens(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        storyteller = Storyteller(seed, crashes=True)
        await storyteller.play()
        ledger = storyteller.team.world.job.status.goodput
        if ledger is not None:
            wall = wall_seconds(storyteller, ledger.until.timestamp())
            assert sum(ledger.seconds.values()) == wall, f"seed {seed}: {ledger}"


@pytest.mark.parametrize("part", range(4))
async def test_a_ledger_says_the_same_as_a_count_second_by_second(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        storyteller = Storyteller(seed, crashes=False)
        await storyteller.play()
        ledger = storyteller.team.world.job.status.goodput
        if ledger is not None:
            counted = GoodputOracle(storyteller.team.versions, ledger.until.timestamp()).count()
            assert dict(ledger.seconds) == dict(counted), f"seed {seed}"
