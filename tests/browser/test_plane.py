"""The dashboard of a real plane, as a person uses it: submit, watch, see a worker die, look into the past."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from gangline.base.clock import SystemClock
from gangline.dashboard.links import read_address
from support.browser import OpenedPage, PageOpener
from support.cluster.clients import DetachedPlane, run_gangline
from support.servers.real import free_ports

TRAIN = """
import time
from gangline.progress import report
for step in range(1, 100000):
    report(step=step, total=100000, loss=9 / step)
    if step == 3:
        print("<img src=x onerror=alert(1)>", flush=True)
    time.sleep(0.1)
"""


def job_yaml(name: str, marker: str) -> str:
    """Two workers that report progress and print markup; `marker` is on the command line of their processes."""
    program = TRAIN.strip().replace("\n", "\n                  ")
    return f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: {name}
  annotations:
    note: "<script>document.title='taken'</script>"
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: local
              command:
                - {sys.executable}
                - -c
                - |
                  {program}
                - {marker}
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    running = DetachedPlane(tmp_path_factory.mktemp("up") / "plane")
    done = run_gangline("up", "--detach", "--dir", running.folder, "--port", str(free_ports(1)[0]))
    assert done.returncode == 0, done.stderr
    yield running
    running.down()


def new_link(plane: DetachedPlane) -> str:
    address = read_address(plane.folder)
    assert address is not None
    return address.new_link(SystemClock().now())


def open_dashboard(plane: DetachedPlane, open_page: PageOpener, **options: Any) -> OpenedPage:
    """A page with a session, begun by a link that works once."""
    link = new_link(plane)
    opened = open_page(link.partition("/?")[0], **options)
    opened.page.goto(link)
    opened.page.wait_for_selector("h1:has-text('Jobs')")
    assert "key=" not in opened.page.url
    return opened


def submit(opened: OpenedPage, yaml: str) -> None:
    opened.page.keyboard.type("gn")
    opened.page.fill("textarea", yaml)
    opened.page.get_by_role("button", name="Check").click()
    opened.page.get_by_text("The server would accept this").wait_for()
    opened.page.get_by_role("button", name="Submit", exact=True).click()
    opened.page.get_by_text("Submitted:").wait_for()


def workers(marker: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[-1:] == [marker]:
                found.append(process)
    return found


def test_a_job_is_submitted_watched_killed_and_deleted_and_stays(
    plane: DetachedPlane, open_page: PageOpener, tmp_path: Path
) -> None:
    opened, marker = open_dashboard(plane, open_page), f"marker-of-{tmp_path.name}"
    page = opened.page
    submit(opened, job_yaml("seen", marker))
    page.keyboard.type("gb")
    page.wait_for_selector("[data-id$='/seen'] .badge[data-state=Running]")
    page.wait_for_selector("[data-id$='/seen'] [role=progressbar]")
    page.get_by_role("link", name="seen").click()
    page.wait_for_selector(".span[data-state=running] >> nth=1")

    # Markup of a program is text.
    page.fill("#log-search", "<img")
    page.wait_for_selector(".log-line:has-text('<img src=x onerror=alert(1)>')")
    page.fill("#log-search", "")
    page.keyboard.press("Escape")
    page.keyboard.press("6")
    page.wait_for_selector(".code-line:has-text('document.title=')")
    assert "taken" not in page.title()
    assert page.locator("main img, main script").count() == 0

    # Curves grow.
    page.keyboard.press("2")
    page.wait_for_selector(".chart canvas")
    page.keyboard.press("1")

    # A killed worker is on the timeline.
    victim = workers(marker)[-1]
    victim.kill()
    page.wait_for_selector(".timeline-picture .mark:is([data-kind=first-failure], [data-kind=failure])")
    page.wait_for_selector(".mark-item")
    opened.settle()
    assert opened.violations() == []
    opened.picture("killed-worker", tmp_path)

    # It is deleted after a question, and its page stays.
    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete").click()
    page.get_by_text("This job has been deleted").wait_for()
    assert page.locator(".timeline-picture .mark").count() > 0
    address = page.url
    page.keyboard.type("gb")
    page.wait_for_selector("[data-id$='/seen']", state="detached")

    # The record still has it.
    page.goto(address)
    page.get_by_text("This job has been deleted").wait_for()
    page.wait_for_selector(".timeline-picture .span")


@pytest.mark.parametrize("width", ["phone", "laptop", "wall"])
def test_the_views_of_a_plane_break_no_rule(plane: DetachedPlane, open_page: PageOpener, width: str) -> None:
    opened = open_dashboard(plane, open_page, width=width)
    for address in ("#/", "#/?layout=lanes", "#/cluster", "#/sweeps", "#/submit"):
        opened.go(address)
        opened.settle()
        assert opened.overflow() <= 0, address
        assert opened.violations() == [], address


def test_a_link_works_once_and_a_page_without_a_session_says_what_to_do(
    plane: DetachedPlane, open_page: PageOpener
) -> None:
    link = new_link(plane)
    base = link.partition("/?")[0]
    stranger = open_page(base)
    stranger.page.goto(f"{base}/")
    stranger.page.get_by_text("gangline dashboard", exact=True).wait_for()
    assert stranger.violations() == []
    first, second = open_page(base), open_page(base)
    first.page.goto(link)
    first.page.wait_for_selector("h1:has-text('Jobs')")
    second.page.goto(link)
    assert "used already" in second.page.inner_text("body")
