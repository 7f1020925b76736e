"""Timelines as lines of text: rows, marks, curves, at any width and in ASCII."""

import math
import re

import pytest

from gangline.cli.output.metric_curve import metric_curve_lines
from gangline.cli.output.text import Span, clip_line, column_count, plain_text
from gangline.cli.output.timeline import (
    TimelineStyle,
    is_eventful,
    legend_lines,
    mark_lines,
    timeline_lines,
    visible_rows,
)
from gangline.timeline.build import team_timeline
from gangline.timeline.model import ProgressPoint, TeamTimeline, TimelineMark
from support.builders.team_tapes import START, TeamTape, stamp


def killed_team(workers: int = 2) -> TeamTimeline:
    """Workers that run from second 4 on; worker-1 is killed at second 20 and runs again at 24; now is second 40."""
    tape = TeamTape(workers)
    tape.write_job(0.0)
    for worker in range(workers):
        tape.create(0.0, worker, f"pod-{worker}", node="node-a")
        tape.run(4.0, worker)
    tape.end(20.0, 1, 137)
    tape.write_job(20.0, firstFailure={"replica": "worker-1", "exitCode": 137, "time": stamp(20)})
    tape.request_deletion(20.0, 1)
    tape.remove(20.0, 1)
    tape.create(21.0, 1, "pod-1b", node="node-a")
    tape.run(24.0, 1)
    return team_timeline(tape.versions, START + 40)


def texts(lines: object) -> list[str]:
    return [plain_text(line).rstrip() for line in lines]  # type: ignore[attr-defined]


def test_rows_show_states_and_marks_at_their_time() -> None:
    assert texts(timeline_lines(killed_team(), TimelineStyle(width=52))) == [
        "            00:00                              00:40",
        "  worker-0  ░░░░▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆",
        "  worker-1  ░░░░▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆✖░░░↻▆▆▆▆▆▆▆▆▆▆▆▆▆▆▆",
    ]


def test_what_happened_is_written_out_and_joined_to_its_cause() -> None:
    assert texts(mark_lines(killed_team())) == [
        "   20.0 s    ✖ worker-1  failed first: exit 137 (SIGKILL)",
        "   24.0 s  └─↻ worker-1  restart 1",
    ]
    assert texts(legend_lines(killed_team())) == ["  · waiting  ░ starting  ▆ running  ✖ failure  ↻ restart"]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    style = TimelineStyle(width=width, names={"worker-1": "worker-1 (rank 2)"})
    points = [ProgressPoint(START + at, at, {"loss": 9.0 - at / 9}, "worker-0") for at in range(4, 40)]
    timeline = killed_team(workers=4)
    lines = [*timeline_lines(timeline, style, points, ["loss"]), *legend_lines(timeline, style)]
    lines += mark_lines(timeline, style)
    assert all(len(plain_text(line).rstrip()) <= width for line in lines)


def test_without_the_signs_everything_is_written_in_ascii() -> None:
    style = TimelineStyle(width=52, ascii=True)
    timeline = killed_team(workers=9)
    points = [ProgressPoint(START + at, at, {"loss": 9.0 - at / 9}, "worker-0") for at in range(4, 40)]
    lines = [*timeline_lines(timeline, style._replace(rows=2), points, ["loss"]), *legend_lines(timeline, style)]
    assert all(plain_text(line).isascii() for line in [*lines, *mark_lines(timeline, style)])
    assert texts(timeline_lines(timeline, style._replace(rows=1)))[1:] == [
        "  worker-1  ----================X---R===============",
        "  ... and 8 more",
    ]


def test_the_failed_replica_is_shown_first_where_room_is_short() -> None:
    assert [row.name for row in visible_rows(killed_team(workers=20), 3)] == ["worker-0", "worker-1", "worker-2"]
    assert [row.name for row in visible_rows(killed_team(workers=20), 1)] == ["worker-1"]


def test_a_metric_gets_a_row_under_the_same_axis_of_time() -> None:
    points = [
        ProgressPoint(START + at, at, {"loss": 6 * math.exp(-(at - 4) / 4), "acc": at}, "worker-0")
        for at in range(4, 40)
    ]
    lines = texts(timeline_lines(killed_team(), TimelineStyle(width=54), points, ["acc", "loss", "missing"]))
    rising, falling = (line[14:] for line in lines[3:])
    assert [line[:14].strip() for line in lines[3:]] == ["acc", "loss (log)"]
    # Blank before the first report at second 4 of 40.
    assert rising.index("▁") == falling.index("█") == 4
    assert rising.strip() == "".join(sorted(rising.strip()))
    assert falling.strip() == "".join(sorted(falling.strip(), reverse=True))
    assert set("▁▂▃▄▅▆▇█") == set(rising.strip()) == set(falling.strip())


@pytest.mark.parametrize("name", ["损失函数的值", "loss of " + "everything " * 20, "e\u0301te"])
def test_wide_and_long_names_of_metrics_leave_room_for_bars(name: str) -> None:
    points = [ProgressPoint(START + second, second, {name: 1.0 / (second + 1)}) for second in range(40)]
    lines = texts(timeline_lines(killed_team(), TimelineStyle(width=52), points, [name]))
    assert len(lines) == 4
    assert max(map(column_count, lines)) <= 52
    bars = [column_count(line[: re.search("[░▆▁▂▃▄▅▆▇█]", line).start()]) for line in lines[1:]]  # type: ignore[union-attr]
    assert len(set(bars)) == 1


@pytest.mark.parametrize(("width", "text"), [(0, ""), (1, ""), (2, "损"), (3, "损"), (4, "损失"), (9, "损失 x")])
def test_a_line_is_cut_by_its_columns(width: int, text: str) -> None:
    assert plain_text(clip_line((Span("损失"), Span(" x")), width)) == text


def test_uneventful_timelines_say_so() -> None:
    assert is_eventful(killed_team())
    assert not is_eventful(TeamTimeline(0, 9, marks=(TimelineMark("scheduler", 1.0),)))
    assert mark_lines(TeamTimeline(0, 9)) == []
    assert timeline_lines(TeamTimeline(9, 9)) == []


def test_many_marks_are_cut_in_the_middle() -> None:
    marks = tuple(TimelineMark("restart", float(at), "worker-0", f"restart {at}") for at in range(30))
    lines = texts(mark_lines(TeamTimeline(0.0, 30.0, marks=marks)))
    assert len(lines) == 13
    assert lines[-2:] == ["           … and 18 more", "   29.0 s  ↻ worker-0  restart 29"]


def test_a_curve_marks_kill_and_restart_and_names_its_logarithmic_axis() -> None:
    points = {
        "worker-1": [ProgressPoint(START + at, at, {"loss": 6 * math.exp(-at / 4)}, "worker-1") for at in range(40)]
    }
    lines = texts(metric_curve_lines("loss", points, killed_team().marks, 60))
    assert lines[-1] == "loss from step 0 to 39, logarithmic"
    assert lines[-2].split() == ["✖", "↻"]
    # Right below the steps at which it happened: 20 and 24 of 39.
    axis = lines[0].index("┤") + 1
    columns = [lines[-2].index(sign) - axis for sign in "✖↻"]
    assert columns == [int(step / 39 * 45) for step in (20, 24)]


def test_a_metric_that_nobody_reported_has_no_curve() -> None:
    assert metric_curve_lines("loss", {"worker-0": [ProgressPoint(1.0, 1, {"acc": 1.0}, "worker-0")]}) == []
