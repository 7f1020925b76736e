"""Timelines of real teams, recorded on the local plane by hack/timelines.py."""

import json
import lzma
from itertools import groupby
from pathlib import Path

import pytest

from gangline.timeline.build import team_timeline
from gangline.timeline.curves import curves, progress_points
from gangline.timeline.live import LiveTimeline
from gangline.timeline.model import TeamTimeline, TimedVersion

FOLDER = Path(__file__).parents[2] / "data" / "timelines"
NAMES = sorted(file.name.removesuffix(".json.xz") for file in FOLDER.glob("*.json.xz"))


def recorded(name: str) -> list[TimedVersion]:
    lines = json.loads(lzma.decompress((FOLDER / f"{name}.json.xz").read_bytes()))
    return [TimedVersion(line["at"], line["path"], line["body"]) for line in lines]


def timeline_of(name: str) -> TeamTimeline:
    versions = recorded(name)
    return team_timeline(versions, versions[-1].at)


def states(timeline: TeamTimeline, row: str) -> list[str]:
    spans = next(found.spans for found in timeline.rows if found.name == row)
    return [str(state) for state, _ in groupby(span.state for span in spans)]


def happenings(timeline: TeamTimeline) -> list[tuple[str, str | None]]:
    return [(mark.kind, mark.row) for mark in timeline.marks if mark.kind not in ("operator", "scheduler")]


def linked(timeline: TeamTimeline) -> list[tuple[str | None, set[tuple[str, str | None]]]]:
    """The replica of each cause, with kind and replica of what followed."""
    marks = timeline.marks
    return [
        (marks[link.cause_mark].row, {(marks[at].kind, marks[at].row) for at in link.consequence_marks})
        for link in timeline.links
    ]


def test_every_scenario_is_recorded() -> None:
    assert NAMES == ["failing-rank", "gang-restart", "killed", "node-lost", "oom", "scale", "suspend"]


def test_a_killed_worker_is_restarted_in_its_pod() -> None:
    timeline = timeline_of("killed")
    assert states(timeline, "worker-1")[:5] == ["waiting", "starting", "running", "waiting", "running"]
    assert states(timeline, "worker-0")[:3] == ["waiting", "starting", "running"]
    assert happenings(timeline) == [("failure", "worker-1"), ("restart", "worker-1")]
    assert linked(timeline) == [("worker-1", {("restart", "worker-1")})]


def test_a_gang_restarts_because_of_the_first_failure() -> None:
    timeline = timeline_of("gang-restart")
    assert linked(timeline) == [("worker-1", {("restart", row) for row in ("master-0", "worker-0", "worker-1")})]
    assert "stopped" in states(timeline, "master-0")
    assert "failed" not in states(timeline, "master-0")
    assert "failed" in states(timeline, "worker-1")
    assert [span.state for span in timeline.gang_phases] == ["Pending", "Running", "Recovering", "Running"]
    assert [span.state for span in timeline.phases][-4:] == ["Running", "Restarting", "Running", "Succeeded"]
    assert any(mark.kind == "scheduler" and "3 members placed" in mark.text for mark in timeline.marks)


def test_a_replica_without_memory_is_marked_as_such() -> None:
    timeline = timeline_of("oom")
    assert happenings(timeline) == [("oom", "worker-1")]
    assert timeline.marks[timeline.links[0].cause_mark].text == "OOMKilled, exit 137"
    assert states(timeline, "worker-1")[-1] == "failed"


def test_ranks_that_fail_after_the_first_one_are_its_consequences() -> None:
    timeline = timeline_of("failing-rank")
    assert linked(timeline) == [("worker-1", {("failure", "master-0"), ("failure", "worker-0")})]
    assert timeline.marks[timeline.links[0].cause_mark].kind == "first-failure"


def test_replicas_on_a_lost_node_are_lost_until_it_answers() -> None:
    timeline = timeline_of("node-lost")
    assert states(timeline, "worker-0")[-3:] == ["running", "lost", "running"] or "lost" in states(timeline, "worker-0")
    assert ("node-lost", None) in happenings(timeline)
    assert linked(timeline) == [("worker-1", {("restart", "worker-1")})]


def test_replicas_come_and_go_with_the_scale() -> None:
    timeline = timeline_of("scale")
    assert [kind for kind, _ in happenings(timeline)] == ["scaled", "scaled"]
    last, first = timeline.rows[-1], timeline.rows[0]
    assert last.name == "worker-2"
    assert last.spans[0].start > first.spans[0].start + 1
    assert last.spans[-1].end is not None
    assert states(timeline, "worker-2")[-1] == "stopped"


def test_a_suspension_stops_the_team_and_is_no_restart() -> None:
    timeline = timeline_of("suspend")
    assert happenings(timeline) == [("suspended", None), ("resumed", None)]
    for row in timeline.rows:
        assert [state for state in states(timeline, row.name) if state in ("running", "stopped")][:3] == [
            "running",
            "stopped",
            "running",
        ]


@pytest.mark.parametrize("name", NAMES)
def test_a_timeline_is_the_same_in_any_order_and_with_repeated_versions(name: str) -> None:
    versions = recorded(name)
    now = versions[-1].at
    repeated = [copy for version in versions for copy in (version, version)]
    assert team_timeline(repeated, now) == team_timeline(versions, now)
    assert team_timeline(versions[::-1], now).rows == team_timeline(versions, now).rows


@pytest.mark.parametrize("name", NAMES)
def test_a_live_timeline_ends_as_the_recorded_one(name: str) -> None:
    versions, live = recorded(name), LiveTimeline()
    for version in versions:
        live.add(*version)
        live.timeline(version.at)
    now = versions[-1].at
    assert live.timeline(now, fresh=True) == team_timeline(versions, now)


@pytest.mark.parametrize("name", NAMES)
def test_current_objects_alone_show_the_same_rows_and_the_first_failure(name: str) -> None:
    versions = recorded(name)
    newest = {version.path: version.body for version in versions}
    now = versions[-1].at + 5
    alone = team_timeline([TimedVersion(now, path, body) for path, body in newest.items() if body is not None], now)
    whole = timeline_of(name)
    assert {row.name for row in alone.rows} <= {row.name for row in whole.rows}
    firsts = [(mark.kind, mark.row) for mark in whole.marks if mark.kind == "first-failure"]
    assert [(mark.kind, mark.row) for mark in alone.marks if mark.kind == "first-failure"] == firsts


@pytest.mark.parametrize("name", NAMES)
def test_reports_make_curves(name: str) -> None:
    versions = recorded(name)
    shown = curves(progress_points(versions, "team"), timeline_of(name).marks)
    assert {curve.replica for curve in shown.metrics} == {"master-0"}
    assert [curve.name for curve in shown.metrics] == ["loss", "rate"]
    for curve in shown.metrics:
        assert list(curve.points) == sorted(curve.points)
