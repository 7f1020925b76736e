"""The kinds that the operator serves, on the server: whether they are there, and how they get there."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.discovery import is_served
from gangline.kube.errors import AlreadyExists, KubeError
from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_crd
from gangline.schema.crds.job_crds import crd

log = logging.getLogger(__name__)

CRDS: Resource[JSON] = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    dict[str, Any],
    namespaced=False,
)
FIELD_OWNER = "gangline"
INSTALL_COMMAND = "gangline crds | kubectl apply -f -"

SERVED_POLL_INTERVAL = timedelta(milliseconds=10)
POLL_INTERVAL = timedelta(seconds=2)
"""How often to look for definitions that somebody else must bring."""


async def create_crds(client: Client, clock: Clock, kinds: Sequence[JobKind] = TRAINING_KINDS) -> None:
    """Make kinds known to a server that is ours, PodGroups and Queues with them, and wait until they are.

    What is there stays as it is.
    """
    for definition in _crd_bodies(kinds):
        with suppress(AlreadyExists):
            await client.create(CRDS, definition)
    wanted = (*(kind.resource for kind in kinds), *GANG_RESOURCES)
    while not all([await is_served(client, resource) for resource in wanted]):
        await clock.sleep(SERVED_POLL_INTERVAL)


async def apply_crds(client: Client, kinds: Iterable[JobKind]) -> None:
    """Make these kinds, PodGroups and Queues as this version has them, whoever made them before. Idempotent."""
    for definition in _crd_bodies(kinds):
        await client.apply(CRDS, definition, owner=FIELD_OWNER, force=True)


def _crd_bodies(kinds: Iterable[JobKind]) -> Iterable[JSON]:
    return (*map(crd, kinds), *map(gang_crd, GANG_RESOURCES))


class HasResource(Protocol):
    """What is served somewhere: a kind of job, or another one of ours."""

    @property
    def resource(self) -> Resource[Any]: ...


async def missing_definitions(client: Client, kinds: Iterable[HasResource]) -> tuple[HasResource, ...]:
    """Which of them the server does not serve."""
    return tuple([kind for kind in kinds if not await is_served(client, kind.resource)])


class DefinitionWaiter:
    """Waits for the kinds that a process needs. `problem` is a readiness check."""

    def __init__(self, client: Client, kinds: Sequence[HasResource], clock: Clock) -> None:
        self._client, self._kinds, self._clock = client, kinds, clock
        # None: not looked for yet.
        self._missing: tuple[HasResource, ...] | None = None

    def readiness_problem(self) -> str:
        """What is not there, in words; empty when all is."""
        if self._missing is None:
            return "not looked for yet"
        return f"not served: {resource_names(self._missing)}" if self._missing else ""

    async def wait_until_served(self) -> None:
        """Return when the server has all of them. Says once, and again when that changes, which it waits for.

        Raises the errors of the first look; later ones are logged, for a server may be away for a while.
        """
        self._missing = await missing_definitions(self._client, self._kinds)
        while self._missing:
            told = {"missing": resource_names(self._missing), "install": INSTALL_COMMAND}
            log.warning("the server lacks definitions, waiting for them", extra=told)
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        before = self._missing
        while self._missing == before:
            await self._clock.sleep(POLL_INTERVAL)
            try:
                self._missing = await missing_definitions(self._client, self._kinds)
            except KubeError as error:
                log.warning("cannot look for definitions", extra={"error": str(error)})


def resource_names(kinds: Iterable[HasResource]) -> str:
    return ", ".join(kind.resource.name for kind in kinds)
