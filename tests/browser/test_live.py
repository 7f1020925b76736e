"""Pages follow what happens, and heal when the connection is cut."""

import pytest

from support.browser import PageOpener
from support.example_dashboard import team
from support.example_dashboard.server import ExampleServer


def test_the_board_follows_patches(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.wait_for_selector("[data-id='team-a/pytorchjobs/llama-sft'] [data-state=Running]")
    failed = team.job_row("llama-sft", "Failed", reason="worker-9 exited with 1")
    example.publish("board", {"upsert": [failed], "remove": [team.BERT], "queues": None, "refused": None})
    opened.page.wait_for_selector("[data-id='team-a/pytorchjobs/llama-sft'] [data-state=Failed]")
    opened.page.wait_for_selector(f"[data-id='{team.BERT}']", state="detached")


def test_a_cut_connection_is_shown_and_heals(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.wait_for_selector(".live[data-state=live]")
    example.cut()
    opened.page.wait_for_selector(".live[data-state=cut]")
    opened.page.wait_for_selector("text=The connection has been cut")
    assert opened.page.locator(".job-line").count() > 5, "what was shown stays"
    assert opened.violations() == []
    example.rows = [team.job_row("after-the-cut", "Running")]
    example.mend()
    opened.page.wait_for_selector("[data-id='team-a/pytorchjobs/after-the-cut']")
    opened.page.wait_for_selector(".live[data-state=live]")
    assert opened.page.locator(".job-line").count() == 1


@pytest.mark.parametrize(
    ("locale", "badge", "sentence"),
    [("en-US", "Out of date", "no contact with the API server"), ("zh-CN", "已过时", "与 API 服务器失去联系")],
)
def test_data_of_a_server_that_is_lost_are_not_shown_as_live(
    example: ExampleServer, open_page: PageOpener, locale: str, badge: str, sentence: str
) -> None:
    opened = open_page(example.url, locale=locale)
    for address in ("#/", f"#/job/{team.BERT}", "#/cluster"):
        opened.go(address)
        opened.page.wait_for_selector(".live[data-state=live]")
        example.report_problem("10.0.0.1:6443 does not answer")
        opened.page.wait_for_selector(f".live[data-state=stale]:has-text('{badge}')")
        opened.page.wait_for_selector(f"text={sentence}")
        opened.page.wait_for_selector("text=10.0.0.1:6443 does not answer")
        assert opened.violations() == []
        example.report_problem("")
        opened.page.wait_for_selector(".live[data-state=live]")
        opened.page.wait_for_selector(f"text={sentence}", state="detached")


def test_a_change_of_one_kind_does_not_hide_that_another_is_lost(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.wait_for_selector(".live[data-state=live]")
    example.report_problem("pods cannot be read")
    opened.page.wait_for_selector(".live[data-state=stale]")
    stalled = team.job_row("llama-sft", "Stalled", reason="no progress for 10m")
    example.publish("board", {"upsert": [stalled], "remove": [], "queues": None, "refused": None})
    badge = "[data-id='team-a/pytorchjobs/llama-sft'] [data-state=Stalled]"
    opened.page.wait_for_selector(badge)
    assert opened.page.locator(".live").get_attribute("data-state") == "stale"
    assert opened.page.locator(badge).inner_text() == "Stalled"
    shapes = "(badge) => badge.querySelector('svg').innerHTML"
    drawn = opened.page.locator(badge).first.evaluate(shapes)
    assert drawn not in opened.page.locator(".badge:not([data-state=Stalled])").evaluate_all(
        "(badges) => badges.map((badge) => badge.querySelector('svg').innerHTML)"
    )


def test_a_job_that_is_deleted_stays_on_its_page(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go(f"#/job/{team.BERT}")
    opened.page.wait_for_selector(".timeline-picture .mark")
    example.publish("job", {"deleted": True})
    opened.page.wait_for_selector("text=This job has been deleted")
    assert opened.page.locator(".timeline-picture .mark").count() > 3


def test_only_one_stream_is_open_and_it_is_closed_with_its_view(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.wait_for_selector(".job-line")
    opened.page.keyboard.type("gc")
    opened.page.wait_for_selector(".heat-cell")
    example.wait_for_followers({"board": 0, "job": 0, "cluster": 1})


def test_dragging_over_the_timeline_selects_a_span(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go(f"#/job/{team.BERT}")
    picture = opened.page.locator(".timeline-picture")
    picture.wait_for()
    box = picture.bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + 300, box["y"] + 100)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 500, box["y"] + 120, steps=4)
    opened.page.mouse.up()
    opened.page.wait_for_selector(".brush")
    assert "from=" in opened.page.url
    opened.page.get_by_role("button", name="Zoom in").click()
    opened.page.get_by_role("button", name="Whole run").wait_for()
    opened.page.get_by_role("button", name="Clear selection").click()
    opened.page.wait_for_selector(".brush", state="detached")


def test_evidence_leads_to_its_line(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go(f"#/job/{team.BERT}?tab=yaml")
    opened.page.get_by_role("button", name="Show in the logs").click()
    opened.page.wait_for_selector(".log-line mark:has-text('allocating attention mask')")
    assert opened.page.locator(".log-line").count() == 1
