"""Which steps are computed again: only after a restart, and until the process itself reports the furthest one."""

from gangline.api.kubeflow.training import ReachedStep
from gangline.goodput.steps import ReporterState, reached_step


def line(step: int, **more: float) -> str:
    return f'{{"progress": {{"step": {step}}}, "more": {more}}}'


def play(*reports: tuple[str, int, str]) -> ReachedStep:
    reached: ReachedStep | None = None
    for process, step, text in reports:
        reached = reached_step(reached, ReporterState(process, step, text))
    assert reached is not None
    return reached


def test_a_step_that_goes_back_without_a_restart_is_a_new_epoch() -> None:
    reached = play(("a/0", 100, line(100)), ("a/0", 5, line(5)))
    assert (reached.step, reached.repeating) == (100, False)


def test_a_new_pod_repeats_until_it_reports_the_step_itself() -> None:
    before = (("a/0", 100, line(100)),)
    # The status still has the step of the pod before.
    assert play(*before, ("b/0", 100, "")).repeating
    assert play(*before, ("b/0", 100, ""), ("b/0", 60, line(60))).repeating
    again = play(*before, ("b/0", 100, ""), ("b/0", 60, line(60)), ("b/0", 100, line(100)))
    assert (again.step, again.repeating) == (100, False)


def test_a_new_pod_that_goes_on_where_the_last_one_ended_repeats_nothing() -> None:
    reached = play(("a/0", 100, line(100)), ("b/0", 101, line(101)))
    assert (reached.step, reached.repeating) == (101, False)


def test_the_last_line_of_the_process_before_is_not_one_of_the_new_process() -> None:
    # The annotation stays when a container restarts in its pod.
    stale = play(("a/0", 100, line(100)), ("a/1", 100, line(100)))
    assert stale.repeating
    late = play(("a/0", 100, line(100)), ("a/1", 105, line(105)))
    assert (late.step, late.repeating) == (105, True)
    assert not play(("a/0", 100, line(100)), ("a/1", 100, line(100)), ("a/1", 110, line(110))).repeating


def test_a_second_restart_does_not_forget_the_furthest_step() -> None:
    reached = play(("a/0", 100, line(100)), ("b/0", 40, line(40)), ("c/0", 40, ""), ("c/0", 50, line(50)))
    assert (reached.step, reached.repeating) == (100, True)


def test_while_no_process_runs_nothing_changes() -> None:
    reached = play(("a/0", 100, line(100)), ("", 100, ""))
    assert (reached.step, reached.process, reached.repeating) == (100, "a/0", False)
