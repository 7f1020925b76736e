"""How a notebook follows a team to its end."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from gangline import Job, Replica, pytorch_job
from gangline.api.core import Pod
from gangline.base.clock import SystemClock
from gangline.notebook.follow import TeamFollower
from gangline.notebook.team_view import TeamFrame
from gangline.testing.builders import make_pod


class LateStatesClient:
    """A job that has succeeded, one of whose pods says so only the third time it is asked."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._answers = 0

    def watch_job(self, name: str, **_: Any) -> Iterator[Job]:
        yield self._job

    def follow_logs(self, name: str, **_: Any) -> Iterator[Any]:
        return iter(())

    def get_job_pods(self, name: str, **_: Any) -> list[Pod]:
        self._answers += 1
        late = "Running" if self._answers < 3 else "Succeeded"
        return [make_pod("fit-master-0", phase="Succeeded"), make_pod("fit-worker-0", phase=late)]


class LastFrame:
    """Remembers what stays on the screen."""

    frame: TeamFrame

    def show(self, frame: TeamFrame, *, last: bool = False) -> None:
        self.frame = frame

    def show_line(self, text: str) -> None: ...


def test_the_last_picture_has_the_end_of_every_rank() -> None:
    body = pytorch_job("fit", master=Replica("any"), worker=Replica("any")).to_dict()
    job = Job({**body, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}})
    client: Any = LateStatesClient(job)
    run: Any = SimpleNamespace(name="fit")
    display = LastFrame()
    TeamFollower(client, run, job, display, SystemClock()).follow()
    assert [row.state for row in display.frame.rows] == ["Succeeded", "Succeeded"]
