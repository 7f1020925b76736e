"""Template plus edits make a body. The only place where a template is merged."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from gangline.api.meta import JSON
from gangline.api.training import (
    GROUP,
    JOB_NAME,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    VERSION,
    TrainingJob,
)
from gangline.jobs.framework import Framework, Member, PodEdits, Port


def member_name(job: TrainingJob, member: Member) -> str:
    """Deterministic, so that a second attempt meets the first one's object."""
    return f"{job.metadata.name}-{member.type.lower()}-{member.index}"


def member_labels(job: TrainingJob, member: Member) -> dict[str, str]:
    return {
        JOB_NAME: job.metadata.name,
        OPERATOR_NAME: f"{job.KIND.lower()}-controller",
        REPLICA_TYPE: member.type.lower(),
        REPLICA_INDEX: str(member.index),
    }


def service_body(job: TrainingJob, member: Member, template: JSON, framework: Framework[Any]) -> JSON:
    """The headless service through which the others find a member."""
    labels = member_labels(job, member)
    ports = [
        {"name": port["name"], "port": port["containerPort"]}
        for port in with_port(template, framework.container, framework.port)
    ]
    return {
        "metadata": _metadata(job, member, labels, {}),
        "spec": {"clusterIP": "None", "selector": labels, "ports": ports},
    }


def pod_body(
    job: TrainingJob,
    member: Member,
    template: JSON,
    restart_policy: str,
    edits: PodEdits,
    framework: Framework[Any],
) -> JSON:
    """A member's pod: the user's template, with what the engine and the framework add."""
    metadata, spec = template.get("metadata", {}), deepcopy(template.get("spec", {}))
    labels = {**metadata.get("labels", {}), **member_labels(job, member), **edits.labels}
    for container in spec.get("containers", []):
        if container.get("name") == framework.container:
            container["ports"] = with_port(template, framework.container, framework.port)
            added = [{"name": name, "value": value} for name, value in edits.env.items()]
            container["env"] = [*container.get("env", []), *added]
    spec["restartPolicy"] = "Never" if restart_policy == "ExitCode" else restart_policy
    return {"metadata": _metadata(job, member, labels, metadata.get("annotations", {})), "spec": spec}


def with_port(template: JSON, container: str, port: Port) -> list[JSON]:
    """The training container's ports, with the framework's own if the template does not name it."""
    ports: list[JSON] = []
    for found in template.get("spec", {}).get("containers", []):
        if found.get("name") == container:
            ports = list(found.get("ports", []))
    if any(found.get("name") == port.name for found in ports):
        return ports
    return [*ports, {"name": port.name, "containerPort": port.number}]


def _metadata(
    job: TrainingJob, member: Member, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> JSON:
    return {
        "name": member_name(job, member),
        "namespace": job.metadata.namespace,
        "labels": dict(labels),
        **({"annotations": dict(annotations)} if annotations else {}),
        "ownerReferences": [
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": job.KIND,
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
