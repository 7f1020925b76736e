"""Pages in a real browser: what they show, what they complain about, what they ask others for."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
WIDTHS = {"phone": (390, 844), "laptop": (1280, 800), "wall": (2560, 1440)}


class BrowserTools(NamedTuple):
    """What hack/browser.sh brings."""

    program: Path
    libraries: Path
    fonts: Path
    packages: Path
    axe: Path

    def missing(self) -> list[Path]:
        """What is not there."""
        return [path for path in self if not path.exists()]

    def environment(self) -> dict[str, str]:
        """The environment in which the browser finds its libraries and fonts."""
        folders = [folder for found in self.libraries.glob("*-linux-gnu") for folder in (found, found / "pulseaudio")]
        library_path = os.pathsep.join(map(str, folders))
        return {**os.environ, "LD_LIBRARY_PATH": library_path, "FONTCONFIG_FILE": str(self.fonts)}


def browser_tools() -> BrowserTools:
    """Where hack/browser.sh puts things for this Python."""
    command = [str(ROOT / "hack" / "browser.sh"), "--where"]
    environment = os.environ | {"PYTHON": sys.executable}
    where = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return BrowserTools(*map(Path, where.stdout.splitlines()))


class OpenedPage:
    """A page and its complaints: errors, what the security policy forbade, requests to other hosts."""

    def __init__(self, page: Any, base: str) -> None:
        self.page, self.base = page, base
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("console", self._on_console)
        page.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        # A request that fails because a test ended the server is no fault of the page.
        if message.type == "error" and "Failed to load resource" not in message.text and "ERR_" not in message.text:
            self.complaints.append(f"console: {message.text}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "data:", "blob:")):
            self.complaints.append(f"request to another host: {request.url}")

    def go(self, address: str) -> None:
        """Open an address of the dashboard, such as `#/cluster`."""
        self.page.goto(f"{self.base}/{address}")
        self.page.wait_for_selector("h1:not(.visually-hidden)")

    def resize(self, width: str) -> None:
        """Make the window as wide as a phone, a laptop or a wall."""
        wide, high = WIDTHS[width]
        self.page.set_viewport_size({"width": wide, "height": high})

    def settle(self) -> None:
        """Wait until nothing loads any more and two frames are drawn."""
        self.page.wait_for_function("() => !document.querySelector('.loading')")
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def violations(self) -> list[str]:
        """The accessibility rules that the page breaks, as axe sees it."""
        result = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{found['id']}: {found['help']}: {[node['html'][:120] for node in found['nodes']][:3]}"
            for found in result["violations"]
        ]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth"))

    def picture(self, name: str, folder: Path) -> None:
        """Take a picture of the window: into docs/images with GANGLINE_PICTURES=1, else into a folder of the test."""
        kept = os.environ.get("GANGLINE_PICTURES") == "1"
        self.page.screenshot(path=str((IMAGES if kept else folder) / f"dashboard-{name}.png"))

    def focused(self) -> str:
        """The text of the element that has the focus, or its label."""
        script = "() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText ?? ''"
        return re.sub(r"\s+", " ", str(self.page.evaluate(script))).strip()


PageOpener = Callable[..., OpenedPage]
