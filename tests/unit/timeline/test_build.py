"""Timelines from recorded versions: spans of replicas, marks, first failures, phases."""

import pytest

from gangline.api.in_place import IN_PLACE_REASON
from gangline.timeline.build import team_timeline
from gangline.timeline.model import TeamTimeline, TimedVersion, TimelineMark
from support.builders.team_tapes import START, TeamTape


def timeline_of(tape: TeamTape, now: float) -> TeamTimeline:
    return team_timeline(tape.versions, START + now)


def spans_of(timeline: TeamTimeline, row: str) -> list[tuple[str, float, float | None]]:
    """State, start and end of the spans of a row, in seconds since the start of the tape."""
    spans = next(found.spans for found in timeline.rows if found.name == row)
    return [
        (span.state, round(span.start - START, 3), None if span.end is None else round(span.end - START, 3))
        for span in spans
    ]


def marks_of(timeline: TeamTimeline, *kinds: str) -> list[tuple[str, float, str | None, str]]:
    return [
        (mark.kind, round(mark.at - START, 3), mark.row, mark.text)
        for mark in timeline.marks
        if not kinds or mark.kind in kinds
    ]


@pytest.fixture
def tape() -> TeamTape:
    """Two workers that run from second 2 on."""
    tape = TeamTape(workers=2)
    tape.write_job(0.1)
    tape.set_condition(0.2, "Created")
    for worker in (0, 1):
        tape.create(0.4, worker, f"pod-{worker}a")
        tape.bind(1.2, worker, "node-a")
        tape.run(2.3, worker)
    tape.set_condition(2.5, "Running")
    return tape


def test_a_replica_waits_starts_and_runs(tape: TeamTape) -> None:
    assert spans_of(timeline_of(tape, 10), "worker-0") == [
        ("waiting", 0.1, 0.4),
        ("waiting", 0.4, 1.2),
        ("starting", 1.2, 2.3),
        ("running", 2.3, None),
    ]


def test_rows_are_in_the_order_of_types_and_indexes() -> None:
    tape = TeamTape(workers=11)
    tape.write_job(0)
    tape.create(1, 10, "a")
    assert [row.name for row in timeline_of(tape, 5).rows] == [f"worker-{index}" for index in range(11)]


def test_a_replica_without_a_pod_waits_for_one() -> None:
    tape = TeamTape(workers=1)
    tape.write_job(0.5)
    [row] = timeline_of(tape, 5).rows
    assert [(span.state, span.text, span.end) for span in row.spans] == [("waiting", "no pod", None)]


def test_a_killed_worker_fails_and_its_replacement_is_a_restart(tape: TeamTape) -> None:
    tape.end(10.4, 1, 137)
    tape.write_job(10.6, firstFailure={"replica": "worker-1", "exitCode": 137, "time": "2027-01-15T08:00:10Z"})
    tape.request_deletion(10.7, 1)
    tape.remove(10.9, 1)
    tape.create(11.1, 1, "pod-1b", node="node-a")
    tape.run(12.6, 1)
    timeline = timeline_of(tape, 20)
    assert spans_of(timeline, "worker-1")[2:] == [
        ("starting", 1.2, 2.3),
        ("running", 2.3, 10.4),
        ("failed", 10.4, 10.9),
        ("waiting", 10.9, 11.1),
        ("starting", 11.1, 12.6),
        ("running", 12.6, None),
    ]
    assert marks_of(timeline) == [
        ("first-failure", 10.4, "worker-1", "exit 137 (SIGKILL)"),
        ("restart", 12.6, "worker-1", "restart 1"),
    ]
    assert [(link.cause_mark, link.consequence_marks) for link in timeline.links] == [(0, (1,))]
    assert timeline.rows[1].spans[-1].attempt == 1


def test_a_container_restarted_in_place_waits_in_between(tape: TeamTape) -> None:
    tape.end(10.4, 1, 137, "OOMKilled", phase="Running")
    tape.back_off(11.0, 1)
    tape.run(15.2, 1, restarts=1)
    timeline = timeline_of(tape, 20)
    assert spans_of(timeline, "worker-1")[3:] == [
        ("running", 2.3, 10.4),
        ("waiting", 10.4, 15.2),
        ("running", 15.2, None),
    ]
    assert marks_of(timeline) == [
        ("oom", 10.4, "worker-1", "OOMKilled, exit 137"),
        ("restart", 15.2, "worker-1", "restart 1"),
    ]


def test_a_team_that_restarts_in_place_has_one_failure(tape: TeamTape) -> None:
    tape.end(10.4, 1, 42, phase="Running")
    tape.write_job(13.6, firstFailure={"replica": "worker-1", "exitCode": 42, "time": "2027-01-15T08:00:10Z"})
    tape.end(14.0, 0, 143, IN_PLACE_REASON, phase="Running")
    for worker in (0, 1):
        tape.run(14.5, worker, restarts=1)
    timeline = timeline_of(tape, 20)
    assert marks_of(timeline) == [
        ("first-failure", 10.4, "worker-1", "exit 42"),
        ("restart", 14.5, "worker-0", "restart 1 in place"),
        ("restart", 14.5, "worker-1", "restart 1 in place"),
    ]
    assert [(link.cause_mark, link.consequence_marks) for link in timeline.links] == [(0, (1, 2))]


def test_failures_after_the_first_one_follow_from_it(tape: TeamTape) -> None:
    tape.end(10.4, 1, 1)
    tape.end(14.2, 0, 1)
    tape.write_job(14.6, firstFailure={"replica": "worker-1", "exitCode": 1, "time": "2027-01-15T08:00:10Z"})
    timeline = timeline_of(tape, 20)
    assert [(mark.kind, mark.row, mark.cause) for mark in timeline.marks] == [
        ("first-failure", "worker-1", True),
        ("failure", "worker-0", False),
    ]
    assert [(link.cause_mark, link.consequence_marks) for link in timeline.links] == [(0, (1,))]


def test_a_replica_that_is_stopped_with_its_team_has_not_failed(tape: TeamTape) -> None:
    tape.request_deletion(10.2, 0)
    tape.end(11.4, 0, 143)
    tape.remove(11.6, 0)
    tape.create(12.1, 0, "pod-0b")
    timeline = timeline_of(tape, 13)
    assert spans_of(timeline, "worker-0")[3:] == [
        ("running", 2.3, 11.4),
        ("stopped", 11.4, 11.6),
        ("waiting", 11.6, 12.1),
        ("waiting", 12.1, None),
    ]
    assert marks_of(timeline) == []


def test_a_pod_deleted_without_a_last_word_is_stopped_when_its_deletion_was_requested(tape: TeamTape) -> None:
    tape.request_deletion(10.2, 0)
    tape.remove(11.6, 0)
    assert spans_of(timeline_of(tape, 13), "worker-0")[3:] == [
        ("running", 2.3, 10.2),
        ("stopped", 10.2, 11.6),
        ("waiting", 11.6, None),
    ]


def test_an_evicted_pod_is_marked(tape: TeamTape) -> None:
    tape.fail_pod(9.3, 0, "Evicted")
    timeline = timeline_of(tape, 13)
    assert spans_of(timeline, "worker-0")[3:] == [("running", 2.3, 9.3), ("failed", 9.3, None)]
    assert marks_of(timeline) == [("eviction", 9.3, "worker-0", "Evicted")]


def test_a_replica_on_a_node_that_does_not_answer_is_lost_until_it_does(tape: TeamTape) -> None:
    tape.set_node(0.0, "node-a", "True")
    tape.set_node(8.2, "node-a", "Unknown")
    tape.set_node(12.2, "node-a", "True")
    timeline = timeline_of(tape, 20)
    assert spans_of(timeline, "worker-1")[3:] == [
        ("running", 2.3, 8.2),
        ("lost", 8.2, 12.2),
        ("running", 12.2, None),
    ]
    assert marks_of(timeline) == [("node-lost", 8.2, None, "node node-a does not answer")]


def test_a_process_that_stops_being_ready_is_shown(tape: TeamTape) -> None:
    tape.set_ready(5.2, 0, ready=False)
    tape.set_ready(7.4, 0, ready=True)
    assert spans_of(timeline_of(tape, 9), "worker-0")[3:] == [
        ("running", 2.3, 5.2),
        ("not-ready", 5.2, 7.4),
        ("running", 7.4, None),
    ]


def test_a_suspended_job_stops_its_replicas(tape: TeamTape) -> None:
    tape.set_condition(8.2, "Suspended")
    for worker in (0, 1):
        tape.request_deletion(8.3, worker)
        tape.end(8.8, worker, 143)
        tape.remove(9.0, worker)
    tape.set_condition(15.3, "Suspended", "False")
    tape.create(16.2, 0, "pod-0b")
    timeline = timeline_of(tape, 20)
    assert spans_of(timeline, "worker-0")[3:] == [
        ("running", 2.3, 8.8),
        ("stopped", 8.8, 9.0),
        ("stopped", 9.0, 15.3),
        ("waiting", 15.3, 16.2),
        ("waiting", 16.2, None),
    ]
    assert marks_of(timeline) == [("suspended", 8.2, None, "suspended"), ("resumed", 15.3, None, "resumed")]


def test_replicas_of_a_larger_scale_begin_with_it_and_those_of_a_smaller_one_end(tape: TeamTape) -> None:
    tape.scale(5.2, 3)
    tape.create(5.6, 2, "pod-2a", node="node-a")
    tape.run(6.4, 2)
    tape.scale(9.2, 1)
    for worker in (1, 2):
        tape.request_deletion(9.3, worker)
        tape.end(9.8, worker, 143)
        tape.remove(10.1, worker)
    timeline = timeline_of(tape, 20)
    assert spans_of(timeline, "worker-2") == [
        ("waiting", 5.2, 5.6),
        ("starting", 5.6, 6.4),
        ("running", 6.4, 9.8),
        ("stopped", 9.8, 10.1),
    ]
    assert marks_of(timeline) == [("scaled", 5.2, None, "worker 2 → 3"), ("scaled", 9.2, None, "worker 3 → 1")]


def test_actions_of_operator_and_scheduler_are_marked_together(tape: TeamTape) -> None:
    for worker in (0, 1):
        tape.add_event(0.4, "pytorchjob-controller", "SuccessfulCreatePod", f"Created pod: bert-worker-{worker}")
        tape.add_event(1.2, "gangline-scheduler", "Scheduled", f"Successfully assigned bert-worker-{worker}")
    tape.add_event(1.3, "kubelet", "Started", "Started container")
    assert marks_of(timeline_of(tape, 9)) == [
        ("operator", 0.4, None, "SuccessfulCreatePod: Created pod: bert-worker-0 (and 1 more)"),
        ("scheduler", 1.2, None, "Scheduled: Successfully assigned bert-worker-0 (and 1 more)"),
    ]


def test_a_finished_job_ends_its_timeline(tape: TeamTape) -> None:
    for worker in (0, 1):
        tape.end(9.4 + worker, worker, 0)
    tape.set_condition(10.6, "Succeeded")
    timeline = timeline_of(tape, 500)
    assert timeline.end == START + 10.6
    assert spans_of(timeline, "worker-1")[-2:] == [("running", 2.3, 10.4), ("succeeded", 10.4, None)]
    assert [span.state for span in timeline.phases] == ["Pending", "Created", "Running", "Succeeded"]


def test_versions_of_an_earlier_job_of_the_name_do_not_count(tape: TeamTape) -> None:
    tape.delete_job(20)
    second = TeamTape(workers=1)
    second._job["metadata"] = {**second._job["metadata"], "uid": "job-2"}
    second.write_job(30.2)
    timeline = team_timeline([*tape.versions, *second.versions], START + 40)
    assert [row.name for row in timeline.rows] == ["worker-0"]
    assert [span.state for span in timeline.rows[0].spans] == ["waiting"]


def test_without_a_job_the_timeline_is_empty() -> None:
    assert team_timeline([TimedVersion(1.0, "//pods/default/x", {})], 5.0) == TeamTimeline(5.0, 5.0)


def test_current_objects_alone_give_a_timeline_from_their_own_dates(tape: TeamTape) -> None:
    tape.end(10.4, 1, 137, "OOMKilled", phase="Running")
    tape.back_off(11.0, 1)
    tape.run(15.2, 1, restarts=1)
    newest = {version.path: version.body for version in tape.versions}
    timeline = team_timeline([TimedVersion(START + 100, path, body) for path, body in newest.items()], START + 100)
    assert spans_of(timeline, "worker-1") == [
        ("waiting", 0.0, 1.0),
        ("starting", 1.0, 2.0),
        ("running", 2.0, 10.0),
        ("waiting", 10.0, 15.0),
        ("running", 15.0, None),
    ]
    assert marks_of(timeline) == [
        ("oom", 10.0, "worker-1", "OOMKilled, exit 137"),
        ("restart", 15.0, "worker-1", "restart 1"),
    ]


def test_the_first_failure_of_a_replaced_pod_is_marked_without_its_pod() -> None:
    tape = TeamTape(workers=1)
    tape.write_job(100, firstFailure={"replica": "worker-0", "exitCode": 1, "time": "2027-01-15T08:00:10Z"})
    assert timeline_of(tape, 100).marks == (
        TimelineMark("first-failure", START + 10, "worker-0", "exit 1", cause=True),
    )


def test_a_stall_is_a_mark(tape: TeamTape) -> None:
    tape.set_condition(8.2, "Stalled")
    tape.set_condition(9.2, "Stalled", "False")
    tape.set_condition(12.2, "Stalled")
    assert [(kind, at, row) for kind, at, row, _ in marks_of(timeline_of(tape, 20))] == [
        ("stalled", 8.2, None),
        ("stalled", 12.2, None),
    ]
