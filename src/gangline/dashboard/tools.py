"""What the dashboard borrows from the command line: checks of job files, and whether a job fits."""

from collections.abc import Awaitable, Callable

from gangline.dashboard.rows.job_row import ViewStruct
from gangline.kube.client import Client


class SubmittedObject(ViewStruct, frozen=True):
    """An object of a submitted file, and what became of it: created, configured, unchanged."""

    kind: str
    name: str
    namespace: str
    result: str


class FileProblem(ViewStruct, frozen=True):
    """What is wrong in a submitted file; line 0 if that is not known."""

    line: int
    text: str


class SubmitResult(ViewStruct, frozen=True):
    """What became of a submitted file."""

    objects: list[SubmittedObject]
    problems: list[FileProblem]


class FitView(ViewStruct, frozen=True):
    """Whether a job fits: the text of `gangline plan --fit`, and its structure."""

    text: str
    results: list[object]
    # What was not looked at, because the viewer may not read it.
    notes: list[str]


class DashboardTools(ViewStruct, frozen=True):
    """Functions of the layers above; None where a page cannot have them."""

    # The client of the viewer, the text of a file, the default namespace, whether nothing is stored.
    submit: Callable[[Client, str, str, bool], Awaitable[SubmitResult]] | None = None
    # The client of the viewer, the text of a file, the default namespace.
    fit: Callable[[Client, str, str], Awaitable[FitView]] | None = None


NO_TOOLS = DashboardTools()
