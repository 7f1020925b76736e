"""Mistakes in a job's pod templates that an API server would refuse."""

from copy import deepcopy
from typing import Any

import pytest
import yaml

from gangline.api.codec.codec import decode_document
from gangline.api.codec.documents import Document
from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.cli.manifests.lint import Finding, check_text, framework_of
from gangline.cli.manifests.lint_pods import pod_problems
from gangline.jobs.framework import PodEdits
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.pods.replicas import Member
from support.cases.pods import POD_MISTAKES, VALID_POD_SPEC, VALID_VARIANTS, PodMistake

TEMPLATE = "spec.tfReplicaSpecs.Worker.template.spec"
KINDS = {
    "TFJob": ("tfReplicaSpecs", "Worker", "tensorflow"),
    "PyTorchJob": ("pytorchReplicaSpecs", "Master", "pytorch"),
    "XGBoostJob": ("xgbReplicaSpecs", "Master", "xgboost"),
    "MPIJob": ("mpiReplicaSpecs", "Launcher", "mpi"),
    "PaddleJob": ("paddleReplicaSpecs", "Worker", "paddle"),
    "JAXJob": ("jaxReplicaSpecs", "Worker", "jax"),
}


def findings_for(spec: JSON, *, metadata: JSON | None = None, policy: JSON | None = None) -> tuple[Finding, ...]:
    """The findings for a TFJob with workers of this template."""
    worker: JSON = {"replicas": 2, "template": {"metadata": metadata or {}, "spec": spec}}
    job: JSON = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "linear"},
        "spec": {"tfReplicaSpecs": {"Worker": worker}, "runPolicy": policy or {}},
    }
    return check_text(yaml.safe_dump(job), "job.yaml").findings


@pytest.mark.parametrize("bad", POD_MISTAKES.values(), ids=POD_MISTAKES)
def test_a_pod_mistake_is_found_once_with_path_and_what_to_write(bad: PodMistake) -> None:
    (finding,) = findings_for(bad.spec)
    assert finding.path == f"{TEMPLATE}.{bad.reported_path}"
    assert bad.expected_message in finding.message
    assert finding.write == bad.suggestion


@pytest.mark.parametrize(
    "spec", [VALID_POD_SPEC, *(fine.spec for fine in VALID_VARIANTS.values())], ids=["good", *VALID_VARIANTS]
)
def test_a_valid_pod_has_no_findings(spec: JSON) -> None:
    assert findings_for(spec) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        # A server of 1.34 drops these fields, and others accept them.
        ("restartPolicy", "Always"),
        ("restartPolicy", "Never"),
        ("lifecycle", {"stopSignal": "SIGUSR1"}),
    ],
)
def test_version_dependent_fields_are_left_to_the_server(field: str, value: Any) -> None:
    assert findings_for(PodMistake(f"containers.0.{field}", value, "", "").spec) == ()


def test_an_unknown_restart_policy_of_a_container_is_wrong_in_all_versions() -> None:
    (finding,) = findings_for(PodMistake("containers.0.restartPolicy", "never", "", "").spec)
    assert (finding.path, finding.write) == (
        f"{TEMPLATE}.containers[0].restartPolicy",
        "restartPolicy: Never",
    )


def test_the_restart_policy_of_a_template_is_ignored() -> None:
    assert findings_for({**VALID_POD_SPEC, "restartPolicy": "ExitCode"}) == ()


def test_labels_of_a_template_are_checked() -> None:
    (finding,) = findings_for(VALID_POD_SPEC, metadata={"labels": {"team": "a b"}})
    assert finding.path == "spec.tfReplicaSpecs.Worker.template.metadata.labels"


def test_a_suspended_job_is_checked_too() -> None:
    assert len(findings_for(POD_MISTAKES["protocol"].spec, policy={"suspend": True})) == 1


def test_a_volume_of_the_operators_own_may_be_mounted_by_a_sidecar() -> None:
    mount = [{"name": "mpi-job-config", "mountPath": "/hosts"}]
    containers: Any = [
        {"name": "mpi", "image": "x", "command": ["mpirun"]},
        {"name": "watch", "image": "x", "volumeMounts": mount},
    ]
    workers: JSON = {"replicas": 1, "template": {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}}
    job: JSON = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "x"},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"template": {"spec": {"containers": containers}}},
                "Worker": workers,
            }
        },
    }
    assert check_text(yaml.safe_dump(job), "job.yaml").findings == ()


@pytest.mark.parametrize("kind", KINDS)
def test_templates_of_every_kind_are_checked(kind: str) -> None:
    field, replica, container = KINDS[kind]
    spec = {"name": container, "image": "x", "imagePullPolicy": "Sometimes"}
    specs = {replica: {"replicas": 1, "template": {"spec": {"containers": [spec]}}}}
    if kind == "MPIJob":
        specs["Worker"] = {
            "replicas": 1,
            "template": {"spec": {"containers": [{"name": "mpi", "image": "x"}]}},
        }
    job: JSON = {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": {field: specs},
    }
    (finding,) = check_text(yaml.safe_dump(job), "job.yaml").findings
    assert finding.path == f"spec.{field}.{replica}.template.spec.containers[0].imagePullPolicy"


FILE = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: linear
spec:
  tfReplicaSpecs:
    worker:
      replicas: three
      template:
        spec:
          containers:
            - name: main
              image: x
              imagePullPolicy: always
              volumeMounts:
                - name: data
                  mountPath: /data
                  mountPropagation: Both
          volumes:
            - name: data
"""


def test_mistakes_of_all_sorts_are_found_together_with_their_lines() -> None:
    texts = [(finding.line, finding.path.rpartition(".")[2]) for finding in check_text(FILE, "job.yaml").findings]
    assert texts == [(8, "replicas"), (12, "name"), (14, "imagePullPolicy"), (18, "mountPropagation")]


def test_a_key_with_dots_is_one_step_of_a_path() -> None:
    text = FILE.replace("imagePullPolicy: always", "resources: {limits: {nvidia.com/gpu: 2 K}}")
    finding = next(finding for finding in check_text(text, "job.yaml").findings if "quantity" in finding.message)
    assert finding.path.endswith('.containers[0].resources.limits["nvidia.com/gpu"]')
    assert (finding.line, finding.write) == (14, "nvidia.com/gpu: 2k")


@pytest.mark.parametrize(
    ("text", "write"),
    [("16 GiB", "memory: 16Gi"), ("16GB", "memory: 16G"), ("1.5KB", "memory: 1.5k"), ("much", "")],
)
def test_an_invalid_quantity_is_reported_without_a_pattern(text: str, write: str) -> None:
    (finding,) = findings_for(PodMistake("containers.0.resources.limits.memory", text, "", "").spec)
    assert finding.path == f"{TEMPLATE}.containers[0].resources.limits.memory"
    assert finding.message == f'"{text}" is no quantity; write a number, with a unit or without: 500m, 2, 16Gi'
    assert finding.write == write


def test_a_port_without_a_number_hides_no_other_mistake() -> None:
    spec = PodMistake("containers.0.ports.0", {"hostPort": 80}, "", "").spec
    spec["volumes"][0]["emptyDir"] = {"sizeLimit": "-1"}
    assert [finding.path.removeprefix(f"{TEMPLATE}.") for finding in findings_for(spec)] == [
        "containers[0].ports[0].containerPort",
        "volumes[0].emptyDir.sizeLimit",
    ]


def test_each_finding_is_one_line_and_below_it_what_to_write() -> None:
    text = FILE.replace("three", "3").replace("name: main", "name: tensorflow").replace("Both", "None")
    (finding,) = check_text(text, "job.yaml").findings
    assert str(finding) == (
        "job.yaml:14: spec.tfReplicaSpecs.worker.template.spec.containers[0].imagePullPolicy: Unsupported value:"
        ' "always": supported values: "Always", "IfNotPresent", "Never"\n  write:   imagePullPolicy: Always'
    )


def job_of(kind: str) -> JSON:
    field, role, container = KINDS[kind]
    template: JSON = {"spec": {"containers": [{"name": container, "image": "train:1"}]}}
    roles = {kind_: {"replicas": 1, "template": template} for kind_ in {role, "Worker"}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "linear"},
        "spec": {field: roles},
    }


def edits(kind: str) -> dict[str, PodEdits]:
    """The framework's edits of the first pod of each replica type."""
    framework = framework_of(kind)
    job = decode_document(Document(job_of(kind), {}), framework.facts.model)
    observed = ObservedJob.of(framework, job, SystemClock().now())
    kinds = framework.replicas(observed.job)
    return {kind_: framework.wiring(observed.job, Member(kind_, 0), observed.addresses) for kind_ in kinds}


EDITS = {kind: deepcopy(edits(kind)) for kind in KINDS}
"""The edits before any test."""


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_a_framework_shares_between_pods_are_not_changed(kind: str) -> None:
    """Validation sets defaults, but only in copies."""
    assert tuple(pod_problems(framework_of(kind), job_of(kind), sound=True)) == ()
    assert edits(kind) == EDITS[kind]
