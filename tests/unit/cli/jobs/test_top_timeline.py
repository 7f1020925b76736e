"""The timeline of `gangline top`: from the objects of a job, seen once or again and again."""

import asyncio
from typing import Any, NamedTuple

from gangline.api.meta import JSON
from gangline.cli.jobs.top_timeline import TopTimeline
from gangline.cli.output.text import plain_text
from gangline.cli.output.timeline import TimelineStyle
from gangline.kube.errors import Forbidden, Status
from gangline.summary.objects import JOB_KINDS, ServerJob
from support.builders.team_tapes import START, TeamTape, stamp

PYTORCH = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")


class Page(NamedTuple):
    items: list[JSON]


class EventServer:
    """A server with these events; without any list, they are denied."""

    def __init__(self, events: list[JSON] | None) -> None:
        self._events = events

    async def list(self, *_: object) -> Page:
        if self._events is None:
            raise Forbidden(Status(code=403, message="events is forbidden"))
        return Page(self._events)


def look(top: TopTimeline, tape: TeamTape, at: float, events: list[JSON] | None = None) -> None:
    """Look at the newest objects of a tape."""
    newest = {version.path: version.body for version in tape.versions if version.at <= START + at}
    bodies = {path: body for path, body in newest.items() if body is not None}
    job = next(body for path, body in bodies.items() if "pytorchjobs" in path)
    pods = [body for path, body in bodies.items() if "/pods/" in path]
    client: Any = EventServer(events)
    asyncio.run(top.look(client, ServerJob(PYTORCH, job), pods, START + at))


def tape_with_a_kill() -> TeamTape:
    tape = TeamTape(workers=2)
    tape.write_job(0.0)
    for worker in (0, 1):
        tape.create(0.0, worker, f"pod-{worker}", node="node-a")
        tape.run(4.0, worker)
        tape.report(5.0, worker, '{"progress": {"step": 1, "loss": 2.5}}')
    tape.end(20.0, 1, 137)
    tape.write_job(20.0, firstFailure={"replica": "worker-1", "exitCode": 137, "time": stamp(20)})
    tape.remove(20.5, 1)
    tape.create(21.0, 1, "pod-1b", node="node-a")
    tape.run(24.0, 1)
    tape.report(25.0, 0, '{"progress": {"step": 9, "loss": 1.5}}')
    return tape


def texts(top: TopTimeline, now: float, *curves: str) -> list[str]:
    return [plain_text(line).rstrip() for line in top.lines(START + now, TimelineStyle(52), curves)]


def test_one_look_shows_what_the_objects_say() -> None:
    top = TopTimeline()
    look(top, tape_with_a_kill(), 40.0)
    assert texts(top, 40.0) == [
        "            00:00                              00:40",
        "  worker-0  ░░░░▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆",
        "  worker-1  ····················✖░░░▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆",
        "  · waiting  ░ starting  ▆ running  ✖ failure",
        "   20.0 s  ✖ worker-1  failed first: exit 137 (SIGKI",
    ]


def test_a_job_of_less_than_a_second_has_no_rows_and_still_its_failure() -> None:
    top, tape = TopTimeline(), TeamTape(workers=1)
    tape.create(0.0, 0, "pod-0", node="node-a")
    tape.run(0.0, 0)
    tape.end(0.0, 0, 3)
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": stamp(0)}
    tape.write_job(0.0, firstFailure={"replica": "worker-0", "exitCode": 3, "time": stamp(0)}, conditions=[failed])
    look(top, tape, 0.0)
    lines = texts(top, 5.0)
    assert [line for line in lines if "▆" in line] == []
    assert [line.split("✖")[1].split() for line in lines] == [["worker-0", "failed", "first:", "exit", "3"]]


def test_more_looks_show_more() -> None:
    top, tape = TopTimeline(), tape_with_a_kill()
    for at in (10.0, 20.2, 20.7, 30.0):
        look(top, tape, at)
    lines = texts(top, 40.0, "loss")
    assert lines[2] == "  worker-1  ░░░░▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆✖░░░↻▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆"
    assert "loss from step 1 to 9" in lines


def test_a_metric_without_a_curve_says_why() -> None:
    top = TopTimeline()
    look(top, tape_with_a_kill(), 10.0)
    assert texts(top, 10.0, "loss")[-1] == "no curve of loss: it needs two reports, and so far there is one, of loss"
    empty = TopTimeline()
    look(empty, tape_with_a_kill(), 4.5)
    assert texts(empty, 10.0, "loss")[-1] == "no curve of loss: nothing was reported"
