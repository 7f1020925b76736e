"""Every view at three widths: fits the window, breaks no rule of accessibility, in both lights and both languages."""

from pathlib import Path

import pytest

from support.browser import WIDTHS, PageOpener
from support.example_dashboard import team
from support.example_dashboard.server import ExampleServer

JOB = f"#/job/{team.BERT}"
VIEWS = {
    "board": ("#/", ".job-line"),
    "queues": ("#/?layout=lanes", ".card"),
    "job": (JOB, ".timeline-picture .mark"),
    "curves": (f"{JOB}?tab=curves", ".chart canvas"),
    "events": (f"{JOB}?tab=events", ".event"),
    "pods": (f"{JOB}?tab=pods", "#job-panel td"),
    "yaml": (f"{JOB}?tab=yaml", ".code-line"),
    "cluster": ("#/cluster", ".heat-cell"),
    "sweeps": ("#/sweeps", "td"),
    "sweep": ("#/sweeps/bert-lr", ".trial"),
    "submit": ("#/submit", "textarea"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_every_width_and_is_accessible(
    example: ExampleServer, open_page: PageOpener, tmp_path: Path, view: str
) -> None:
    address, part = VIEWS[view]
    opened = open_page(example.url)
    opened.go(address)
    for width in WIDTHS:
        opened.resize(width)
        opened.page.wait_for_selector(part)
        opened.settle()
        opened.picture(f"{view}-{width}", tmp_path)
        assert opened.overflow() <= 0, width
        assert opened.page.locator("h1").count() == 1
        assert opened.violations() == [], width


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_accessible_in_the_dark_and_in_chinese(
    example: ExampleServer, open_page: PageOpener, tmp_path: Path, view: str
) -> None:
    address, part = VIEWS[view]
    opened = open_page(example.url, scheme="dark", locale="zh-CN")
    opened.go(address)
    opened.page.wait_for_selector(part)
    opened.settle()
    opened.picture(f"{view}-dark-zh", tmp_path)
    assert opened.page.locator("html").get_attribute("lang") == "zh-CN"
    assert "作业" in opened.page.locator("nav").inner_text()
    assert opened.violations() == []


def test_light_dark_and_language_are_switched_and_kept(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    paper = "() => getComputedStyle(document.body).backgroundColor"
    light = opened.page.evaluate(paper)
    switch = opened.page.get_by_role("button", name="Light or dark")
    switch.click()
    assert opened.page.evaluate(paper) == light
    switch.click()
    dark = opened.page.evaluate(paper)
    assert dark != light
    opened.page.get_by_role("button", name="切换到中文").click()
    opened.page.wait_for_selector("h1:has-text('作业')")
    opened.page.reload()
    opened.page.wait_for_selector("h1:has-text('作业')")
    assert opened.page.evaluate(paper) == dark


def test_spans_and_marks_differ_by_more_than_colour(example: ExampleServer, open_page: PageOpener) -> None:
    """Each state has a letter, and those that are no plain success a pattern; each kind of mark has its own shape."""
    opened = open_page(example.url)
    opened.go(JOB)
    opened.page.wait_for_selector(".timeline-picture .mark")
    letters = opened.page.eval_on_selector_all(
        ".legend .span", "(all) => Object.fromEntries(all.map((one) => [one.dataset.state, one.textContent]))"
    )
    assert set(letters) == {"waiting", "starting", "running", "not-ready", "failed", "stopped"}
    assert len(set(letters.values())) == len(letters)
    shapes = opened.page.eval_on_selector_all(
        ".timeline-picture .mark", "(all) => Object.fromEntries(all.map((one) => [one.dataset.kind, one.innerHTML]))"
    )
    assert {"first-failure", "oom", "restart", "scheduler"} <= set(shapes)
    assert len(set(shapes.values())) == len(shapes)


def test_two_thousand_jobs_are_few_elements_and_all_can_be_reached(
    example: ExampleServer, open_page: PageOpener
) -> None:
    example.rows = [team.job_row(f"job-{index:04}", "Running", age=index) for index in range(2000)]
    opened = open_page(example.url)
    opened.go("#/?sort=name")
    opened.page.wait_for_selector(".job-line")
    assert opened.page.locator(".job-line").count() < 60
    assert opened.page.locator("[role=table]").get_attribute("aria-rowcount") == "2001"
    opened.page.evaluate("() => window.scrollTo(0, document.documentElement.scrollHeight)")
    opened.page.wait_for_selector("text=job-1999")
    assert opened.page.locator(".job-line").count() < 60
    opened.page.fill("input[type=search]", "job-1234")
    opened.page.wait_for_selector("[data-id$='/job-1234']")
    assert opened.page.locator(".job-line").count() == 1
    assert "text=job-1234" in opened.page.url


def test_filters_are_in_the_address_and_come_back_with_it(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.get_by_role("button", name="Pending").click()
    opened.page.get_by_label("Kind", exact=True).select_option("MPIJob")
    opened.page.wait_for_function("() => document.querySelectorAll('.job-line').length === 1")
    address = opened.page.url
    assert "state=Pending" in address
    assert "kind=MPIJob" in address
    other = open_page(example.url)
    other.go(address.removeprefix(example.url + "/"))
    other.page.wait_for_selector(".job-line")
    assert other.page.locator(".job-line").count() == 1
    assert "resnet50" in other.page.locator(".job-line").inner_text()


def test_what_is_refused_is_said(example: ExampleServer, open_page: PageOpener) -> None:
    sentence = "maria may not list mpijobs in the namespace team-b: ask for the role gangline-view"
    example.refused = [{"resource": "mpijobs", "namespace": "team-b", "message": sentence}]
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.wait_for_selector(f"text={sentence}")
    opened.go("#/job/team-a/pytorchjobs/gone")
    opened.page.wait_for_selector("text=there is no such job")
