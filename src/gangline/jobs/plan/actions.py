"""What a plan is: a status to write, and actions of a closed union; all frozen values, so that it prints as JSON."""

from datetime import timedelta
from typing import TypeAlias

import msgspec

from gangline.api.kubeflow.training import JobStatus
from gangline.api.meta import JSON

PODS, SERVICES = "pods", "services"


class Create(msgspec.Struct, frozen=True, tag=True):
    """Make an object that is not there. `resource` as kubectl names it."""

    resource: str
    body: JSON

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


class Patch(msgspec.Struct, frozen=True, tag=True):
    """Merge into an object of the job's."""

    resource: str
    name: str
    body: JSON
    # Only this very object.
    uid: str


class Adopt(msgspec.Struct, frozen=True, tag=True):
    """Make an object of nobody's the job's own, unless the job is going away."""

    resource: str
    name: str
    uid: str


class Delete(msgspec.Struct, frozen=True, tag=True):
    """End an object of the job's."""

    resource: str
    name: str
    # Only this very one: a replacement of the same name must not die for its predecessor.
    uid: str


class DeleteJob(msgspec.Struct, frozen=True, tag=True):
    """End the job itself; everything it owns goes with it."""


JobAction: TypeAlias = Create | Patch | Adopt | Delete | DeleteJob


class JobEvent(msgspec.Struct, frozen=True):
    """Something a person should see: becomes an Event and a log line."""

    reason: str
    message: str
    warning: bool = False


class Rejection(msgspec.Struct, frozen=True):
    """What the server does not want: `what` in a word such as Pod, and why."""

    kind: str
    message: str
    # It never will: the object is wrong.
    permanent: bool = False
    # Because somebody else has one of that name.
    name_conflict: bool = False


class JobPlan(msgspec.Struct, frozen=True):
    """What to write down, and what to do then: stages in order, actions within a stage in any order.

    `before` comes first of all: what nobody would know to be owed once the status is written.
    """

    status: JobStatus
    stages: tuple[tuple[JobAction, ...], ...] = ()
    events: tuple[JobEvent, ...] = ()
    requeue_after: timedelta | None = None
    before_status: tuple[Patch | Delete, ...] = ()
