"""A job as a simulation knows it."""

import msgspec

from gangline.api.scheduling import DEFAULT_QUEUE


class WorkloadJob(msgspec.Struct, frozen=True):
    """One job: when it comes, what it needs, and how long it runs once it has its places. Times in seconds."""

    name: str
    arrival: float
    members: int
    # By resource for each member, in the units of the engine; one of `pods` included.
    request: tuple[tuple[str, int], ...]
    duration: float
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    # How many members must start together; the others join when there is room.
    min_members: int = 0

    @property
    def required_members(self) -> int:
        return self.min_members or self.members
