"""docs/scheduling.md and its reference are right: the PodGroup is the one of its job, manifests valid, tables complete."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gangline.api.codec.codec import decode
from gangline.api.kubeflow.kinds import PyTorchJob
from gangline.api.meta import JSON
from gangline.api.scheduling import (
    COMMIT_ANNOTATION,
    DEFAULT_SCHEDULE_TIMEOUT,
    GANG_GATE,
    GANG_SCHEDULER_ANNOTATION,
    GROUP_NAME_ANNOTATION,
    ON_TIMEOUT_ANNOTATION,
    PODGROUPS,
    PREFERRED_TOPOLOGY_ANNOTATION,
    QUEUES,
    REQUIRED_TOPOLOGY_ANNOTATION,
    PodGroupPhase,
    PodGroupReason,
)
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.gangs.kubernetes import KubernetesWorkloads
from gangline.jobs.gangs.podgroup import NO_EVICTION_ANNOTATIONS, pod_group_resource
from gangline.jobs.gangs.scheduler_plugins import SchedulerPlugins
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.site import Site
from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_schema
from gangline.schema.nodes import SchemaNode
from gangline.schema.structural.validation import validate
from support.builders.observed_jobs import OBSERVED_AT, created_body

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("scheduling.md", "reference/gangs.md", "reference/other-schedulers.md")
PAGE = "\n".join((DOCS / name).read_text() for name in PAGES)
WRITTEN: dict[str, Any] = {
    found["kind"]: found
    for found in (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
}


def rows(heading: str) -> list[str]:
    """The first column of the table under a heading."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


def test_the_group_on_the_page_is_the_one_that_is_made_of_the_job_on_the_page() -> None:
    job = decode(msgspec.json.encode(WRITTEN["PyTorchJob"]), PyTorchJob)
    torch = PyTorch()
    body = created_body(
        reconcile_plan(torch, ObservedJob.of(torch, job, OBSERVED_AT, site=Site(gang_scheduler=GanglineScheduler()))),
        "bert",
        PODGROUPS.name,
    )
    assert body["spec"] == WRITTEN["PodGroup"]["spec"]


@pytest.mark.parametrize("resource", GANG_RESOURCES, ids=lambda one: one.kind)
def test_manifests_on_the_page_are_taken(resource: Any) -> None:
    found: JSON = WRITTEN[resource.kind]
    assert found["apiVersion"] == resource.api_version
    assert validate(found, SchemaNode(gang_schema(resource))) == []


def test_every_phase_and_reason_is_told() -> None:
    assert rows("phase | meaning") == [phase.value for phase in PodGroupPhase]
    assert rows("reason | when") == [
        PodGroupReason.POD_FAILED,
        PodGroupReason.POD_DELETED,
        PodGroupReason.NOT_ENOUGH_TASKS,
        PodGroupReason.NOT_ENOUGH_RESOURCES,
    ]


def test_every_annotation_and_gate_is_told() -> None:
    names = [
        GROUP_NAME_ANNOTATION,
        COMMIT_ANNOTATION,
        ON_TIMEOUT_ANNOTATION,
        GANG_SCHEDULER_ANNOTATION,
        GANG_GATE,
        REQUIRED_TOPOLOGY_ANNOTATION,
        PREFERRED_TOPOLOGY_ANNOTATION,
        *NO_EVICTION_ANNOTATIONS,
    ]
    assert not [name for name in names if name not in PAGE and name.rpartition("/")[2] not in PAGE]


def test_every_scheduler_is_told_with_its_groups() -> None:
    for gangs in (GanglineScheduler(), Volcano(), KubernetesWorkloads(), SchedulerPlugins("any")):
        assert pod_group_resource(gangs) in PAGE
    assert QUEUES.kind in WRITTEN
    assert f"| the same | {DEFAULT_SCHEDULE_TIMEOUT} |" in PAGE
