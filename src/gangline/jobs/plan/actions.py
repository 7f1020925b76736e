"""What a plan consists of: a status to write, and actions of a closed union. Frozen values, so a plan prints as JSON."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias

import msgspec

from gangline.api.kubeflow.training import JobStatus
from gangline.api.meta import JSON

PODS, SERVICES = "pods", "services"


class Create(msgspec.Struct, frozen=True, tag=True):
    """Create an object of the job. `resource` is named as in kubectl."""

    resource: str
    body: JSON

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


class Patch(msgspec.Struct, frozen=True, tag=True):
    """Apply a merge patch to an object of the job."""

    resource: str
    name: str
    body: JSON
    # A precondition: another object of the same name is not patched.
    uid: str
    # Such as `status`; empty: the object itself.
    subresource: str = ""


class CreateKeyPair(msgspec.Struct, frozen=True, tag=True):
    """Create a Secret with a new pair of SSH keys, unless there is a Secret of that name. None is ever read."""

    # Without the keys: those are random, and a plan is not.
    body: JSON

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


class _ObjectAction(msgspec.Struct, frozen=True):
    resource: str
    name: str
    # A precondition: a replacement of the same name is left alone.
    uid: str


class Adopt(_ObjectAction, frozen=True, tag=True):
    """Make the job the owner of an object without an owner, unless the job is being deleted."""


class Delete(_ObjectAction, frozen=True, tag=True):
    """Delete an object of the job."""


class DeleteJob(msgspec.Struct, frozen=True, tag=True):
    """Delete the job itself; the garbage collector deletes everything it owns."""


class ConfirmJob(msgspec.Struct, frozen=True, tag=True):
    """Go on only if the server has the job as the plan saw it: another operator may have begun a new round."""


class ConfirmEnded(msgspec.Struct, frozen=True, tag=True):
    """Go on only if the server has no pod of this name that the job owns and that is of an earlier round.

    The labels of such a pod are restored, so that the cache shows it.
    """

    name: str
    round: int
    labels: Mapping[str, str]


JobAction: TypeAlias = Create | CreateKeyPair | Patch | Adopt | Delete | DeleteJob | ConfirmJob | ConfirmEnded


class JobEvent(msgspec.Struct, frozen=True):
    """Something a person should know about a job. It becomes an Event and a log line."""

    reason: str
    message: str
    warning: bool = False


class Rejection(msgspec.Struct, frozen=True):
    """The server rejects an object that the job needs: its kind, such as Pod, and why."""

    kind: str
    message: str
    # The object is invalid, so trying again does not help.
    permanent: bool = False
    # An object of that name exists, and the job does not own it.
    name_conflict: bool = False


class JobPlan(msgspec.Struct, frozen=True):
    """The status to write, and the actions that follow: stages in order, actions within a stage in any order.

    `before_status` runs first of all: actions of which nothing would tell any more once the status is written.
    """

    status: JobStatus
    stages: tuple[tuple[JobAction, ...], ...] = ()
    events: tuple[JobEvent, ...] = ()
    requeue_after: timedelta | None = None
    before_status: tuple[Patch | Delete, ...] = ()
