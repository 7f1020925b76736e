"""The documentation site in a real browser: accessible at two widths, search, theme, language, nothing from elsewhere."""

import functools
import http.server
import importlib.util
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import PageOpener

ROOT = Path(__file__).parents[2]
PAGES = (
    "index.html",
    "doors/ml-engineer.html",
    "tutorials/laptop-in-five-minutes.html",
    "how-to/debug-a-hang.html",
    "why/oom-killed.html",
    "scheduling.html",
    "cli.html",
    "zh/index.html",
)

pytestmark = [pytest.mark.timeout(600)]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files, and does not print every request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of version 1.0 of a site that was built for these tests. There is a version 0.9, too."""
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "hack" / "docs_site.py")
    assert spec is not None
    assert spec.loader is not None
    builder: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    folder = tmp_path_factory.mktemp("site")
    builder.stage(folder / "stage", "1.0")
    builder.build(folder / "stage", folder / "site" / "1.0")
    shutil.copytree(folder / "site" / "1.0", folder / "site" / "0.9")
    builder.list_versions(folder / "site")
    handler = functools.partial(QuietHandler, directory=str(folder / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/1.0"
        server.shutdown()
        thread.join()


def host(site: str) -> str:
    """The part of the address that all versions share."""
    return site.rpartition("/")[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["phone", "laptop"])
def test_pages_are_accessible_and_fit_the_window(
    site: str, open_page: PageOpener, width: str, scheme: str, tmp_path: Path
) -> None:
    opened = open_page(host(site), width=width, scheme=scheme)
    wrong = []
    for name in PAGES:
        opened.page.goto(f"{site}/{name}")
        opened.page.wait_for_load_state("networkidle")
        opened.page.screenshot(path=str(tmp_path / f"{name.replace('/', '-')}-{width}-{scheme}.png"))
        wrong += [f"{name}: {each}" for each in opened.violations()]
        if opened.overflow() > 0:
            wrong.append(f"{name}: {opened.overflow()} pixels wider than the window")
    assert wrong == []


def test_a_search_leads_to_the_page_of_a_rule(site: str, open_page: PageOpener) -> None:
    page = open_page(host(site)).page
    page.goto(f"{site}/index.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    page.keyboard.type("oom-killed")
    page.locator("a[href*='why/oom-killed.html']:visible").first.click()
    page.wait_for_url("**/why/oom-killed.html**")
    assert "oom-killed" in page.inner_text("h1")


def test_a_click_changes_the_theme(site: str, open_page: PageOpener) -> None:
    page = open_page(host(site)).page
    page.goto(f"{site}/index.html")
    page.wait_for_load_state("networkidle")
    schemes = set()
    for _ in range(3):
        schemes.add(page.evaluate("() => document.body.getAttribute('data-md-color-scheme')"))
        page.locator("label[title^='Switch to']:visible").first.click()
    assert schemes == {"default", "slate"}


def test_the_language_is_changed_and_back(site: str, open_page: PageOpener) -> None:
    page = open_page(host(site)).page
    page.goto(f"{site}/index.html")
    page.wait_for_load_state("networkidle")
    for language, address, words in (("zh", "**/zh/index.html", "训练任务"), ("en", "**/index.html", "Who are you?")):
        page.get_by_role("button", name="Select language").hover()
        page.locator(f".md-select__link[hreflang={language}]").click()
        page.wait_for_url(address)
        page.wait_for_function(f"() => document.querySelector('article').innerText.includes('{words}')")
        assert page.evaluate("() => document.documentElement.lang") == language


def test_another_version_is_one_click_away_and_the_first_page_leads_to_the_newest(
    site: str, open_page: PageOpener
) -> None:
    page = open_page(host(site)).page
    page.goto(f"{host(site)}/index.html")
    page.wait_for_url("**/1.0/index.html")
    page.locator(".md-version").hover()
    page.get_by_role("link", name="0.9").click()
    page.wait_for_url("**/0.9/index.html")
    assert "Who are you?" in page.inner_text("article")
