"""The only place that joins operator, scheduler and local plane."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from gangline.api.core import Pod, Service
from gangline.api.meta import JSON
from gangline.api.scheme import CORE, Resource, Scheme
from gangline.api.tfjob import TFJOBS
from gangline.base.clock import Clock
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.execute import Executor
from gangline.jobs.framework import Framework
from gangline.jobs.observe import OWNER_UID, Addressing, Observe, local_address, owner_uid
from gangline.jobs.reconciler import JobReconciler
from gangline.kube.client import Client
from gangline.kube.discovery import served
from gangline.kube.errors import AlreadyExists
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.runtime.informer import Informer
from gangline.runtime.manager import Manager
from gangline.runtime.sources import Changes, itself, owner

CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    dict,
    namespaced=False,
)
LOOK = timedelta(milliseconds=10)

# Thin: a schema that lets everything through. The real one comes with the job engine.
TFJOB_CRD: JSON = {
    "metadata": {"name": "tfjobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "names": {"kind": "TFJob", "plural": "tfjobs", "singular": "tfjob", "listKind": "TFJobList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}

SCHEME: Scheme = CORE.extended(TFJOBS)
FRAMEWORKS: tuple[Framework[Any], ...] = (TensorFlow(),)


@asynccontextmanager
async def embedded(settings: LocalSettings, clock: Clock) -> AsyncIterator[LocalCluster]:
    """A local plane with the operator running on it."""
    async with local_cluster(settings, SCHEME, clock) as plane, asyncio.TaskGroup() as group:
        await define(plane.client, clock)
        running = group.create_task(operate(plane.client, FRAMEWORKS, local_address, clock))
        try:
            yield plane
        finally:
            running.cancel()


async def define(client: Client, clock: Clock) -> None:
    """Make the kinds that the operator serves known to the server, and wait until they are."""
    with suppress(AlreadyExists):
        await client.create(CRDS, TFJOB_CRD)
    while not await served(client, TFJOBS):
        await clock.sleep(LOOK)


async def operate(
    client: Client, frameworks: Sequence[Framework[Any]], addressing: Addressing, clock: Clock
) -> None:
    """One controller per framework over shared caches of pods and services, until cancelled."""
    manager = Manager(client, clock)
    pods = manager.informer(Pod, indexes={OWNER_UID: owner_uid})
    services = manager.informer(Service, indexes={OWNER_UID: owner_uid})
    for framework in frameworks:
        kind = framework.kind.KIND
        jobs: Informer[Any] = manager.informer(framework.kind)
        observe = Observe(framework, jobs.cache, pods.cache, services.cache, addressing, clock)
        reconciler = JobReconciler(framework, observe, Executor(client))
        sources = [Changes(jobs, itself), Changes(pods, owner(kind)), Changes(services, owner(kind))]
        manager.controller(kind, reconciler, sources)
    await manager.run(signals=False)
