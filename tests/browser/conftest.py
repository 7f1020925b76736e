"""A real browser for the pages of the dashboard: Debian's Chromium, driven by Playwright (hack/browser.sh)."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import WIDTHS, BrowserTools, OpenedPage, PageOpener, browser_tools
from support.example_dashboard.server import ExampleServer, example_server
from support.requirements import skip_or_fail


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here need the browser, and one worker has it."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def tools() -> BrowserTools:
    found = browser_tools()
    if missing := found.missing():
        skip_or_fail(f"no browser ({missing[0].name}): run hack/browser.sh", required="GANGLINE_REQUIRE_BROWSER")
    return found


@pytest.fixture(scope="session")
def chromium(tools: BrowserTools) -> Iterator[Any]:
    sys.path.append(str(tools.packages))  # after our own, which Playwright's shall not replace
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(tools.program), args=["--no-sandbox", "--disable-gpu"], env=tools.environment()
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, tools: BrowserTools) -> Iterator[PageOpener]:
    """Opens pages: `open_page(url, width="phone", scheme="dark", locale="zh-CN")`. No page may have a complaint."""
    contexts: list[Any] = []
    pages: list[OpenedPage] = []

    def opener(base: str, *, width: str = "laptop", scheme: str = "light", locale: str = "en-US") -> OpenedPage:
        wide, high = WIDTHS[width]
        context = chromium.new_context(
            viewport={"width": wide, "height": high}, color_scheme=scheme, locale=locale, reduced_motion="reduce"
        )
        context.set_default_timeout(30_000)
        context.add_init_script(path=str(tools.axe))
        contexts.append(context)
        pages.append(OpenedPage(context.new_page(), base))
        return pages[-1]

    yield opener
    for context in contexts:
        context.close()
    assert [complaint for page in pages for complaint in page.complaints] == []


@pytest.fixture
def example() -> Iterator[ExampleServer]:
    with example_server() as server:
        yield server
