"""Whatever happens to the operator, a job comes to the same end.

One thing happens to a job at a time, and then the operator works until it is done. The same history is played twice:
in a calm world, and in one where the operator dies between any two calls, the server answers wrongly or not at all,
and the caches show one change at a time. After every step both worlds must be the same, times included, and the
restarts that are counted those that there were.
"""

from hypothesis import HealthCheck, given, settings

from gangline.testing.converge import Step, differences, play_story, run_blocking
from gangline.testing.strategies import stories
from support.property.job_histories import GeneratedJob, example_count, generated_jobs


@settings(
    max_examples=example_count(250),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    report_multiple_bugs=False,
)
@given(generated_jobs(), stories())
def test_the_end_is_the_same_whatever_happens_to_the_operator(team: GeneratedJob, steps: list[Step]) -> None:
    async def example() -> None:
        calm = await play_story(team.world(), steps, calm=True)
        rough = await play_story(team.world(), steps, calm=False)
        for number, (one, other) in enumerate(zip(calm, rough, strict=True)):
            assert not list(differences(one, other)), f"after step {number}"

    run_blocking(example)
