"""Curves of reported metrics: series, restarts, thinning, the choice of an axis."""

import math

import pytest

from gangline.timeline.build import team_timeline
from gangline.timeline.curves import curves, leading_replica, prefers_log, progress_points, thinned
from gangline.timeline.model import CurveMark, MarkKind, ProgressPoint, TimelineMark
from support.builders.team_tapes import START, TeamTape


def points_of(*losses: tuple[float, float, float], replica: str = "worker-0") -> list[ProgressPoint]:
    """Points from (time, step, loss)."""
    return [ProgressPoint(at, step, {"loss": loss}, replica) for at, step, loss in losses]


def test_every_metric_has_a_curve_in_the_order_of_its_first_report() -> None:
    points = [
        ProgressPoint(1.0, 10, {"loss": 2.0}, "worker-0"),
        ProgressPoint(2.0, 20, {"accuracy": 0.5, "loss": 1.0}, "worker-0"),
    ]
    shown = curves(points)
    assert [(curve.name, curve.points) for curve in shown.metrics] == [
        ("loss", ((10, 2.0), (20, 1.0))),
        ("accuracy", ((20, 0.5),)),
    ]
    assert curves(points, over="time").metrics[0].points == ((1.0, 2.0), (2.0, 1.0))


def test_steps_that_are_done_again_replace_those_from_before_a_restart() -> None:
    [curve] = curves(points_of((1, 10, 5.0), (2, 20, 4.0), (3, 30, 3.0), (9, 20, 3.9), (10, 30, 2.9))).metrics
    assert list(curve.points) == [(10, 5.0), (20, 3.9), (30, 2.9)]
    assert list(curve.repeated) == [(20, 4.0), (30, 3.0)]
    assert [(mark.x, mark.kind) for mark in curve.marks] == [(20, "restart")]


def test_marks_of_the_timeline_are_at_the_last_step_before_them() -> None:
    marks = [
        TimelineMark(MarkKind.FIRST_FAILURE, 2.5, "worker-1", "exit 137 (SIGKILL)", cause=True),
        TimelineMark(MarkKind.OPERATOR, 2.6, None, "Restarting: ..."),
    ]
    points = points_of((1, 10, 5.0), (2, 20, 4.0), (3, 30, 3.0))
    assert curves(points, marks).metrics[0].marks == (CurveMark(20, "first-failure", "worker-1: exit 137 (SIGKILL)"),)
    assert curves(points, marks, over="time").metrics[0].marks[0].x == 2.5


def test_the_leading_replica_speaks_for_the_team() -> None:
    assert leading_replica({"worker-0", "worker-10", "worker-2"}) == "worker-0"
    assert leading_replica({"worker-0", "master-0"}) == "master-0"
    assert leading_replica(()) == ""
    both = [*points_of((1, 10, 5.0)), *points_of((1, 10, 7.0), replica="worker-1")]
    assert curves(both).metrics[0].points == ((10, 5.0),)
    assert curves(both, replica="worker-1").metrics[0].points == ((10, 7.0),)


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ([6.0 * math.exp(-step / 20) for step in range(200)], True),
        ([1.0 - step / 400 for step in range(200)], False),
        ([0.1 + step / 200 for step in range(200)], False),
        ([10.0, 0.0, 1000.0], False),
        ([-1.0, 2.0, 3000.0], False),
        ([5.0], False),
        ([5.0, 5.0, 5.0], False),
        ([], False),
    ],
    ids=["decay", "line", "rising", "zero", "negative", "single", "constant", "empty"],
)
def test_a_logarithmic_axis_is_chosen_where_a_linear_one_would_be_flat(values: list[float], log: bool) -> None:
    assert prefers_log(values) is log


def test_thinning_keeps_ends_peaks_and_order() -> None:
    points = [(float(x), math.sin(x / 50)) for x in range(10_000)]
    points[4321] = (4321.0, 99.0)
    few = thinned(points, 200)
    assert len(few) <= 200
    assert few[0] == points[0]
    assert few[-1] == points[-1]
    assert (4321.0, 99.0) in few
    assert list(few) == sorted(few)
    assert thinned(points[:3], 200) == tuple(points[:3])


def test_points_are_read_from_the_annotations_of_pods_each_once() -> None:
    tape = TeamTape(workers=1)
    tape.write_job(0)
    tape.create(1, 0, "a", node="n")
    tape.run(2, 0)
    tape.report(3, 0, '{"progress": {"step": 10, "loss": 2.5}}')
    tape.set_ready(4, 0, ready=True)
    tape.report(5, 0, '{"progress": {"step": 20, "loss": 1.5}}')
    points = progress_points([*tape.versions, *tape.versions], "bert")
    assert points == [
        ProgressPoint(START + 3, 10, {"loss": 2.5}, "worker-0", 0),
        ProgressPoint(START + 5, 20, {"loss": 1.5}, "worker-0", 0),
    ]


def test_points_are_read_from_the_job_where_no_pod_reports() -> None:
    tape = TeamTape(workers=1)
    tape.write_job(3.2, progress={"step": 10, "metrics": {"loss": 2.5}, "replica": "worker-0"})
    tape.write_job(4.2, progress={"step": 20, "metrics": {"loss": 1.5}, "replica": "worker-0"})
    assert [(point.step, point.metrics) for point in progress_points(tape.versions, "bert")] == [
        (10, {"loss": 2.5}),
        (20, {"loss": 1.5}),
    ]


def test_a_curve_marks_the_kill_that_the_timeline_shows() -> None:
    tape = TeamTape(workers=1)
    tape.write_job(0)
    tape.create(1, 0, "a", node="n")
    tape.run(2, 0)
    tape.report(3, 0, '{"progress": {"step": 10, "loss": 2.5}}')
    tape.end(4.5, 0, 137, phase="Running")
    tape.run(6.5, 0, restarts=1)
    tape.report(7, 0, '{"progress": {"step": 5, "loss": 3.5}}')
    marks = team_timeline(tape.versions, START + 9).marks
    [curve] = curves(progress_points(tape.versions, "bert"), marks).metrics
    assert [(mark.x, mark.kind) for mark in curve.marks] == [(10, "failure"), (10, "restart")]
