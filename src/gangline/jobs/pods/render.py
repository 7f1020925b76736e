"""Template plus edits make a body. The only place where a template is merged."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec

from gangline.api.kubeflow.training import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    ROUND_ANNOTATION,
    JobKind,
    ReplicaSpec,
    RestartPolicy,
    TrainingJob,
)
from gangline.api.meta import JSON
from gangline.jobs.framework import Addresses, EnvTarget, PodEdits
from gangline.jobs.gangs.podgroup import NO_GANG_EDITS, GangPodEdits
from gangline.jobs.pods.addressing import ServiceMode, Site
from gangline.jobs.pods.legacy_labels import legacy_labels
from gangline.jobs.pods.replicas import UNINDEXED_TYPE, Member, member_name

ENDPOINTS_VARIABLE = "GANGLINE_ENDPOINTS"
"""Variable of every training container on the local plane: all members' addresses, as JSON by replica type."""
PUBLISH_NOT_READY = "training.gangline.dev/publish-not-ready-addresses"
"""Annotation of a job: `true` makes its members' names resolve before they are ready."""


def job_labels(job: TrainingJob) -> dict[str, str]:
    """By these the objects of a job are known."""
    return {JOB_NAME: job.metadata.name, OPERATOR_NAME: f"{job.KIND.lower()}-controller"}


def member_labels(job: TrainingJob, member: Member) -> dict[str, str]:
    labels = {**job_labels(job), REPLICA_TYPE: member.type.lower()}
    return labels if member.type == UNINDEXED_TYPE else {**labels, REPLICA_INDEX: str(member.index)}


def owner_reference(job: TrainingJob) -> JSON:
    return {
        "apiVersion": job.API_VERSION,
        "kind": job.KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def service_body(job: TrainingJob, member: Member, template: JSON, facts: JobKind, number: int = 0) -> JSON:
    """The headless service through which the others find a member. `number` is the round of its addresses."""
    labels = member_labels(job, member)
    return {
        "metadata": {
            "name": member_name(job.metadata.name, member),
            "namespace": job.metadata.namespace,
            "labels": labels,
            **({"annotations": {ROUND_ANNOTATION: str(number)}} if number else {}),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": _headless_spec(job, labels, service_ports(template, facts)),
    }


def job_service_body(job: TrainingJob, template: JSON, facts: JobKind) -> JSON:
    """The one headless service of a job whose members have host names of their own."""
    labels = job_labels(job)
    return {
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": _headless_spec(job, labels, service_ports(template, facts)),
    }


def _headless_spec(job: TrainingJob, selector: JSON, ports: list[JSON]) -> JSON:
    early = job.metadata.annotations.get(PUBLISH_NOT_READY) == "true"
    return {
        "clusterIP": "None",
        "selector": selector,
        "ports": ports,
        **({"publishNotReadyAddresses": True} if early else {}),
    }


def companion_body(job: TrainingJob, body: JSON) -> JSON:
    """An object beside the pods, made the job's own."""
    metadata = {
        **body["metadata"],
        "namespace": job.metadata.namespace,
        "ownerReferences": [owner_reference(job)],
    }
    return {**body, "metadata": metadata}


def pod_body(
    job: TrainingJob,
    member: Member,
    spec: ReplicaSpec,
    edits: PodEdits,
    addresses: Addresses,
    facts: JobKind,
    site: Site,
    number: int = 0,
    restarts_together: bool = False,
    marks: GangPodEdits = NO_GANG_EDITS,
) -> JSON:
    """A member's pod: the user's template, with what the engine, the framework and the gang's scheduler add.

    `number` is the team's round. A team that restarts together leaves no restart to the kubelet.
    """
    template = spec.template
    metadata, body = template.get("metadata") or {}, deepcopy(template.get("spec") or {})
    name = member_name(job.metadata.name, member)
    annotations = dict(metadata.get("annotations") or {})
    if number:
        annotations[ROUND_ANNOTATION] = str(number)
    _edit_containers(body, edits, _endpoint_variables(addresses), facts)
    body["restartPolicy"] = _pod_restart_policy(spec.restart_policy, restarts_together=restarts_together)
    if edits.init_containers:
        body["initContainers"] = [*(body.get("initContainers") or []), *edits.init_containers]
    if edits.volumes:
        body["volumes"] = [*(body.get("volumes") or []), *edits.volumes]
    if edits.service_account and not body.get("serviceAccountName"):
        body["serviceAccountName"] = edits.service_account
    if site.services is ServiceMode.PER_JOB and facts.port is not None:
        body["hostname"], body["subdomain"] = name, job.metadata.name
    annotations = {**marks.default_annotations, **annotations, **marks.annotations}
    _apply_gang_edits(body, marks)
    made: JSON = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": {
            # The template's own win: nobody who wrote such a label should lose it to these.
            **(legacy_labels(job, member, edits.labels.get(JOB_ROLE, "")) if site.legacy_labels else {}),
            **(metadata.get("labels") or {}),
            **member_labels(job, member),
            **edits.labels,
            **marks.labels,
        },
        "ownerReferences": [owner_reference(job)],
    }
    if annotations:
        made["annotations"] = annotations
    # v1 drops those of an MPIJob's template.
    if metadata.get("finalizers") and facts.port is not None:
        made["finalizers"] = metadata["finalizers"]
    return {"metadata": made, "spec": body}


def _apply_gang_edits(body: JSON, marks: GangPodEdits) -> None:
    if marks.scheduler_name and not body.get("schedulerName"):
        body["schedulerName"] = marks.scheduler_name
    body.update(marks.spec_fields)
    if marks.scheduling_gates:
        gates = body.get("schedulingGates") or []
        body["schedulingGates"] = [*gates, *({"name": name} for name in marks.scheduling_gates)]


def _pod_restart_policy(written: str, *, restarts_together: bool) -> str:
    if written == RestartPolicy.EXIT_CODE or restarts_together:
        return RestartPolicy.NEVER.value
    return written


def _edit_containers(body: JSON, edits: PodEdits, endpoints: tuple[JSON, ...], facts: JobKind) -> None:
    containers: list[JSON] = body.get("containers") or []
    for index, container in enumerate(containers):
        trains = container.get("name") == facts.container
        if trains and facts.port is not None:
            container["ports"] = ports_with_default(container, facts)
        wanted = {EnvTarget.DEFAULT: trains, EnvTarget.EVERY: True, EnvTarget.FIRST: index == 0}[edits.into]
        added = [*(edits.env if wanted else ()), *(endpoints if trains else ())]
        if added:
            container["env"] = [*(container.get("env") or []), *added]
        if index == 0:
            _edit_first_container(container, edits)


def _edit_first_container(container: JSON, edits: PodEdits) -> None:
    if edits.mounts:
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), *edits.mounts]
    if edits.command and not container.get("command"):
        container["command"], container["args"] = list(edits.command), list(edits.args)


def _endpoint_variables(addresses: Addresses) -> tuple[JSON, ...]:
    """On one machine v1's variables cannot say that every member has a port of its own."""
    if not addresses.shared_host or not addresses.known:
        return ()
    book: dict[str, list[str]] = {}
    for member, address in sorted(addresses.known.items()):
        book.setdefault(member.type.lower(), []).append(str(address))
    return ({"name": ENDPOINTS_VARIABLE, "value": msgspec.json.encode(book).decode()},)


def ports_with_default(container: JSON, facts: JobKind) -> list[JSON]:
    """The training container's ports, with the framework's own if the template does not name it."""
    ports = list(container.get("ports") or [])
    if facts.port is None or any(found.get("name") == facts.port.name for found in ports):
        return ports
    return [*ports, {"name": facts.port.name, "containerPort": facts.port.number}]


def service_ports(template: JSON, facts: JobKind) -> list[JSON]:
    """One per port of the training container. A service needs names: a port without one is called by its number."""
    made: dict[str, JSON] = {}
    for port in ports_with_default(training_container(template, facts), facts):
        number = port["containerPort"]
        name = port.get("name") or f"port-{number}"
        made.setdefault(name, {"name": name, "port": number})
    return list(made.values())


def port_number(template: JSON, facts: JobKind) -> int:
    """Where members of a replica type listen."""
    if facts.port is None:
        return 0
    ports: Mapping[Any, Any] = {
        found.get("name"): found["containerPort"] for found in training_container(template, facts).get("ports") or []
    }
    number: int = ports.get(facts.port.name, facts.port.number)
    return number


def training_container(template: JSON, facts: JobKind) -> JSON:
    """The container that trains: by name, else the first."""
    containers: list[JSON] = (template.get("spec") or {}).get("containers") or []
    named = [found for found in containers if found.get("name") == facts.container]
    return (named or containers or [{}])[0]
