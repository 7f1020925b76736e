"""The ledger of a job in words: shares, sums, and the time since its last entry. The page shows what is printed."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from gangline.api.meta import JSON
from gangline.cli.output import tables
from gangline.summary.goodput_rows import (
    HEADER,
    goodput_row,
    goodput_seconds,
    goodput_sums,
    goodput_text,
    share_text,
)

PAGE = (Path(__file__).parents[3] / "docs" / "goodput.md").read_text()
UNTIL = datetime(2026, 11, 18, 9, tzinfo=UTC)


def job(*, queue: str = "", namespace: str = "team", finished: bool = False, **ledger: JSON) -> JSON:
    condition = {"type": "Succeeded", "status": "True"}
    return {
        "metadata": {"name": "bert", "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "status": {
            "conditions": [condition] if finished else [],
            "goodput": {"since": "2026-11-18T08:00:00Z", "until": "2026-11-18T09:00:00Z", **ledger},
        },
    }


def test_the_time_since_the_last_entry_counts_as_what_the_replicas_did_then() -> None:
    running = job(seconds={"queueing": 10, "working": 100}, replicas={"working": 3, "queueing": 1})
    assert goodput_seconds(running, UNTIL + timedelta(seconds=5)) == {"queueing": 15, "working": 115}
    # A clock that is behind takes nothing away.
    assert goodput_seconds(running, UNTIL - timedelta(seconds=5)) == {"queueing": 10, "working": 100}


def test_nothing_is_added_to_the_ledger_of_a_finished_job() -> None:
    finished = job(seconds={"working": 100}, replicas={"working": 3}, finished=True)
    assert goodput_seconds(finished, UNTIL + timedelta(days=1)) == {"working": 100}


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"goodput": None},
        {"goodput": []},
        {"goodput": {"until": "soon", "seconds": {"working": "10"}, "replicas": {"working": True}}},
        {"goodput": {"seconds": {"working": -3, "dreaming": 7}, "replicas": 4}},
    ],
)
def test_a_status_without_a_ledger_that_can_be_read_says_nothing(status: JSON) -> None:
    body = {"metadata": {"name": "bert"}, "status": status}
    assert goodput_seconds(body, UNTIL) == {}
    assert goodput_text(body, UNTIL) == ""
    assert goodput_sums([body], UNTIL) == []


def test_jobs_are_added_up_by_namespace_and_queue() -> None:
    jobs = [
        job(queue="b", seconds={"working": 10}),
        job(queue="a", seconds={"working": 1}),
        job(queue="b", seconds={"working": 5, "idle": 5}),
        job(queue="b", namespace="other", seconds={"idle": 2}),
    ]
    assert [tuple(group) for group in goodput_sums(jobs, UNTIL)] == [
        ("other", "b", 1, {"idle": 2}),
        ("team", "a", 1, {"working": 1}),
        ("team", "b", 2, {"working": 15, "idle": 5}),
    ]


@pytest.mark.parametrize(
    ("part", "total", "text"),
    [(0, 5, "-"), (1, 1000, "<1 %"), (5, 1000, "<1 %"), (500, 1000, "50 %"), (999, 1000, ">99 %"), (7, 7, "100 %")],
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(part: int, total: int, text: str) -> None:
    assert share_text(part, total) == text


def test_the_page_shows_what_is_printed_of_its_status() -> None:
    block = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    body = {**job(queue="research"), **yaml.safe_load(block[1])}
    assert sum(goodput_seconds(body, UNTIL).values()) == 4 * 3600
    assert f"Goodput:       {goodput_text(body, UNTIL)}\n" in PAGE
    table = tables.render(HEADER, [goodput_row(group) for group in goodput_sums([body], UNTIL)])
    assert table in PAGE
