"""What a plan may ask for: a closed union of frozen values, so that a plan prints as JSON."""

from typing import TypeAlias

import msgspec

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


class Change(msgspec.Struct, frozen=True, tag=True):
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


Action: TypeAlias = Create | Change | Adopt | Delete | DeleteJob


class Note(msgspec.Struct, frozen=True):
    """Something a person should see: becomes an Event and a log line."""

    reason: str
    message: str
    warning: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """What the server does not want: `what` in a word such as Pod, and why."""

    what: str
    message: str
    # It never will: the object is wrong.
    permanent: bool = False
    # Because somebody else has one of that name.
    stranger: bool = False
