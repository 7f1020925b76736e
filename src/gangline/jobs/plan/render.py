"""Bodies of pods and services. The only place where edits are merged into a pod template."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import msgspec

from gangline.api.in_place import IN_PLACE_ANNOTATION, InPlaceOrder
from gangline.api.kubeflow.training import JOB_ROLE, ROUND_ANNOTATION, JobKind, ReplicaSpec, RestartPolicy, TrainingJob
from gangline.api.meta import JSON
from gangline.jobs.framework import Addresses, EnvTarget, PodEdits
from gangline.jobs.gangs.podgroup import NO_GANG_EDITS, GangPodEdits
from gangline.jobs.plan.recovery.affinity import (
    EXCLUDED_NODES_ANNOTATION,
    NO_AVOIDANCE,
    NodeAvoidance,
    keep_away,
)
from gangline.jobs.pods.in_place_containers import add_in_place_containers
from gangline.jobs.pods.labels import job_labels, legacy_labels, member_labels, owner_reference
from gangline.jobs.pods.progress_reporting import add_progress_reporting
from gangline.jobs.pods.replicas import Member, member_name
from gangline.jobs.site import ServiceMode, Site

ENDPOINTS_VARIABLE = "GANGLINE_ENDPOINTS"
"""Variable of every training container on the local plane: the addresses of all replicas, as JSON by replica type."""
PUBLISH_NOT_READY = "training.gangline.dev/publish-not-ready-addresses"
"""Annotation of a job: with `true` the names of its replicas resolve before their pods are ready."""


def service_body(job: TrainingJob, member: Member, template: JSON, job_kind: JobKind, number: int = 0) -> JSON:
    """The headless service of one replica. `number` is the round in which its address was assigned."""
    labels = member_labels(job, member)
    return {
        "metadata": {
            "name": member_name(job.metadata.name, member),
            "namespace": job.metadata.namespace,
            "labels": labels,
            **({"annotations": {ROUND_ANNOTATION: str(number)}} if number else {}),
            "ownerReferences": [owner_reference(job)],
        },
        "spec": _headless_spec(job, labels, service_ports(template, job_kind)),
    }


def job_service_body(job: TrainingJob, template: JSON, job_kind: JobKind) -> JSON:
    """The one headless service of a job whose pods have host names."""
    labels = job_labels(job)
    return {
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": _headless_spec(job, labels, service_ports(template, job_kind)),
    }


def _headless_spec(job: TrainingJob, selector: JSON, ports: list[JSON]) -> JSON:
    publish_not_ready = job.metadata.annotations.get(PUBLISH_NOT_READY) == "true"
    return {
        "clusterIP": "None",
        "selector": selector,
        "ports": ports,
        **({"publishNotReadyAddresses": True} if publish_not_ready else {}),
    }


def companion_body(job: TrainingJob, body: JSON) -> JSON:
    """The body of a companion, in the job's namespace and owned by the job."""
    metadata = {**body["metadata"], "namespace": job.metadata.namespace, "ownerReferences": [owner_reference(job)]}
    return {**body, "metadata": metadata}


def pod_body(
    job: TrainingJob,
    member: Member,
    spec: ReplicaSpec,
    edits: PodEdits,
    addresses: Addresses,
    job_kind: JobKind,
    site: Site,
    number: int = 0,
    restarts_together: bool = False,
    gang_edits: GangPodEdits = NO_GANG_EDITS,
    avoidance: NodeAvoidance = NO_AVOIDANCE,
    in_place: bool = False,
) -> JSON:
    """The pod of one replica: the user's template with the additions of engine, framework and gang scheduler.

    `number` is the gang's round. With `restarts_together` the kubelet must not restart the pod's containers.
    `in_place`: the pod restarts in place when it is asked to.
    """
    template = spec.template
    metadata, body = template.get("metadata") or {}, deepcopy(template.get("spec") or {})
    name = member_name(job.metadata.name, member)
    annotations = dict(metadata.get("annotations") or {})
    if number:
        annotations[ROUND_ANNOTATION] = str(number)
    _edit_containers(body, edits, _endpoint_variables(addresses), job_kind)
    body["restartPolicy"] = _pod_restart_policy(spec.restart_policy, restarts_together=restarts_together)
    if edits.init_containers:
        body["initContainers"] = [*(body.get("initContainers") or []), *edits.init_containers]
    if edits.volumes:
        body["volumes"] = [*(body.get("volumes") or []), *edits.volumes]
    if edits.service_account and not body.get("serviceAccountName"):
        body["serviceAccountName"] = edits.service_account
    if site.services is ServiceMode.PER_JOB and job_kind.port is not None:
        body["hostname"], body["subdomain"] = name, job.metadata.name
    annotations = {**gang_edits.default_annotations, **annotations, **gang_edits.annotations}
    apply_gang_edits(body, gang_edits)
    keep_away(body, avoidance)
    if avoidance.excluded:
        annotations[EXCLUDED_NODES_ANNOTATION] = ",".join(avoidance.excluded)
    if in_place:
        annotations[IN_PLACE_ANNOTATION] = str(InPlaceOrder())
        if site.in_place_image:
            add_in_place_containers(body, site.in_place_image)
    pod_metadata: JSON = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": {
            # Labels of the template win over legacy labels of the same name.
            **(legacy_labels(job, member, edits.labels.get(JOB_ROLE, "")) if site.legacy_labels else {}),
            **(metadata.get("labels") or {}),
            **member_labels(job, member),
            **edits.labels,
            **gang_edits.labels,
        },
        "ownerReferences": [owner_reference(job)],
    }
    if annotations:
        pod_metadata["annotations"] = annotations
    # v1 drops the finalizers of an MPIJob's template.
    if metadata.get("finalizers") and job_kind.port is not None:
        pod_metadata["finalizers"] = metadata["finalizers"]
    pod: JSON = {"metadata": pod_metadata, "spec": body}
    if site.progress is not None:
        add_progress_reporting(pod, job, job_kind, site.progress)
    return pod


def apply_gang_edits(body: JSON, gang_edits: GangPodEdits) -> None:
    """Set what a gang scheduler adds to the spec of a pod."""
    if gang_edits.scheduler_name and not body.get("schedulerName"):
        body["schedulerName"] = gang_edits.scheduler_name
    body.update(gang_edits.spec_fields)
    if gang_edits.scheduling_gates:
        gates = body.get("schedulingGates") or []
        body["schedulingGates"] = [*gates, *({"name": name} for name in gang_edits.scheduling_gates)]


def _pod_restart_policy(policy: str, *, restarts_together: bool) -> str:
    if policy == RestartPolicy.EXIT_CODE or restarts_together:
        return RestartPolicy.NEVER.value
    return policy


def _edit_containers(body: JSON, edits: PodEdits, endpoints: tuple[JSON, ...], job_kind: JobKind) -> None:
    containers: list[JSON] = body.get("containers") or []
    for index, container in enumerate(containers):
        is_training = container.get("name") == job_kind.container
        if is_training and job_kind.port is not None:
            container["ports"] = ports_with_default(container, job_kind)
        gets_env = {EnvTarget.DEFAULT: is_training, EnvTarget.EVERY: True, EnvTarget.FIRST: index == 0}[edits.into]
        env = [*(edits.env if gets_env else ()), *(endpoints if is_training else ())]
        if env:
            container["env"] = [*(container.get("env") or []), *env]
        if index == 0:
            _edit_first_container(container, edits)


def _edit_first_container(container: JSON, edits: PodEdits) -> None:
    if edits.mounts:
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), *edits.mounts]
    if edits.command and not container.get("command"):
        container["command"], container["args"] = list(edits.command), list(edits.args)


def _endpoint_variables(addresses: Addresses) -> tuple[JSON, ...]:
    """On one machine each replica has its own port, which v1's variables cannot express."""
    if not addresses.shared_host or not addresses.known:
        return ()
    endpoints: dict[str, list[str]] = {}
    for member, address in sorted(addresses.known.items()):
        endpoints.setdefault(member.type.lower(), []).append(str(address))
    return ({"name": ENDPOINTS_VARIABLE, "value": msgspec.json.encode(endpoints).decode()},)


def ports_with_default(container: JSON, job_kind: JobKind) -> list[JSON]:
    """The ports of the training container, with the framework's port if the template does not name it."""
    ports = list(container.get("ports") or [])
    if job_kind.port is None or any(port.get("name") == job_kind.port.name for port in ports):
        return ports
    return [*ports, {"name": job_kind.port.name, "containerPort": job_kind.port.number}]


def service_ports(template: JSON, job_kind: JobKind) -> list[JSON]:
    """One service port per port of the training container. A port without a name is named after its number."""
    ports: dict[str, JSON] = {}
    for port in ports_with_default(training_container(template, job_kind), job_kind):
        number = port["containerPort"]
        name = port.get("name") or f"port-{number}"
        ports.setdefault(name, {"name": name, "port": number})
    return list(ports.values())


def port_number(template: JSON, job_kind: JobKind) -> int:
    """The port on which replicas of a type listen; 0 if the kind has none."""
    if job_kind.port is None:
        return 0
    ports: Mapping[Any, Any] = {
        port.get("name"): port["containerPort"] for port in training_container(template, job_kind).get("ports") or []
    }
    number: int = ports.get(job_kind.port.name, job_kind.port.number)
    return number


def training_container(template: JSON, job_kind: JobKind) -> JSON:
    """The training container of a template: by its usual name, else the first."""
    containers: list[JSON] = (template.get("spec") or {}).get("containers") or []
    named = [container for container in containers if container.get("name") == job_kind.container]
    return (named or containers or [{}])[0]
