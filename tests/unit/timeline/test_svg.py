"""Timelines as pictures: well formed, with a bar per span, marks and links, and nothing that a name could inject."""

from xml.etree import ElementTree as ET

from gangline.timeline.build import team_timeline
from gangline.timeline.model import ReplicaRow, StateSpan, TeamTimeline
from gangline.timeline.svg import MAX_ROWS, duration_text, timeline_svg
from support.builders.team_tapes import START, TeamTape, stamp

SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_has_a_bar_for_each_span_and_joins_a_failure_to_its_consequences() -> None:
    tape = TeamTape(workers=2)
    tape.write_job(0.0)
    for worker in (0, 1):
        tape.create(0.0, worker, f"pod-{worker}", node="node-a")
        tape.run(4.0, worker)
    tape.end(20.0, 1, 137)
    tape.end(22.0, 0, 1)
    tape.write_job(23.0, firstFailure={"replica": "worker-1", "exitCode": 137, "time": stamp(20)})
    timeline = team_timeline(tape.versions, START + 40)
    root = ET.fromstring(timeline_svg(timeline))
    bars = [rect.findtext(f"{SVG}title") for rect in root.iter(f"{SVG}rect")]
    assert len(bars) == sum(len(row.spans) for row in timeline.rows)
    assert "worker-1: running · 16.0 s · node-a" in bars
    assert [path for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray")], "no link"
    assert {"worker-0", "worker-1"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_names_and_texts_cannot_add_markup() -> None:
    evil = '<script>alert("x")</script>'
    rows = (ReplicaRow(evil, "worker", 0, (StateSpan("running", 0.0, None, 0, evil, evil),)),)
    root = ET.fromstring(timeline_svg(TeamTimeline(0.0, 9.0, rows)))
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "title", "rect", "text", "path")
    }


def test_a_large_team_shows_a_limited_number_of_rows() -> None:
    rows = tuple(ReplicaRow(f"worker-{at}", "worker", at, (StateSpan("running", 0.0),)) for at in range(500))
    root = ET.fromstring(timeline_svg(TeamTimeline(0.0, 9.0, rows)))
    assert len(list(root.iter(f"{SVG}rect"))) == MAX_ROWS


def test_nothing_is_drawn_of_nothing() -> None:
    assert timeline_svg(TeamTimeline(5.0, 5.0)) == ""
    assert timeline_svg(TeamTimeline(5.0, 9.0)) == ""


def test_durations_are_short() -> None:
    assert [duration_text(seconds) for seconds in (0.04, 59.94, 125, 12_000)] == [
        "0.0 s",
        "59.9 s",
        "2 min 5 s",
        "3 h 20 min",
    ]
