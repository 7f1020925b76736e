"""Recovery policies in any history: a bug is never retried, limits hold, and the end is the same whatever happens.

The cause of a failure is what its exit code tells, so it is the same in both worlds of a story.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.api.kubeflow.training import ConditionType, RecoveryStatus
from gangline.api.meta import JSON
from gangline.jobs.plan.recovery.classes import CAUSE_CLASSES, CauseClass
from gangline.jobs.plan.recovery.policy import AUTO_RULES, parse_recovery
from gangline.testing.converge import Step, bring_to_rest, differences, play_story, run_blocking
from gangline.testing.happenings import STEADY_EDITS, History
from gangline.testing.strategies import histories, stories
from gangline.testing.world.invariants import check_at_rest
from gangline.testing.world.server import WorldWrite
from gangline.testing.world.world import World
from support.property.job_histories import GeneratedJob, example_count, generated_jobs

NODES = ("node-a", "node-b", "node-c")
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "report_multiple_bugs": False,
}


@st.composite
def policies(draw: Callable[[Any], Any]) -> Any:
    """A policy as a user writes it."""
    actions = ["Fail", "Stop", "RestartReplica", "RestartJob", "RestartElsewhere", "Retry", "RaiseMemory"]
    rules = []
    for _ in range(draw(st.integers(0, 3))):
        when = draw(
            st.sampled_from(
                [
                    {"causes": ["infrastructure"]},
                    {"causes": ["killed", "exit-code"]},
                    {"exitCodes": [1]},
                    {"exitCodes": [137], "replicaTypes": ["worker"]},
                    {"log": "closed by peer"},
                ]
            )
        )
        then = draw(st.sampled_from(actions))
        options: JSON = {"limit": draw(st.integers(1, 3))} if then not in ("Fail", "Stop") else {}
        if then in ("RestartElsewhere", "Retry", "RaiseMemory"):
            options |= draw(st.sampled_from([{}, {"scope": "Job"}, {"scope": "Replica"}, {"uncounted": True}]))
        if then == "RestartElsewhere":
            options["for"] = draw(st.sampled_from(["30s", "10m", "2h"]))
        if then == "RaiseMemory":
            options["upTo"] = "3Gi"
        rules.append({"when": when, "then": then, **options})
    otherwise = draw(st.sampled_from([None, "auto", "Fail"]))
    if not rules:
        return "auto"
    return {"rules": rules, **({"otherwise": otherwise} if otherwise else {})}


@st.composite
def jobs_with_policy(draw: Callable[[Any], Any]) -> GeneratedJob:
    team: GeneratedJob = draw(generated_jobs())
    return team._replace(run_policy={**team.run_policy, "recovery": draw(policies())}, nodes=NODES)


def watch_limits(world: World) -> None:
    """At every write: no rule acts more often than its limit allows, and memory does not grow past its bound."""
    judge = world._judge
    assert judge is not None

    def judged(world: World, write: WorldWrite) -> None:
        judge(world, write)
        if write.resource != world.plural or write.verb != "status":
            return
        policy, _ = parse_recovery(world.framework.run_policy(world.job).recovery)
        assert policy is not None
        record = world.job.status.recovery or RecoveryStatus()
        limits = {rule.name: rule.limit for rule in policy.rules}
        for name, count in record.counts.items():
            assert count <= limits[name], f"{name} acted {count} times, of {limits[name]}"
        assert all(memory in ("1536Mi", "2304Mi", "3Gi") for memory in record.memory.values())

    world._judge = judged


def is_of_the_policy(difference: str) -> bool:
    """Whether a difference of two worlds has to do with policies: the goodput ledger and its alarm have tests of their own."""
    return not difference.startswith(("status.goodput", "alarm"))


@settings(max_examples=example_count(100), **SETTINGS)
@given(jobs_with_policy(), histories())
def test_what_must_hold_of_a_job_holds_under_any_policy(team: GeneratedJob, history: History) -> None:
    async def example() -> None:
        world = team.world()
        watch_limits(world)
        for happening in history:
            await happening.happen(world)
        await bring_to_rest(world)
        await check_at_rest(world)

    run_blocking(example)


CALM_EDITS = tuple(edit for edit in STEADY_EDITS if not edit.startswith(("squat", "usurp")))
"""The edits that do not block a job: a decision of one that is blocked comes with its next attempt, whenever that is."""


@settings(max_examples=example_count(100), **SETTINGS)
@given(jobs_with_policy(), stories(CALM_EDITS))
def test_the_end_is_the_same_whatever_happens_to_the_operator(team: GeneratedJob, steps: list[Step]) -> None:
    async def example() -> None:
        calm = await play_story(team.world(), steps, calm=True)
        rough = await play_story(team.world(), steps, calm=False)
        for number, (one, other) in enumerate(zip(calm, rough, strict=True)):
            assert not [line for line in differences(one, other) if is_of_the_policy(line)], f"after step {number}"

    run_blocking(example)


@settings(max_examples=example_count(100), **SETTINGS)
@given(generated_jobs(), stories())
def test_auto_never_restarts_after_a_bug(team: GeneratedJob, steps: list[Step]) -> None:
    """Every restart that `auto` makes has a cause of a class after which it restarts."""
    team = team._replace(run_policy={**team.run_policy, "recovery": "auto"}, nodes=NODES)

    async def example() -> None:
        world = team.world()
        judge = world._judge
        assert judge is not None
        restarting = {
            kind for rule in AUTO_RULES if rule.action not in ("Fail", "Stop") for kind in map(CauseClass, rule.causes)
        }

        def judged(world: World, write: WorldWrite) -> None:
            judge(world, write)
            is_status = write.resource == world.plural and write.verb == "status"
            record = world.job.status.recovery if is_status else None
            if record is None:
                return
            kind = CAUSE_CLASSES[record.cause]
            by_signal = record.cause == "exit-code" and record.action == "RestartElsewhere"
            assert (record.action == "Fail") or kind in restarting or by_signal, record
            if record.action == "Fail":
                assert world.job.status.holds(ConditionType.FAILED)

        world._judge = judged
        await play_story(world, steps, calm=False)

    run_blocking(example)
