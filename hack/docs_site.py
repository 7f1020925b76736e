"""Builds the documentation site: `python3 hack/docs_site.py stage|build|serve`, as `make docs` and `make docs-serve` do.

`stage` writes dist/docs: a copy of docs/, the pages and files outside of docs/ that a page links to, the navigation
with every page of a `folder/*`, and llms.txt. `build` makes site/ of it; a warning is an error. `serve` shows it on
this machine while you write, and stages again when you call it again.

`build --version 1.2` builds into site/1.2 instead, beside the versions that are there, and lists them in
site/versions.json, from which each page makes its menu of versions. site/index.html leads to the newest.

The generator comes from requirements/docs.txt, by hash, into an environment in $GANGLINE_CACHE (default:
~/.cache/gangline). Without a network both work once that is there. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
STAGE = ROOT / "dist" / "docs"
SITE = ROOT / "site"
CONFIG = ROOT / "zensical.toml"
PINS = ROOT / "requirements" / "docs.txt"
PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages at the top of the repository that the site has as project/NAME."""
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_VERSION = r"\d+(\.\d+)*"
# The word after the language tells our tests how to play a block. The generator takes such a fence for text.
_TAG = re.compile(r"^(\s*`{3,}\w+) [\w-]+$", re.MULTILINE)
_LINK = re.compile(r"(\]\(\s*<?)([^)\s>]+)")


class SiteError(Exception):
    """The site cannot be built. The message is one line."""


def main() -> int:
    """Do what the command line says. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["stage", "build", "serve"])
    parser.add_argument("--address", default="127.0.0.1:8088", help="where to serve (default: 127.0.0.1:8088)")
    parser.add_argument("--version", default="", help="build this version into a folder of its name")
    options = parser.parse_args()
    try:
        stage(STAGE, options.version)
        if options.what == "build" and options.version:
            if SITE.exists() and not (SITE / "versions.json").exists():
                shutil.rmtree(SITE)  # a site without versions
            build(STAGE, SITE / options.version)
            list_versions(SITE)
        elif options.what == "build":
            build(STAGE, SITE)
        elif options.what == "serve":
            return subprocess.run([generator(), "serve", "--dev-addr", options.address], cwd=STAGE).returncode
    except (SiteError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def stage(folder: Path, version: str = "") -> None:
    """Write what the generator reads into a folder. Pages of a version have a menu of versions."""
    if version and not re.fullmatch(_VERSION, version):
        raise SiteError(f'"{version}" is no version; write it as in: make docs VERSION=1.2')
    if folder.exists():
        shutil.rmtree(folder)
    pages = folder / "docs"
    shutil.copytree(DOCS, pages)
    for name in PROJECT_PAGES:
        (pages / "project").mkdir(exist_ok=True)
        (pages / "project" / name).write_text((ROOT / name).read_text())
    for page in sorted(pages.rglob("*.md")):
        source = original(page.relative_to(pages))
        page.write_text(with_local_links(page.read_text(), source, page.relative_to(pages), pages))
    config = tomllib.loads(CONFIG.read_text())
    navigation = expanded(config["project"]["nav"], DOCS)
    (pages / "llms.txt").write_text(llms_text(navigation, pages))
    text = CONFIG.read_text()
    start, end = text.index("nav = ["), text.index("\n]\n", text.index("nav = [")) + 3
    text = f"{text[:start]}nav = {inline_toml(navigation)}\n{text[end:]}"
    menu = '\n[project.extra.version]\nprovider = "mike"\n' if version else ""  # the form of versions.json
    (folder / "zensical.toml").write_text(text + menu)


def build(folder: Path, site: Path) -> None:
    """Build what was staged, with warnings as errors. No page may load from elsewhere, and no link may be dead."""
    result = subprocess.run(
        [generator(), "build", "--clean", "--strict"],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        errors="replace",
    )
    if result.returncode != 0:
        raise SiteError(f"the generator failed:\n{result.stdout}{result.stderr}".rstrip())
    if site.exists():
        shutil.rmtree(site)
    site.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder / "site", site)
    for page in site.rglob("*.html"):
        language = "zh" if page.is_relative_to(site / "zh") else "en"
        page.write_text(accessible(page.read_text(), language))
    loaded = sorted({f"{page.relative_to(site)}: {url}" for page in site.rglob("*.html") for url in loads(page)})
    if loaded:
        raise SiteError("a page loads from elsewhere: " + "; ".join(loaded[:5]))
    torn = sorted(str(page.relative_to(site)) for page in site.rglob("*.html") if "<p>```" in page.read_text())
    if torn:
        raise SiteError("a code block is not recognized: " + ", ".join(torn[:5]))
    dead = dead_links(site)
    if dead:
        raise SiteError(f"{len(dead)} dead links: " + "; ".join(dead[:10]))
    shown = site.relative_to(ROOT) if site.is_relative_to(ROOT) else site
    print(f"built {sum(1 for _ in site.rglob('*.html'))} pages: {shown}/index.html")


def list_versions(site: Path) -> None:
    """Write the list of the versions in a folder, newest first, and a first page that leads to the newest."""
    versions = [each.name for each in site.iterdir() if each.is_dir() and re.fullmatch(_VERSION, each.name)]
    versions.sort(key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
    entries = [
        {"version": name, "title": name, "aliases": ["latest"] if not at else []} for at, name in enumerate(versions)
    ]
    (site / "versions.json").write_text(json.dumps(entries, indent=2) + "\n")
    newest = f"{versions[0]}/index.html"
    (site / "index.html").write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>gangline</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}"></head><body><a href="{newest}">gangline</a></body></html>\n'
    )


def accessible(page: str, language: str) -> str:
    """The page with what the generator leaves out for people who do not see it: its language, headers, names of parts."""
    page = page.replace('<html lang="en"', f'<html lang="{language}"', 1)
    page = page.replace('class="md-path" aria-label="Navigation"', 'class="md-path" aria-label="Path"')
    return re.sub(r"<th( [^>]*)?></th>", r"<td\1></td>", page)  # a header without a text is none


class PageReader(html.parser.HTMLParser):
    """Collects what a built page links to, and the anchors that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.add(value)
            elif value and (name == "id" or (name == "name" and tag == "a")):
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """The links of the built pages whose file or anchor the site does not have. Other hosts are not asked."""
    pages = {page.resolve(): PageReader(page.read_text()) for page in sorted(site.rglob("*.html"))}
    dead = []
    for page, reader in pages.items():
        for target in sorted(reader.targets):
            address = urllib.parse.urlsplit(target)
            if address.scheme or address.netloc or page.name == "404.html":
                continue
            file = (page.parent / urllib.parse.unquote(address.path)).resolve() if address.path else page
            if file.is_dir():
                file /= "index.html"
            anchor = urllib.parse.unquote(address.fragment)
            known = pages[file].anchors if file in pages else None
            # "__" begins the names of the theme's own switches.
            if not file.exists() or (anchor and known is not None and anchor not in known and anchor[:2] != "__"):
                dead.append(f"{page.relative_to(site.resolve())}: {target}")
    return dead


def loads(page: Path) -> Iterator[str]:
    """The addresses on other machines from which a built page loads scripts, styles, fonts or pictures."""
    for tag in re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text()):
        for url in re.findall(r"""(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""", tag):
            if not re.search(r"rel=[\"']?(?:canonical|alternate|edit)", tag):
                yield url


def generator() -> str:
    """The program that builds the site, installed from the pins if it is not there yet."""
    cache = Path(os.environ.get("GANGLINE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "gangline")
    environment = cache.expanduser() / f"docs-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"
    if not (environment / "complete").exists():
        print("installing the generator of the site ...", file=sys.stderr)
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([str(environment / "bin" / "python"), *install, "-r", str(PINS)], check=True)
        (environment / "complete").touch()  # last, so that half an environment is never used
    return str(environment / "bin" / "zensical")


def original(page: Path) -> Path:
    """The file of the repository that a page of the site was copied from."""
    return ROOT / page.name if page.parts[0] == "project" else DOCS / page


def with_local_links(text: str, source: Path, page: Path, pages: Path) -> str:
    """The text with links that leave docs/ leading to copies in the site. The copies are made here."""
    lines, fence = [], ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if mark and (not fence or line.strip().startswith(fence)):
            line = line if fence else _TAG.sub(r"\1", line)
            fence = "" if fence else mark[1]
        elif not fence:
            line = _LINK.sub(lambda found: found[1] + _new_target(found[2], source, page, pages), line)
        lines.append(line)
    return "".join(lines)


def _new_target(target: str, source: Path, page: Path, pages: Path) -> str:
    path, hash_sign, anchor = target.partition("#")
    if not path or re.match(r"[a-z][a-z0-9+.-]*:", target):
        return target
    file = (source.parent / path).resolve()
    if not file.exists():
        return target  # the generator says so
    place = site_place(file)
    if not (pages / place).exists():
        _copy(file, pages / place)
    up = "/".join([".."] * (len(page.parts) - 1))
    return f"{up}/{place}{hash_sign}{anchor}".removeprefix("/")


def site_place(file: Path) -> Path:
    """Where a file or folder of the repository is in the site."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS)
    inside = file.relative_to(ROOT)
    if str(inside) in PROJECT_PAGES:
        return Path("project") / inside
    if str(inside) == "README.md":
        return Path("index.md")
    # Everything else is a text to look at: a name that every browser shows instead of saving it.
    return Path("files") / (inside / "files.txt" if file.is_dir() else inside.with_name(inside.name + ".txt"))


def _copy(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir():
        names = sorted(str(each.relative_to(ROOT)) for each in file.rglob("*") if each.is_file())
        place.write_text("\n".join(name for name in names if "__pycache__" not in name) + "\n")
    else:
        shutil.copyfile(file, place)


def expanded(navigation: list[Any], docs: Path) -> list[Any]:
    """The navigation with the pages of each `folder/*` that are not named in it already."""
    return _expanded(navigation, docs, set(page_names(navigation)))


def _expanded(entries: list[Any], docs: Path, named: set[str]) -> list[Any]:
    new: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            new.append(
                {
                    title: _expanded(pages, docs, named) if isinstance(pages, list) else pages
                    for title, pages in entry.items()
                }
            )
        elif entry.endswith("/*"):
            names = (str(file.relative_to(docs)) for file in sorted((docs / entry[:-2]).glob("*.md")))
            new += [name for name in names if name not in named]
        else:
            new.append(entry)
    return new


def page_names(navigation: list[Any]) -> Iterator[str]:
    """Every page of a navigation, in order."""
    for entry in navigation:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from page_names(inner if isinstance(inner, list) else [inner])


def inline_toml(value: Any) -> str:
    """Lists, tables with one key and strings as TOML. A JSON string is a TOML string."""
    if isinstance(value, list):
        return "[" + ", ".join(map(inline_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {inline_toml(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def llms_text(navigation: list[Any], pages: Path) -> str:
    """A list of the pages for language models: title, address, first sentence (llmstxt.org)."""
    lines = ["# gangline", "", "> " + tomllib.loads(CONFIG.read_text())["project"]["site_description"], ""]
    for entry in navigation:
        title, inner = next(iter(entry.items()))
        lines += [f"## {title}", ""]
        for name in page_names(inner if isinstance(inner, list) else [inner]):
            heading, sentence = title_and_summary((pages / name).read_text())
            lines.append(f"- [{heading}]({name.removesuffix('.md')}.html)" + (f": {sentence}" if sentence else ""))
        lines.append("")
    return "\n".join(lines)


def title_and_summary(text: str) -> tuple[str, str]:
    """The heading of a page, and the first sentence of its first paragraph of prose."""
    title, paragraph, fence = "", list[str](), False
    for line in text.splitlines():
        if _FENCE.match(line):
            fence = not fence
        elif line.startswith("# ") and not fence and not title:
            title = line.removeprefix("# ").strip()
        elif title and not fence:
            if re.match(r"[A-Z`\[*\w]", line) and not re.match(r"(\||#|<|- |\d+\. |!)", line):
                paragraph.append(line.strip())
            elif paragraph:
                break
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph)).replace("**", "")
    sentence = re.split(r"(?<=[.。])\s", plain + " ")[0].strip()
    return title, sentence


if __name__ == "__main__":
    sys.exit(main())
