"""Whatever becomes of its members, a gang's state moves along its table, and its times move on.

The world is a model: pods of a team that start, run, end, are lost, deleted and made again; room that comes and goes;
a minimum that changes; a clock that may be set back; a scheduler that forgets what it saw.
"""

from datetime import UTC, datetime, timedelta

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gangline.api.scheduling import PodGroupPhase, PodGroupState
from gangline.scheduler.gangs.phase import (
    GangObservation,
    LostMember,
    MemberStatus,
    PlacementAttempt,
    next_state,
    podgroup_status,
)

START = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
ALLOWED = {
    ("", "Pending"),
    ("Pending", "Running"),
    ("Pending", "Recovering"),
    ("Running", "Recovering"),
    ("Recovering", "Running"),
    ("Recovering", "Unschedulable"),
    ("Unschedulable", "Pending"),
    ("Unschedulable", "Running"),
}
SEATS = 5


class World:
    def __init__(self) -> None:
        self.now = START
        self.pods: dict[int, MemberStatus] = {}
        self.gone: dict[int, LostMember] = {}
        self.made = 0
        self.least = 3
        self.room = True
        self.was = 0

    def step(self, what: str, seat: int) -> None:
        pod = self.pods.get(seat)
        if what == "make" and pod is None:
            self.made += 1
            self.gone.pop(seat, None)
            self.pods[seat] = MemberStatus(uid=f"u{self.made}", name=f"w-{seat}", role="w", index=seat)
        elif what == "place" and pod is not None and not pod.node:
            self.change(seat, node=f"n{seat}", scheduled_at=self.now.replace(microsecond=0))
        elif what in ("Running", "Succeeded", "Failed", "Unknown") and pod is not None and pod.node:
            self.change(seat, phase=what)
        elif what == "delete" and pod is not None:
            self.change(seat, deleting=True)
        elif what == "remove" and pod is not None:
            del self.pods[seat]
            self.gone[seat] = LostMember(pod.name, "w", seat, pod.phase == "Succeeded")
        elif what == "room":
            self.room = not self.room
        elif what == "least":
            self.least = seat + 1
        elif what == "forget":
            self.gone.clear()
        elif what == "on":
            self.now += timedelta(seconds=7.3 * (seat + 1))
        elif what == "back":
            self.now -= timedelta(minutes=10)

    def change(self, seat: int, **facts: object) -> None:
        pod = self.pods[seat]
        self.pods[seat] = MemberStatus(**{**{name: getattr(pod, name) for name in pod.__struct_fields__}, **facts})

    def seen(self, state: PodGroupState) -> GangObservation:
        waits = any(not pod.node for pod in self.pods.values())
        attempt = PlacementAttempt(not self.room, "" if self.room else "no room") if waits else None
        return GangObservation(
            state=state,
            min_members=self.least,
            members=tuple(self.pods.values()),
            lost_members=tuple(self.gone.values()),
            last_attempt=attempt,
            recorded_count=self.was,
            now=self.now,
        )


WORDS = ["make", "place", "Running", "Succeeded", "Failed", "Unknown", "delete", "remove"]
WORLDLY = ["room", "least", "forget", "on", "back"]
steps = st.lists(st.tuples(st.sampled_from([*WORDS, *WORDS, *WORLDLY]), st.integers(0, SEATS - 1)), max_size=40)
start = [(what, seat) for seat in range(3) for what in ("make", "place", "Running")]


@settings(max_examples=300)
@given(st.booleans(), steps)
def test_a_gang_moves_along_its_table(started: bool, history: list[tuple[str, int]]) -> None:
    world, state = World(), PodGroupState()
    for what, seat in [*(start if started else []), *history]:
        world.step(what, seat)
        for _ in range(4):
            seen = world.seen(state)
            after = next_state(seen)
            check(world, state, after)
            if after is state:
                break
            status = podgroup_status(seen, after)
            state, world.was = after, status.running + status.succeeded
        # The same facts come to rest, and then nothing is written.
        assert next_state(world.seen(state)) is state
    event(f"ends {state.phase or 'at the start'}")


def check(world: World, before: PodGroupState, after: PodGroupState) -> None:
    moved = before.phase != after.phase
    assert not moved or (before.phase, after.phase) in ALLOWED
    whole = sum(
        pod.phase == "Succeeded" or (pod.phase == "Running" and not pod.deleting) for pod in world.pods.values()
    ) + sum(gone.succeeded for gone in world.gone.values())
    if after.phase == PodGroupPhase.RUNNING:
        assert whole >= world.least
    elif before.phase:
        assert whole < world.least
    if moved and after.phase == PodGroupPhase.UNSCHEDULABLE:
        assert whole
        assert not world.room
    assert after.last_probe_time is not None
    assert after.last_transition_time is not None
    assert after.last_transition_time <= after.last_probe_time
    assert after.last_probe_time.microsecond == 0
    assert before.last_probe_time is None or after.last_probe_time >= before.last_probe_time
    if moved:
        assert after.last_transition_time == after.last_probe_time
    else:
        assert after.last_transition_time == before.last_transition_time
