"""Jobs, addresses and pods of a team, for tests of frameworks."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gangline.api.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodStatus,
)
from gangline.api.meta import JSON, ObjectMeta
from gangline.jobs.framework import Address, Addresses, Framework, J, PodEdits
from gangline.jobs.pods.replicas import Gang, Member, member_name

NAMESPACE = "ml"


def trainer_template(container: str, **fields: Any) -> JSON:
    return {"spec": {"containers": [{"name": container, "image": "train:1", **fields}]}}


def make_framework_job(
    framework: Framework[J], replicas: Mapping[str, int | JSON | None], name: str = "job", **spec: Any
) -> J:
    """A job with its defaults filled in. Replicas are a number or the whole replica spec."""
    facts = framework.facts
    entries = {
        kind: {"template": trainer_template(facts.container), **(entry if isinstance(entry, dict) else {})}
        | ({"replicas": entry} if isinstance(entry, int) else {})
        for kind, entry in replicas.items()
    }
    body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {facts.replicas: entries, **spec}}
    job: J = msgspec.convert(body, facts.model)  # type: ignore[assignment]
    return framework.default(job)


def job_members(framework: Framework[J], job: J) -> list[Member]:
    return [
        Member(kind, index) for kind, spec in framework.replicas(job).items() for index in range(spec.replicas or 0)
    ]


def cluster_addresses(framework: Framework[J], job: J, *, domain: str = "", ports: Mapping[str, int] = {}) -> Addresses:
    """Every member by its service's name, at the kind's port or that given for its type."""
    usual = framework.facts.port.number if framework.facts.port is not None else 0
    known = {}
    for member in job_members(framework, job):
        name = member_name(job.metadata.name, member)
        full = f"{name}.{job.metadata.namespace}.svc" + (f".{domain}" if domain else "")
        known[member] = Address(name, full, ports.get(member.type.lower(), usual))
    return Addresses(known)


def local_addresses(framework: Framework[J], job: J) -> Addresses:
    """Every member at a port of its own: 7000, 7001 and so on."""
    known = {
        member: Address("127.0.0.1", "127.0.0.1", 7000 + number)
        for number, member in enumerate(job_members(framework, job))
    }
    return Addresses(known, shared_host=True)


def member_pod_edits(framework: Framework[J], job: J, kind: str, index: int = 0, **ports: int) -> PodEdits:
    """The edits of a member's pod in a cluster."""
    return framework.wiring(job, Member(kind, index), cluster_addresses(framework, job, ports=ports))


def env_pairs(edits: PodEdits) -> list[tuple[str, Any]]:
    """Names and values of the environment, in order; `valueFrom` where there is no value, None for neither."""
    return [(each["name"], each.get("value", each.get("valueFrom"))) for each in edits.env]


def env_text(edits: PodEdits) -> str:
    """`A=1 B=2`, in order."""
    return " ".join(f"{name}={value}" for name, value in env_pairs(edits))


def make_gang(framework: Framework[J], job: J, **phases: str) -> Gang:
    """The team with pods in these phases: `worker_0="Running"`, `launcher="Failed"`; `-Running` is being deleted.

    Containers of ended pods have exit code 0 or 1; `Succeeded:3` has another one, `Succeeded:` has none.
    """
    pods = [
        _make_member_pod(f"{job.metadata.name}-{seat.replace('_', '-')}", phase, framework.facts.container)
        for seat, phase in phases.items()
    ]
    return Gang.of(job.metadata.name, framework.replicas(job), pods)


def _make_member_pod(name: str, phase: str, container: str) -> Pod:
    going, phase = phase.startswith("-"), phase.removeprefix("-")
    phase, told, written = phase.partition(":")
    code = int(written) if written else None if told else {"Succeeded": 0, "Failed": 1}.get(phase)
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=code)) if code is not None else None
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if going else None,
        ),
        status=PodStatus(
            phase=phase,
            container_statuses=(ContainerStatus(name=container, state=ended),) if ended else (),
        ),
    )
