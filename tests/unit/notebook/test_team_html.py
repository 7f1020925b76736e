"""What a notebook shows of a team."""

import copy
from typing import Any

from gangline import Job, Replica, pytorch_job
from gangline.api.core import Pod
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
    view.update_pods([pod("master-0", "Running"), pod("worker-0", "Failed"), pod("other-7", "Running")])
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
    view.update_pods([pod("master-0", "Running"), pod("worker-0", "Failed")])
    assert [row.state for row in view.frame(1).rows] == [STOPPED, "Failed"]
    stopped = team(1)
    stopped.update_pods([pod("master-0", "Running")])
    frame = stopped.frame(1, state=STOPPED, outcome="interrupted <here>")
    assert [row.state for row in frame.rows] == [STOPPED, STOPPED]
    assert "interrupted &lt;here&gt;" in team_html(frame)


def test_a_large_team_shows_the_ranks_that_need_attention() -> None:
    view = team(99)
    view.update_pods([pod(f"worker-{index}", "Running") for index in range(98)])
    view.update_pods([pod("worker-98", "Failed"), pod("master-0", "Running")])
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
