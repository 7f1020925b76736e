"""The objects that an operator would create for a job in a manifest."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from gangline import __version__
from gangline.api.codec.documents import Document
from gangline.api.core import Service
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.manifests.files import NO_OBJECTS

JobDocument = tuple[Document, JobKind]


class GangMode(Enum):
    """Which jobs get a PodGroup: none, those with a schedulingPolicy, or all."""

    NONE, REQUESTED, ALL = range(3)


class PlanTarget(NamedTuple):
    """The operator and the namespace that a job is planned for."""

    # Overrides the job's own namespace.
    namespace: str = ""
    # For jobs without a namespace.
    default_namespace: str = "default"
    # Services of a local plane with their addresses; empty: the job is planned for a cluster.
    services: tuple[Service, ...] = ()
    gangs: GangMode = GangMode.NONE
    # Without the init containers that need an image, which a local operator does not add.
    bare: bool = False


def job_documents(documents: Sequence[Document], name: str) -> list[JobDocument]:
    """The training jobs among the documents. Raises `InputError` if there is none; `name` is that of their file."""
    from gangline.cli.manifests.lint import Finding, LintError, kind_of

    jobs = []
    for document in documents:
        kind = kind_of(document)
        if isinstance(kind, Finding):
            raise LintError([kind])
        if isinstance(kind, JobKind):
            jobs.append((document, kind))
    if not jobs:
        raise InputError(f"{name}: {'holds no training job' if documents else NO_OBJECTS}; give a file with a job")
    return jobs


def planned_objects(job: JobDocument, target: PlanTarget) -> tuple[JSON, list[JSON]]:
    """The job with its namespace and name, and the objects of it in the order of their creation. Raises `InputError`."""
    from gangline.jobs.plan.actions import Create, CreateKeyPair
    from gangline.jobs.plan.plan import reconcile_plan
    from gangline.operator.engine import OPERATOR_SCHEME

    framework, observed = observed_job(job, target)
    bodies = []
    for stage in reconcile_plan(framework, observed).stages:
        for action in stage:
            if isinstance(action, CreateKeyPair):
                bodies.append({"apiVersion": "v1", "kind": "Secret", **action.body, "type": "kubernetes.io/ssh-auth"})
            if not isinstance(action, Create):
                continue
            resource = OPERATOR_SCHEME.find(action.resource.partition(".")[0])
            bodies.append({"apiVersion": resource.api_version, "kind": resource.kind, **action.body})
    body, metadata = job[0].body, observed.job.metadata
    return {**body, "metadata": {**body["metadata"], "namespace": metadata.namespace, "name": metadata.name}}, bodies


def observed_job(job: JobDocument, target: PlanTarget) -> tuple[Any, Any]:
    """The framework of a job, and the `ObservedJob` of its operator if the job were new. Raises `InputError`."""
    from gangline.api.codec.codec import decode_document
    from gangline.base.clock import SystemClock
    from gangline.cli.manifests.lint import LintError, check_job, framework_of
    from gangline.jobs.plan.observed import JobChildren, ObservedJob

    document, kind = job
    findings = check_job(document, kind)
    if findings:
        raise LintError(findings)
    decoded = decode_document(document, kind.model)
    metadata = msgspec.structs.replace(
        decoded.metadata,
        namespace=target.namespace or decoded.metadata.namespace or target.default_namespace,
        name=decoded.metadata.name or f"{decoded.metadata.generate_name}xxxxx",
    )
    settings = _operator_settings(target.gangs, local=bool(target.services))
    if target.bare:
        settings = msgspec.structs.replace(settings, agent_image="", mpi_delivery_image="")
    framework = framework_of(kind.scheme, settings)
    observed = ObservedJob.of(
        framework,
        msgspec.structs.replace(decoded, metadata=metadata),
        SystemClock().now(),
        JobChildren(services=target.services),
        settings.site,
    )
    return framework, observed


def _operator_settings(gangs: GangMode, *, local: bool) -> Any:
    """The settings of the operator that the job is planned for."""
    from gangline.jobs.gangs.gangline import GanglineScheduler
    from gangline.jobs.site import Site
    from gangline.operator.settings import LOCAL_GANG_SETTINGS, LOCAL_SETTINGS, OperatorSettings

    if local:
        return LOCAL_GANG_SETTINGS if gangs is GangMode.ALL else LOCAL_SETTINGS
    # An installed operator knows its image, and pulls no other.
    installed = OperatorSettings(pytorch_init_image="", agent_image=f"gangline:{__version__}")
    if gangs is GangMode.NONE:
        return installed
    site = Site(gang_scheduler=GanglineScheduler(), gangs_on_request=gangs is GangMode.REQUESTED)
    return msgspec.structs.replace(installed, site=site)
