"""CustomResourceDefinitions on the server: install them, or wait until they are installed."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.discovery import is_served
from gangline.kube.errors import AlreadyExists, KubeError
from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_crd
from gangline.schema.crds.job_crds import crd
from gangline.schema.crds.job_roles import job_roles

log = logging.getLogger(__name__)

CRDS: Resource[JSON] = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    dict[str, Any],
    namespaced=False,
)
CLUSTER_ROLES: Resource[JSON] = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", dict[str, Any], namespaced=False
)
FIELD_OWNER = "gangline"
INSTALL_COMMAND = "gangline crds | kubectl apply -f -"

SERVED_POLL_INTERVAL = timedelta(milliseconds=10)
POLL_INTERVAL = timedelta(seconds=2)
"""How often to look for definitions that must be installed by other means."""


async def create_crds(client: Client, clock: Clock, kinds: Sequence[JobKind] = TRAINING_KINDS) -> tuple[JobKind, ...]:
    """Create the definitions of these kinds, PodGroups and Queues, and wait until they are served.

    A definition of an earlier gangline is brought to this version. One that somebody else has changed stays as it is, and
    may lack an API version of ours. Returns the kinds that are served.
    """
    versions: dict[str, set[str]] = {}
    for definition in _crd_bodies(kinds):
        stored = await _created_or_updated(client, definition)
        versions[stored["metadata"]["name"]] = {version["name"] for version in stored["spec"]["versions"]}
    served = tuple(kind for kind in kinds if kind.resource.version in versions[kind.resource.name])
    while await missing_definitions(client, (*(kind.resource for kind in served), *GANG_RESOURCES)):
        await clock.sleep(SERVED_POLL_INTERVAL)
    return served


async def _created_or_updated(client: Client, definition: JSON) -> JSON:
    """The definition as it is stored from now on."""
    with suppress(AlreadyExists):
        return await client.create(CRDS, definition)
    stored = await client.get(CRDS, Key("", definition["metadata"]["name"]))
    managers = {field["manager"] for field in stored["metadata"]["managedFields"] if not field.get("subresource")}
    if managers != {FIELD_OWNER} or _schemas(stored) == _schemas(definition):
        return stored
    return await client.apply(CRDS, definition, owner=FIELD_OWNER, force=True)


def _schemas(definition: JSON) -> JSON:
    return {version["name"]: version["schema"] for version in definition["spec"]["versions"]}


async def apply_job_roles(client: Client, kinds: Sequence[JobKind]) -> None:
    """Let everybody who may edit or view pods in a namespace do so with jobs of these kinds. Idempotent."""
    for role in job_roles(kinds):
        await client.apply(CLUSTER_ROLES, role, owner=FIELD_OWNER, force=True)


async def apply_crds(client: Client, kinds: Iterable[JobKind]) -> None:
    """Bring the definitions of these kinds, PodGroups and Queues to this version, whoever installed them. Idempotent."""
    for definition in _crd_bodies(kinds):
        await client.apply(CRDS, definition, owner=FIELD_OWNER, force=True)


def _crd_bodies(kinds: Iterable[JobKind]) -> Iterable[JSON]:
    # Two APIs of one kind share a definition.
    by_name = {kind.resource.name: kind for kind in kinds}
    return (*map(crd, by_name.values()), *map(gang_crd, GANG_RESOURCES))


async def missing_definitions(client: Client, resources: Iterable[Resource[Any]]) -> tuple[Resource[Any], ...]:
    """The resources that the server does not serve."""
    return tuple([resource for resource in resources if not await is_served(client, resource)])


class DefinitionWaiter:
    """Waits for the resources that a process needs. `readiness_problem` is a readiness check."""

    def __init__(self, client: Client, resources: Sequence[Resource[Any]], clock: Clock) -> None:
        self._client, self._resources, self._clock = client, resources, clock
        # None: not looked for yet.
        self._missing: tuple[Resource[Any], ...] | None = None

    def readiness_problem(self) -> str:
        """The resources that are not served, as text; empty if all are."""
        if self._missing is None:
            return "not looked for yet"
        return f"not served: {resource_names(self._missing)}" if self._missing else ""

    async def wait_until_served(self) -> None:
        """Return when the server serves all resources. Logs the missing ones, and again when they change.

        Raises the errors of the first attempt; later ones are logged, for a server may be away for a while.
        """
        self._missing = await missing_definitions(self._client, self._resources)
        while self._missing:
            fields = {"missing": resource_names(self._missing), "install": INSTALL_COMMAND}
            log.warning("the server lacks definitions, waiting for them", extra=fields)
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        before = self._missing
        while self._missing == before:
            await self._clock.sleep(POLL_INTERVAL)
            try:
                self._missing = await missing_definitions(self._client, self._resources)
            except KubeError as error:
                log.warning("cannot look for definitions", extra={"error": str(error)})


def resource_names(resources: Iterable[Resource[Any]]) -> str:
    """The names of resources as in kubectl, joined by commas."""
    return ", ".join(resource.name for resource in resources)
