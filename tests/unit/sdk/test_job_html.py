"""A job as HTML."""

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

from gangline.sdk.build.jobs import Replica, pytorch_job
from gangline.sdk.job import Job
from gangline.sdk.job_html import MAX_DOTS

START = datetime(2026, 1, 1, tzinfo=UTC)


def job(workers: int = 2, **status: Any) -> Job:
    body = pytorch_job("<b>", master=Replica("x"), worker=Replica("x", replicas=workers)).to_dict()
    body["metadata"]["namespace"] = "team"
    return Job({**body, "status": status})


def condition(kind: str, after: float, message: str = "") -> dict[str, Any]:
    at = (START + timedelta(seconds=after)).isoformat().replace("+00:00", "Z")
    return {"type": kind, "status": "True", "lastTransitionTime": at, "message": message}


class Balanced(HTMLParser):
    """Checks that every tag is closed properly."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rects = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.rects += tag == "rect"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Balanced:
    reader = Balanced()
    reader.feed(text)
    assert reader.open == []
    return reader


def test_a_job_shows_state_replicas_progress_and_time() -> None:
    found = job(
        conditions=[
            condition("Created", 0),
            condition("Running", 2),
            condition("Succeeded", 10, "a < b"),
        ],
        replicaStatuses={"Worker": {"states": {"Running": 1, "Failed": 1}}},
        progress={"step": 5, "total": 10, "metrics": {"loss": 0.25}},
        restarts=2,
    )._repr_html_()
    assert parsed(found).rects == 3
    assert "Succeeded" in found
    assert "2 restarts" in found
    assert 'title="Running"' in found
    assert 'title="Failed"' in found
    assert '<progress max="10" value="5">' in found
    assert "loss=0.25" in found
    assert "10 s" in found
    assert "a &lt; b" in found


def test_what_people_write_is_never_markup() -> None:
    found = job(conditions=[condition("Failed", 0, "<script>alert(1)</script>")])._repr_html_()
    assert "<script>" not in found
    assert "team/&lt;b&gt;" in found


def test_a_job_that_nobody_has_seen_yet_is_drawn_too() -> None:
    found = job()._repr_html_()
    parsed(found)
    assert "Pending" in found
    assert "<svg" not in found


def test_a_thousand_replicas_are_counted() -> None:
    found = job(1000)._repr_html_()
    assert found.count("●") == MAX_DOTS + 1
    assert "1000 in all" in found
