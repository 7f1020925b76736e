"""Pages follow what happens, and heal when the connection is cut."""

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
