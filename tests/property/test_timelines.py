"""Timelines of any history: spans in order without gaps, whole lives covered, nothing raised, repeats without effect."""

import copy
import json
import lzma
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gangline.cli.output.text import plain_text
from gangline.cli.output.timeline import TimelineStyle, legend_lines, mark_lines, timeline_lines
from gangline.timeline.build import team_timeline
from gangline.timeline.curves import curves, progress_points, thinned
from gangline.timeline.live import LiveTimeline
from gangline.timeline.model import ProgressPoint, SpanState, TeamTimeline, TimedVersion
from gangline.timeline.svg import timeline_svg
from support.builders.team_tapes import START, TeamTape, stamp

RECORDED = sorted((Path(__file__).parents[1] / "data" / "timelines").glob("*.json.xz"))
ACTIONS = ("bind", "run", "end", "crash", "fail", "delete", "remove", "create", "ready", "report")
JOB_ACTIONS = ("scale", "suspend", "resume", "outage", "answer", "first-failure", "succeed", "fail-job", "delete-job")

Steps = list[tuple[float, str, int]]
STEPS = st.lists(
    st.tuples(st.floats(0.0, 30.0), st.sampled_from((*ACTIONS, *ACTIONS, *JOB_ACTIONS)), st.integers(0, 2)), max_size=40
)


def play(steps: Steps) -> TeamTape:
    """A tape on which anything may follow anything, as a recorder with gaps would have it."""
    tape, at = TeamTape(workers=2), 0.0
    tape.write_job(at)
    uids = dict.fromkeys(range(3), 0)
    for worker in range(2):
        tape.create(at, worker, f"pod-{worker}-0")
    for pause, action, worker in steps:
        at += pause
        if action in JOB_ACTIONS:
            _act_on_job(tape, at, action, worker)
        elif action == "create":
            uids[worker] += 1
            tape.create(at, worker, f"pod-{worker}-{uids[worker]}")
        elif f"worker-{worker}" in tape._pods:
            _act_on_pod(tape, at, action, worker)
    return tape


def _act_on_pod(tape: TeamTape, at: float, action: str, worker: int) -> None:
    running = "running" in tape._container(worker).get("state", {})
    match action:
        case "bind":
            tape.bind(at, worker, "node-a")
        case "run":
            tape.run(at, worker, tape._container(worker).get("restartCount", -1) + 1)
        case "end" if running:
            tape.end(at, worker, worker)
        case "crash" if running:
            tape.end(at, worker, 137, phase="Running")
            tape.back_off(at + 0.1, worker)
        case "fail":
            tape.fail_pod(at, worker, "Evicted")
        case "delete":
            tape.request_deletion(at, worker)
        case "remove":
            tape.remove(at, worker)
        case "ready" if running:
            tape.set_ready(at, worker, ready=bool(int(at) % 2))
        case "report":
            tape.report(at, worker, json.dumps({"progress": {"step": int(at), "loss": at}}))


def _act_on_job(tape: TeamTape, at: float, action: str, number: int) -> None:
    match action:
        case "scale":
            tape.scale(at, number + 1)
        case "suspend" | "resume":
            tape.set_condition(at, "Suspended", "True" if action == "suspend" else "False")
        case "outage" | "answer":
            tape.set_node(at, "node-a", "Unknown" if action == "outage" else "True")
        case "first-failure":
            tape.write_job(at, firstFailure={"replica": f"worker-{number}", "exitCode": 1, "time": stamp(at)})
        case "succeed" | "fail-job":
            tape.set_condition(at, "Succeeded" if action == "succeed" else "Failed")
        case "delete-job":
            tape.delete_job(at)


def check(timeline: TeamTimeline) -> None:
    """What holds of every timeline."""
    assert timeline.start <= timeline.end
    assert len({row.name for row in timeline.rows}) == len(timeline.rows)
    for row in timeline.rows:
        assert row.spans
        for before, after in pairwise(row.spans):
            assert before.end == after.start, "a gap or an overlap"
            assert before.attempt <= after.attempt
        for span in row.spans:
            assert span.state in set(SpanState)
            assert span.end is None or span.start <= span.end
        assert all(span.end is not None for span in row.spans[:-1])
    for spans in (timeline.phases, timeline.gang_phases):
        for before, after in pairwise(spans):
            assert before.end == after.start
            assert before.state != after.state
    times = [mark.at for mark in timeline.marks]
    assert times == sorted(times)
    for link in timeline.links:
        cause = timeline.marks[link.cause_mark]
        assert cause.cause
        assert all(timeline.marks[at].at >= cause.at for at in link.consequence_marks)
        assert not any(timeline.marks[at].cause for at in link.consequence_marks)
    assert {link.cause_mark for link in timeline.links} == {at for at, mark in enumerate(timeline.marks) if mark.cause}
    assert msgspec.json.decode(msgspec.json.encode(timeline), type=TeamTimeline) == timeline


def draw(timeline: TeamTimeline, width: int = 70) -> None:
    for ascii_only in (False, True):
        style = TimelineStyle(width, ascii=ascii_only)
        lines = [*timeline_lines(timeline, style), *legend_lines(timeline, style), *mark_lines(timeline, style)]
        assert all(len(plain_text(line).rstrip()) <= width for line in lines)
        assert not ascii_only or all(plain_text(line).isascii() for line in lines)
    timeline_svg(timeline)


@given(STEPS, st.floats(0.0, 100.0))
def test_any_history_gives_a_whole_timeline(steps: Steps, later: float) -> None:
    tape = play(steps)
    timeline = team_timeline(tape.versions, tape.versions[-1].at + later)
    check(timeline)
    draw(timeline)
    # Every replica that had a pod has a row, from the creation of its first pod at the latest.
    for version in tape.versions:
        if "/pods/" in version.path:
            row = next(row for row in timeline.rows if version.path.endswith(row.name))
            assert row.spans[0].start <= version.at


@given(STEPS, st.integers(0, 5))
def test_repeated_versions_change_nothing(steps: Steps, every: int) -> None:
    versions = play(steps).versions
    repeated = [copied for at, version in enumerate(versions) for copied in [version] * (1 + (at % 6 <= every))]
    now = versions[-1].at + 1
    assert team_timeline(repeated, now) == team_timeline(versions, now)


@given(STEPS)
def test_a_live_timeline_is_the_one_of_all_versions(steps: Steps) -> None:
    versions, live = play(steps).versions, LiveTimeline()
    for version in versions:
        live.add(*version)
    now = versions[-1].at + 1
    assert live.timeline(now, fresh=True) == team_timeline(versions, now)


JUNK = st.sampled_from([None, 0, -1, 1e300, "", "junk", "9999-99-99T00:00:00Z", [], [None, 3], {}, {"a": None}, True])


@given(st.sampled_from(RECORDED), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), JUNK), max_size=25))
def test_no_recorded_history_is_too_broken_for_a_timeline(file: Path, changes: list[tuple[int, int, Any]]) -> None:
    lines = json.loads(lzma.decompress(file.read_bytes()))
    for line, field, junk in changes:
        body = lines[line % len(lines)]["body"]
        if body is not None:
            _replace(body, field, junk)
    versions = [TimedVersion(line["at"], line["path"], line["body"]) for line in lines]
    now = versions[-1].at
    timeline = team_timeline(versions, now)
    check(timeline)
    draw(timeline)
    live = LiveTimeline()
    for version in versions:
        live.add(*version)
    live.timeline(now, fresh=True)
    curves(progress_points(versions, "team"), timeline.marks)


def _replace(body: Any, number: int, junk: Any) -> None:
    """Replace one value anywhere in a body."""
    places: list[tuple[Any, Any]] = []
    pending = [body]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                pending.append(node[key])
    if places:
        node, key = places[number % len(places)]
        node[key] = copy.deepcopy(junk)


POINTS = st.lists(
    st.builds(
        ProgressPoint,
        st.floats(START, START + 1000),
        st.integers(0, 50).map(float),
        st.dictionaries(st.sampled_from(["loss", "acc"]), st.floats(allow_nan=True, allow_infinity=True), max_size=2),
        st.sampled_from(["worker-0", "worker-1"]),
    ),
    max_size=60,
)


@given(POINTS, st.sampled_from(["step", "time"]), st.integers(4, 20))
def test_curves_ascend_and_are_as_small_as_asked(points: list[ProgressPoint], over: str, size: int) -> None:
    for curve in curves(points, over=over, size=size).metrics:
        xs = [x for x, _ in curve.points]
        assert xs == sorted(set(xs))
        assert len(curve.points) <= size
        assert [x for x, _ in curve.repeated] == sorted(x for x, _ in curve.repeated)
        assert not curve.prefers_log or all(y > 0 for _, y in curve.points)


@given(st.lists(st.floats(-1e9, 1e9), max_size=300), st.integers(4, 50))
def test_thinned_points_keep_the_extremes(values: list[float], size: int) -> None:
    points = [(float(x), value) for x, value in enumerate(values)]
    few = thinned(points, size)
    assert set(few) <= set(points)
    if points:
        assert {few[0], few[-1]} == {points[0], points[-1]}
        assert min(y for _, y in few) == min(values)
        assert max(y for _, y in few) == max(values)
