"""Never two leaders: whatever clocks, networks and luck do, as long as steady clocks run at about the same speed."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Literal, NamedTuple

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gangline.api.meta import JSON, Key
from gangline.kube.errors import ApiError, Unreachable
from gangline.runtime.leader_election import LeaderElector, LeaseSettings, LostLeadership
from gangline.testing.clock import FakeClock
from support.servers.memory import MemoryCall, MemoryServer

LEASE = Key("system", "operator")
# A candidate that looks often starts counting early, which is what makes it dangerous.
SETTINGS = LeaseSettings(retry=timedelta(seconds=0.5))
STEP = timedelta(seconds=0.5)
# 15 s / 10 s leaves room for steady clocks whose speeds differ by half; this is 1.35 times.
SPEEDS = st.floats(min_value=0.85, max_value=1.15)

Weather = Literal["clear", "slow", "silent", "reset", "lost", "late"]


class Spell(NamedTuple):
    """What holds for one elector for some time."""

    steps: int
    who: int
    weather: Weather
    jump: float
    speed: float
    crash: bool


SPELLS = st.lists(
    st.builds(
        Spell,
        steps=st.integers(1, 40),
        who=st.integers(0, 1),
        weather=st.sampled_from(["clear", "slow", "silent", "reset", "lost", "late"]),
        jump=st.sampled_from([0.0, 0.0, -3600.0, -2.0, 2.0, 20.0, 3600.0]),
        speed=SPEEDS,
        crash=st.booleans(),
    ),
    max_size=12,
)


class Elector:
    """One process: a clock, a network of its own, and work that writes down whether it is alone."""

    def __init__(self, name: str, server: MemoryServer, leaders: set[str]) -> None:
        self.name, self.server, self.leaders = name, server, leaders
        self.clock = FakeClock()
        self.weather: Weather = "clear"
        self.speed = 1.0
        # Requests that are under way and arrive when the weather clears, though nobody waits for them any more.
        self.late: list[Callable[[], JSON]] = []
        self.terms = 0

    async def wire(self, call: MemoryCall) -> JSON:
        match self.weather:
            case "silent":
                await asyncio.Event().wait()
            case "reset":
                raise Unreachable("reset")
            case "late":
                self.late.append(call.perform)
                await asyncio.Event().wait()
            case "slow":
                answer = call.perform()
                await self.clock.sleep(timedelta(seconds=2))
                return answer
            case "lost":
                call.perform()
                raise Unreachable("reset after the request")
            case "clear":
                pass
        return call.perform()

    def set_weather(self, weather: Weather) -> None:
        self.weather = weather
        if weather == "clear":
            for perform in self.late:
                with suppress(ApiError):
                    perform()
            self.late.clear()

    async def work(self) -> None:
        self.leaders.add(self.name)
        self.terms += 1
        assert len(self.leaders) == 1, f"two leaders: {self.leaders}"
        try:
            await asyncio.Event().wait()
        finally:
            self.leaders.remove(self.name)

    async def run(self) -> None:
        """A process that begins anew after every loss, as a Deployment restarts it."""
        while True:
            client, identity = self.server.client(self.wire), f"{self.name}-{self.terms}"
            leader = LeaderElector(client, LEASE, identity, self.clock, SETTINGS)
            with suppress(LostLeadership):
                await leader.run_while_leading(self.work)


async def live(spells: list[Spell]) -> int:
    server, leaders = MemoryServer(), set[str]()
    electors = [Elector(name, server, leaders) for name in "ab"]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(elector.run()) for elector in electors]
        # In the end long enough for a request that arrived late to be waited out.
        for spell in [*spells, *(Spell(50, who, "clear", 0.0, 1.0, crash=False) for who in (0, 1))]:
            elector = electors[spell.who]
            elector.set_weather(spell.weather)
            elector.speed = spell.speed
            elector.clock.jump(timedelta(seconds=spell.jump))
            if spell.crash:
                # Dead at once: what it would say on its way out is not heard.
                elector.weather = "silent"
                tasks[spell.who].cancel()
                await elector.clock.advance(timedelta(seconds=20))
                elector.set_weather(spell.weather)
                tasks[spell.who] = group.create_task(elector.run())
            for _ in range(spell.steps):
                for each in electors:
                    await each.clock.advance(STEP * each.speed)
        assert len(leaders) == 1, "when all is well somebody leads"
        for task in tasks:
            task.cancel()
    return sum(elector.terms for elector in electors)


@given(SPELLS)
@settings(max_examples=60, deadline=None)
def test_there_are_never_two_leaders_and_in_the_end_one(spells: list[Spell]) -> None:
    terms = asyncio.run(live(spells))
    event(f"terms: {min(terms, 5)}")
