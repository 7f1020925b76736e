"""Names, log lines, messages and YAML that look like markup stay text, and nothing of them runs."""

from typing import Any

import pytest

from support.browser import OpenedPage, PageOpener
from support.example_dashboard import team
from support.example_dashboard.server import ExampleServer

PAYLOADS = (
    "<img src=x onerror=\"document.title='taken'\">",
    "<script>document.title='taken'</script>",
    "\"><svg onload=document.title='taken'>",
    "javascript:document.title='taken'",
    "{{constructor.constructor('document.title=`taken`')()}}",
    "<style>body{display:none}</style><iframe src=//evil.example>",
)
MARKER = "hostile"
TEXT = f"{MARKER} {' '.join(PAYLOADS)}"


def spoil(example: ExampleServer) -> None:
    """Put the payloads wherever a user or a program decides what is written."""
    text = TEXT
    row: dict[str, Any] = example.rows[0] | {
        "reason": text,
        "queue": text,
        "name": text,
        "namespace": text,
        "kind": text,
    }
    row["progress"] = team.progress(1, 2, 3) | {"metrics": {text: 1.0}}
    example.rows = [row]
    detail = team.job_detail(row)
    detail["yaml"] = f"metadata:\n  annotations:\n    note: {text}\n"
    for event in detail["events"]:
        event["message"] = event["reason"] = event["object"] = text
    for pod in detail["pods"]:
        pod["reason"] = pod["node"] = pod["exit"] = text
    for condition in detail["conditions"]:
        condition["message"] = text
    for mark in detail["timeline"]["marks"]:
        mark["text"] = text
    detail["timeline"]["rows"][0]["name"] = text
    example.detail = detail
    example.why = {
        "headline": text,
        "cause": text,
        "evidence": [{"text": text, "link": None}],
        "next": [{"text": text, "command": text}],
        "healthy": False,
    }
    example.lines = [{"at": team.unix(100), "replica": "worker-0", "attempt": 0, "text": text, "repeats": 1}]
    example.cluster["nodes"][0] |= {"name": text, "gangs": [{"namespace": text, "job": text, "pods": 1}]}
    example.refused = [{"resource": text, "namespace": text, "message": text}]


def assert_is_text(opened: OpenedPage) -> None:
    page = opened.page
    page.wait_for_selector(f"text={MARKER}", state="attached")
    opened.settle()
    assert TEXT in page.evaluate("() => document.body.textContent")
    assert "taken" not in page.evaluate("() => document.title.replace(/hostile.*/, '')")
    inserted = (
        "main img, main script, main iframe, main style, main [onerror], main [onload], main a[href^='javascript:']"
    )
    assert page.locator(inserted).count() == 0


@pytest.mark.parametrize("address", ["", "?layout=lanes", f"job/{team.BERT}", "cluster"])
def test_hostile_text_stays_text(example: ExampleServer, open_page: PageOpener, address: str) -> None:
    spoil(example)
    opened = open_page(example.url)
    opened.go(f"#/{address}")
    assert_is_text(opened)


@pytest.mark.parametrize("tab", ["logs", "events", "pods", "conditions", "yaml"])
def test_hostile_text_stays_text_in_the_parts_of_a_job(example: ExampleServer, open_page: PageOpener, tab: str) -> None:
    spoil(example)
    opened = open_page(example.url)
    opened.go(f"#/job/{team.BERT}?tab={tab}&search={'hostile' if tab == 'logs' else ''}")
    opened.page.wait_for_selector(f"#job-panel >> text={MARKER}", state="attached")
    opened.page.wait_for_function("(text) => document.getElementById('job-panel').textContent.includes(text)", arg=TEXT)
    assert_is_text(opened)
