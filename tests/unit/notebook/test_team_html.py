"""What a notebook shows of a team."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree as ET

from msgspec.structs import replace

from gangline import Job, Replica, pytorch_job
from gangline.api.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
)
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE
from gangline.notebook.team_html import MAX_ROWS, TAIL_LINES, elapsed, team_html, team_text
from gangline.notebook.team_view import STOPPED, TeamView
from gangline.testing.builders import make_pod


def team(workers: int, state: str = "Running") -> TeamView:
    job = pytorch_job("fit", master=Replica("any"), worker=Replica("any", replicas=workers))
    body: dict[str, Any] = copy.deepcopy(job.to_dict())
    body["status"] = {"conditions": [{"type": state, "status": "True"}]}
    return TeamView(Job(body))


def pod(replica: str, phase: str) -> Pod:
    return make_pod(f"fit-{replica}", phase=phase)


def test_every_rank_has_a_row_from_the_beginning() -> None:
    rows = team(2).frame(0).rows
    assert [(row.replica, row.rank, row.state) for row in rows] == [
        ("master-0", 0, "Pending"),
        ("worker-0", 1, "Pending"),
        ("worker-1", 2, "Pending"),
    ]


def test_pods_and_lines_fill_the_rows() -> None:
    view = team(1)
    view.update_pods([pod("master-0", "Running"), pod("worker-0", "Failed"), pod("other-7", "Running")], 0.0)
    assert view.add_line("fit-worker-0", '{"progress": {"step": 2, "total": 4, "loss": 0.5}}') is None
    assert view.add_line("fit-worker-0", 'gangline-result:{"rank": 1}') is None
    assert view.add_line("fit-worker-0", "<b>epoch</b>") == "rank 1│ <b>epoch</b>"
    frame = view.frame(67)
    assert [row.state for row in frame.rows] == ["Running", "Failed"]
    html = team_html(frame)
    assert '<progress max="4" value="2"></progress> 2/4 loss 0.5' in html
    assert "rank 1│ &lt;b&gt;epoch&lt;/b&gt;" in html
    assert "worker-0 (rank 1)" in html
    assert team_text(frame) == "pytorchjob/fit Running 01:07"
    assert dict(view.lines) == {"fit-worker-0": ("<b>epoch</b>",)}


def test_in_the_end_no_rank_runs() -> None:
    view = team(1, "Failed")
    view.update_pods([pod("master-0", "Running"), pod("worker-0", "Failed")], 0.0)
    assert [row.state for row in view.frame(1).rows] == [STOPPED, "Failed"]
    stopped = team(1)
    stopped.update_pods([pod("master-0", "Running")], 0.0)
    frame = stopped.frame(1, state=STOPPED, outcome="interrupted <here>")
    assert [row.state for row in frame.rows] == [STOPPED, STOPPED]
    assert "interrupted &lt;here&gt;" in team_html(frame)


def test_a_large_team_shows_the_ranks_that_need_attention() -> None:
    view = team(99)
    view.update_pods([pod(f"worker-{index}", "Running") for index in range(98)], 0.0)
    view.update_pods([pod("worker-98", "Failed"), pod("master-0", "Running")], 0.0)
    html = team_html(view.frame(1))
    assert html.count("<tr>") == MAX_ROWS
    assert "worker-98 (rank 99)" in html
    assert f"… and {100 - MAX_ROWS} more" in html


def test_a_long_log_is_folded() -> None:
    view = team(0)
    for number in range(TAIL_LINES + 3):
        view.add_line("fit-master-0", f"line {number}")
    html = team_html(view.frame(1))
    assert "<summary>3 earlier lines</summary>" in html
    assert html.index("line 2") < html.index("</details>") < html.index("line 3")


def test_time_is_short() -> None:
    assert (elapsed(7.9), elapsed(3750)) == ("00:07", "62:30")


def test_a_team_is_shown_with_its_timeline() -> None:
    view = team(1)
    view.job.to_dict()["metadata"]["creationTimestamp"] = "2026-11-18T10:00:00Z"
    start = datetime(2026, 11, 18, 10, tzinfo=UTC)
    running, killed = member("worker-0", start, started=2), member("master-0", start, started=2, ended=20)
    view.update_pods([running, killed], start.timestamp() + 30)
    shown = team_html(view.frame(40, start.timestamp() + 40))
    assert "master-0 (rank 0)" in shown
    picture = ET.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6])
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert "master-0: running · 18.0 s · node-a" in titles
    assert "master-0: failed · exit 137 (SIGKILL) · 20.0 s · node-a" in titles
    assert "worker-0: running · 38.0 s · node-a" in titles
    assert "master-0: exit 137 (SIGKILL)" in titles


def test_a_team_that_has_not_begun_has_no_timeline() -> None:
    assert "<svg" not in team_html(team(2).frame(0.2, 5.0))


def member(replica: str, start: datetime, *, started: int, ended: int | None = None) -> Pod:
    """A pod whose process runs from a second on, and was killed at another."""
    begin = start + timedelta(seconds=started)
    state = ContainerState(running=ContainerStateRunning(started_at=begin))
    if ended is not None:
        finished = start + timedelta(seconds=ended)
        state = ContainerState(
            terminated=ContainerStateTerminated(exit_code=137, started_at=begin, finished_at=finished)
        )
    made = pod(replica, "Running" if ended is None else "Failed")
    kind, _, index = replica.partition("-")
    labels = {REPLICA_TYPE: kind, REPLICA_INDEX: index}
    return replace(
        made,
        metadata=replace(made.metadata, labels=labels, creation_timestamp=start, uid=replica),
        spec=replace(made.spec, node_name="node-a", containers=(Container(name="pytorch"),)),
        status=replace(made.status, container_statuses=(ContainerStatus(name="pytorch", state=state),)),
    )
