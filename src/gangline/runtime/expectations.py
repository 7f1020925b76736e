"""Creations and deletions that the cache does not show yet (client-go's ControllerExpectations).

A reconcile that runs before the pods of the last one are in the cache would create them again. Names and preconditions
make that harmless (the second create is refused); expectations make it rare. They only save requests: nothing depends on
them for correctness, and an expectation that is never met expires.

Children are tracked by identity, not counted: a pod that is seen twice, or one of another owner, meets no other
expectation. Deletions are tracked by uid, because a successor may have the name already.
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
    """Per owner: the children whose creation or deletion is not in the cache yet. Not thread-safe.

    Expect *before* the request, because the watch event may arrive before the response. If the request fails, observe the
    child as well: no event will come. A child is identified by anything that is unique among the owner's children: its
    name, or kind and name where a pod and a service have the same.

    Unmet expectations stay in memory until they expire or the owner is forgotten.
    """

    def __init__(self, clock: Clock, ttl: timedelta = timedelta(minutes=5)) -> None:
        self._clock = clock
        self._ttl = ttl.total_seconds()
        # Owner -> child -> monotonic time at which the expectation expires. No owner has an empty entry.
        self._pending: dict[Hashable, dict[_Child, float]] = {}

    def expect_created(self, key: Hashable, names: Iterable[Hashable]) -> None:
        """These children are about to be created. Expecting a child again restarts its time."""
        self._expect(key, _Verb.CREATE, names)

    def expect_deleted(self, key: Hashable, uids: Iterable[Hashable]) -> None:
        """These children are about to be deleted. Expecting a child again restarts its time."""
        self._expect(key, _Verb.DELETE, uids)

    def observe_created(self, key: Hashable, name: Hashable) -> None:
        """The child is in the cache, or its creation failed. Idempotent; unknown children are ignored."""
        self._observe(key, (_Verb.CREATE, name))

    def observe_deleted(self, key: Hashable, uid: Hashable) -> None:
        """The child is no longer in the cache, or its deletion failed. Idempotent; unknown children are ignored."""
        self._observe(key, (_Verb.DELETE, uid))

    def pending(self, key: Hashable) -> tuple[frozenset[Hashable], frozenset[Hashable]]:
        """The names of expected creations and the uids of expected deletions."""
        now = self._clock.monotonic()
        unmet = [child for child, until in self._pending.get(key, {}).items() if until > now]
        created = frozenset(child for verb, child in unmet if verb is _Verb.CREATE)
        return created, frozenset(child for verb, child in unmet if verb is _Verb.DELETE)

    def is_satisfied(self, key: Hashable) -> bool:
        """Whether all expectations are met or expired. True for an unknown owner."""
        return self.expires_in(key) <= timedelta()

    def expires_in(self, key: Hashable) -> timedelta:
        """How long until all expectations have expired: when to look again if no event comes. Zero if satisfied."""
        now = self._clock.monotonic()
        unmet = {child: until for child, until in self._pending.get(key, {}).items() if until > now}
        if not unmet:
            self.forget(key)
            return timedelta()
        self._pending[key] = unmet
        # At least the resolution of timedelta, because zero means satisfied.
        return max(timedelta(seconds=max(unmet.values()) - now), timedelta.resolution)

    def forget(self, key: Hashable) -> None:
        """Forget an owner that no longer exists. Idempotent."""
        self._pending.pop(key, None)

    def _expect(self, key: Hashable, verb: _Verb, children: Iterable[Hashable]) -> None:
        until = self._clock.monotonic() + self._ttl
        expected = {(verb, child): until for child in children}
        if expected:
            self._pending.setdefault(key, {}).update(expected)

    def _observe(self, key: Hashable, child: _Child) -> None:
        unmet = self._pending.get(key)
        if unmet is not None:
            unmet.pop(child, None)
            if not unmet:
                self.forget(key)
