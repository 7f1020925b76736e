"""What decisions need of a snapshot: would it fit, and mark it as used. `cluster.Trial` is the real one."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from gangline.scheduler.types.cycle import BoundPod, GangRequest, Placement, Shortage


class Room(Protocol):
    """A what-if on one snapshot of the nodes. Only `take`, `hold` and `release` change it, and only the what-if."""

    @property
    def node_names(self) -> Sequence[str]:
        """Number of a node -> its name."""
        ...

    @property
    def terminating(self) -> Collection[str]:
        """The uids of all residents on their way out."""
        ...

    def bound_pod(self, uid: str) -> BoundPod | None:
        """Whoever has this uid, if it holds room."""
        ...

    def place(self, ask: GangRequest) -> Placement | Shortage:
        """All that it needs at least, at once, and as many others as fit; or why not. Changes nothing."""
        ...

    def place_after_eviction(self, ask: GangRequest, leaving: Collection[str]) -> Placement | Shortage:
        """The same, as if these residents had left."""
        ...

    def assume(self, ask: GangRequest, placement: Placement) -> None:
        """From now on these places are used; also where their present residents have yet to leave."""
        ...

    def reserve(self, ask: GangRequest) -> None:
        """From now on as much of what it needs as is free is kept from `place` of others."""
        ...

    def release(self) -> None:
        """Nothing is held any more."""
        ...

    def total(self) -> Mapping[str, int]:
        """What usable nodes have, by resource."""
        ...

    def free(self) -> Mapping[str, int]:
        """What is free on usable nodes, by resource: never less than what `place` can give."""
        ...
