"""What we did and the cache has not shown yet.

A reconcile that runs before the cache has seen the pods of the last one would create them again. Names and
preconditions make that harmless (the second create is refused); expectations make it rare. They only save
calls: nothing depends on them being right, and one that is never met expires.

Children are tracked by identity, not counted: a pod seen twice, or one of somebody else's, settles nothing it
should not. Deletions are known by uid, since the name may already belong to a successor.
"""

from collections.abc import Hashable, Iterable
from datetime import timedelta
from enum import Enum
from typing import TypeAlias

from gangline.base.clock import Clock


class _Verb(Enum):
    CREATE = "create"
    DELETE = "delete"


_Child: TypeAlias = tuple[_Verb, Hashable]


class Expectations:
    """Per owner: the children whose creation or deletion the cache still owes us. Not thread-safe.

    Expect *before* the call, since the event may overtake the answer. When the call fails, observe it yourself:
    no event will come. A child is named by whatever is unique among the owner's children: its name, or kind
    and name where a pod and a service share one.

    Memory: what is unmet, until it expires or the owner is forgotten.
    """

    def __init__(self, clock: Clock, ttl: timedelta = timedelta(minutes=5)) -> None:
        self._clock = clock
        self._ttl = ttl.total_seconds()
        # Owner -> child -> monotonic time at which we stop waiting for it. No owner has an empty entry.
        self._pending: dict[Hashable, dict[_Child, float]] = {}

    def expect_created(self, key: Hashable, names: Iterable[Hashable]) -> None:
        """We are about to create these children. Expecting again starts their time anew."""
        self._expect(key, _Verb.CREATE, names)

    def expect_deleted(self, key: Hashable, uids: Iterable[Hashable]) -> None:
        """We are about to delete these children. Expecting again starts their time anew."""
        self._expect(key, _Verb.DELETE, uids)

    def observe_created(self, key: Hashable, name: Hashable) -> None:
        """The cache has this child, or its creation failed. Idempotent; unknown ones are ignored."""
        self._observe(key, (_Verb.CREATE, name))

    def observe_deleted(self, key: Hashable, uid: Hashable) -> None:
        """The cache no longer has this child, or its deletion failed. Idempotent; unknown ones are ignored."""
        self._observe(key, (_Verb.DELETE, uid))

    def pending(self, key: Hashable) -> tuple[frozenset[Hashable], frozenset[Hashable]]:
        """What the cache still owes: names of children made, uids of children ended."""
        now = self._clock.monotonic()
        owed = [child for child, until in self._pending.get(key, {}).items() if until > now]
        made = frozenset(child for verb, child in owed if verb is _Verb.CREATE)
        return made, frozenset(child for verb, child in owed if verb is _Verb.DELETE)

    def is_satisfied(self, key: Hashable) -> bool:
        """Whether the cache shows all we did, as far as we still wait for it. True for an unknown owner."""
        return self.expires_in(key) <= timedelta()

    def expires_in(self, key: Hashable) -> timedelta:
        """How long until `satisfied` at the latest: when to look again if no event comes. Zero if satisfied."""
        now = self._clock.monotonic()
        owed = {child: until for child, until in self._pending.get(key, {}).items() if until > now}
        if not owed:
            self.forget(key)
            return timedelta()
        self._pending[key] = owed
        # At least the finest a timedelta tells: unmet is never zero.
        return max(timedelta(seconds=max(owed.values()) - now), timedelta.resolution)

    def forget(self, key: Hashable) -> None:
        """The owner is gone. Idempotent."""
        self._pending.pop(key, None)

    def _expect(self, key: Hashable, verb: _Verb, children: Iterable[Hashable]) -> None:
        until = self._clock.monotonic() + self._ttl
        owed = {(verb, child): until for child in children}
        if owed:
            self._pending.setdefault(key, {}).update(owed)

    def _observe(self, key: Hashable, child: _Child) -> None:
        owed = self._pending.get(key)
        if owed is not None:
            owed.pop(child, None)
            if not owed:
                self.forget(key)
