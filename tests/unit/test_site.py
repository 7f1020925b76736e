"""The documentation site: every page is in the navigation, links lead to what the site has."""

import importlib.util
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "hack" / "docs_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SITE = loaded()


def navigation() -> list[Any]:
    config = tomllib.loads((ROOT / "zensical.toml").read_text())
    entries: list[Any] = SITE.expanded(config["project"]["nav"], DOCS)
    return entries


def test_every_page_is_once_in_the_navigation() -> None:
    named = [name for name in SITE.page_names(navigation()) if not name.startswith("project/")]
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_a_folder_of_the_navigation_has_the_pages_that_are_not_named(tmp_path: Path) -> None:
    (tmp_path / "adr").mkdir()
    for name in ("README.md", "0002-b.md", "0001-a.md"):
        (tmp_path / "adr" / name).touch()
    entries = SITE.expanded([{"Decisions": ["adr/README.md", "adr/*"]}], tmp_path)
    assert entries == [{"Decisions": ["adr/README.md", "adr/0001-a.md", "adr/0002-b.md"]}]


def test_a_link_out_of_docs_leads_to_a_copy_in_the_site(tmp_path: Path) -> None:
    text = "[a](../examples/linear.py) [b](../CHANGELOG.md#x) [c](run.md) `[d](x)`\n```\n[e](../README.md)\n```\n"
    staged = SITE.with_local_links(text, DOCS / "sdk.md", Path("sdk.md"), tmp_path)
    assert "[a](files/examples/linear.py.txt) [b](project/CHANGELOG.md#x) [c](run.md)" in staged
    assert "[e](../README.md)" in staged
    assert (tmp_path / "files/examples/linear.py.txt").read_text() == (ROOT / "examples/linear.py").read_text()


def test_a_block_loses_the_tag_that_is_for_tests(tmp_path: Path) -> None:
    text = "```console fails\n$ a\n```\n\n```yaml\n```console x\n```\n"
    staged = SITE.with_local_links(text, DOCS / "sdk.md", Path("sdk.md"), tmp_path)
    assert staged == "```console\n$ a\n```\n\n```yaml\n```console x\n```\n"


def test_a_page_of_a_folder_finds_the_copy_from_below(tmp_path: Path) -> None:
    page = Path("doors/contributor.md")
    staged = SITE.with_local_links("[a](../../CONTRIBUTING.md)\n", DOCS / page, page, tmp_path)
    assert staged == "[a](../project/CONTRIBUTING.md)\n"


def test_a_page_that_loads_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<a href="https://example.com/">x</a><script src="https://example.com/a.js"></script>')
    assert list(SITE.loads(page)) == ["https://example.com/a.js"]


def test_a_page_has_its_language_and_no_header_without_a_text() -> None:
    page = '<html lang="en" class="x"><nav class="md-path" aria-label="Navigation"><th></th><th>a</th></html>'
    expected = '<html lang="zh" class="x"><nav class="md-path" aria-label="Path"><td></td><th>a</th></html>'
    assert SITE.accessible(page, "zh") == expected


def test_a_dead_link_or_anchor_of_a_built_page_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "why").mkdir()
    (tmp_path / "why" / "a.html").write_text('<h1 id="top">A</h1><a href="../index.html#home">x</a>')
    (tmp_path / "index.html").write_text(
        '<p id="home"><a href="why/a.html#top">1</a><a href="why/a.html#gone">2</a><a href="why/b.html">3</a>'
        '<a href="#home">4</a><a href="https://example.com/">5</a><img src="no.png"></p>'
    )
    dead = ["index.html: no.png", "index.html: why/a.html#gone", "index.html: why/b.html"]
    assert SITE.dead_links(tmp_path) == dead


def test_the_list_for_language_models_has_every_page_with_its_first_sentence(tmp_path: Path) -> None:
    SITE.stage(tmp_path / "stage")
    text = (tmp_path / "stage" / "docs" / "llms.txt").read_text()
    pages = list(SITE.page_names(navigation()))
    assert len([line for line in text.splitlines() if line.startswith("- [")]) == len(pages)
    assert "- [gangline](index.html): Run a training job on many machines, or on your laptop, from one file.\n" in text
    # The generator reads the navigation as this Python does.
    written = tomllib.loads((tmp_path / "stage" / "zensical.toml").read_text())["project"]
    assert written["nav"] == navigation()
    assert written["theme"]["font"] is False


def test_versions_are_listed_newest_first_and_the_first_page_leads_there(tmp_path: Path) -> None:
    for name in ("0.9", "0.10", "assets"):
        (tmp_path / name).mkdir()
    SITE.list_versions(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [(each["version"], each["aliases"]) for each in listed] == [("0.10", ["latest"]), ("0.9", [])]
    assert 'url=0.10/index.html"' in (tmp_path / "index.html").read_text()


def test_what_is_no_version_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SITE.SiteError, match="is no version"):
        SITE.stage(tmp_path / "stage", "../x")
