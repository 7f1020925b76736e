"""What a handover keeps, and how it recognizes the other operator."""

from typing import Any

from gangline.api.kubeflow.training import JobStatus
from gangline.api.meta import JSON
from gangline.cli.handover.facts import (
    KubeflowObjects,
    back_text,
    kubeflow_deployments,
    kubeflow_webhooks,
    unfinished_text,
)
from gangline.cli.handover.operator_flags import MPI_VALUES, carried_values, deployed_settings
from gangline.cli.handover.record import (
    HandoverRecord,
    StoppedDeployment,
    read_handover,
    record_bodies,
    with_earlier,
)
from gangline.cli.handover.rehearsal import plan_text
from gangline.cli.install.request import install_values
from gangline.jobs.plan.actions import Create, Delete, JobPlan

HOOK: JSON = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "validator.training-operator.kubeflow.org"},
    "webhooks": [{"name": "a"}],
}


def crd(name: str, text: str = "") -> JSON:
    body: JSON = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**body, "metadata": {"name": name}, "spec": {"text": text}}


def deployment(
    image: str = "kubeflow/training-operator:v1", replicas: int = 2, name: str = "training-operator"
) -> JSON:
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "a", "image": image}]}}
    metadata = {"name": name, "namespace": "kubeflow"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": replicas, "template": template},
    }


def configuration(name: str, group: str, namespace: str) -> JSON:
    hook = {"clientConfig": {"service": {"namespace": namespace}}, "rules": [{"apiGroups": [group]}]}
    return {"metadata": {"name": name}, "webhooks": [hook]}


def test_a_record_is_read_as_it_was_written_and_large_definitions_fit() -> None:
    large = crd("tfjobs.kubeflow.org", "properties " * 60_000)
    record = HandoverRecord((StoppedDeployment("kubeflow", "training-operator", 2),), (large, HOOK))
    bodies = record_bodies(record, "gangline")
    assert all(len(str(body)) < 1_000_000 for body in bodies)
    assert bodies[-1]["metadata"]["name"] == "gangline-handover"
    found = read_handover(reversed(bodies))
    assert found is not None
    assert found.deployments == record.deployments
    assert sorted(found.refs) == sorted(record.refs)
    assert large in found.objects


def test_a_record_that_was_interrupted_is_none() -> None:
    assert read_handover(record_bodies(HandoverRecord((), (HOOK,)), "gangline")[:-1]) is None
    assert read_handover([]) is None


def test_an_attempt_that_is_repeated_keeps_what_the_first_one_saw() -> None:
    earlier = HandoverRecord((StoppedDeployment("kubeflow", "a", 2),), (crd("tfjobs", "theirs"),))
    again = HandoverRecord(
        (StoppedDeployment("kubeflow", "a", 0), StoppedDeployment("kubeflow", "b", 1)), (crd("tfjobs", "ours"), HOOK)
    )
    merged = with_earlier(again, earlier)
    assert merged.deployments == (earlier.deployments[0], again.deployments[1])
    assert merged.objects == (crd("tfjobs", "theirs"), HOOK)
    assert with_earlier(again, None) == again


def test_the_other_operator_is_recognized_even_when_it_is_stopped() -> None:
    stopped = deployment(replicas=0)
    assert kubeflow_deployments([stopped, deployment("nginx", name="web")]) == [stopped]
    assert not KubeflowObjects([stopped]).is_running
    assert KubeflowObjects([deployment()]).is_running


def test_only_webhooks_of_the_other_operator_are_removed() -> None:
    ours: list[Any] = [configuration("renamed", "kubeflow.org", "kubeflow")]
    others = [
        configuration("katib", "kubeflow.org", "katib"),
        configuration("gatekeeper", "*", "kubeflow"),
        {"metadata": {"name": "empty"}, "webhooks": []},
    ]
    assert kubeflow_webhooks([HOOK, *ours, *others], ["kubeflow"]) == [HOOK, *ours]


def test_what_is_kept_can_be_created_again() -> None:
    body = {**crd("tfjobs"), "status": {"a": 1}}
    body["metadata"] |= {"uid": "1", "resourceVersion": "2"}
    record = KubeflowObjects([deployment()], [], [body]).record()
    assert record.deployments == (StoppedDeployment("kubeflow", "training-operator", 2),)
    assert record.objects == (crd("tfjobs"),)


def test_the_flags_of_the_other_operator_are_carried_over() -> None:
    body = deployment()
    container = body["spec"]["template"]["spec"]["containers"][0]
    assert carried_values([body]) == {}
    container |= {"command": ["/manager"], "args": ["-gang-scheduler-name=volcano", "--enable-scheme=tfjob"]}
    assert carried_values([body]) == {"gangSchedulerName": "volcano", "kinds": ["TFJob"]}
    container["args"] = ["--namespace", "team-a"]
    assert carried_values([body]) == {"watchNamespaces": ["team-a"]}
    container["args"] = ["--no-such-flag"]
    assert carried_values([body]) == {}


def test_what_is_carried_over_are_values_of_an_installation() -> None:
    body = deployment()
    flags = ["--gang-scheduler-name=volcano", "--enable-scheme=tfjob", "--namespace=team-a"]
    body["spec"]["template"]["spec"]["containers"][0]["args"] = flags
    values = install_values({**carried_values([body]), **MPI_VALUES})
    assert values.rbac.mpi_jobs
    assert values.watch_namespaces == ("team-a",)
    assert values.kinds == ("TFJob",)
    assert values.gang_scheduler_name == "volcano"


def test_the_settings_of_our_operator_are_those_of_its_deployment() -> None:
    body = deployment("gangline:1")
    container = body["spec"]["template"]["spec"]["containers"][0]
    container |= {
        "args": ["--leader-elect", "--namespace=a"],
        "env": [{"name": "GANGLINE_IMAGE", "value": "gangline:1"}],
    }
    settings = deployed_settings(body)
    assert settings.namespaces == ("a",)
    assert settings.agent_image == "gangline:1"
    assert settings.pytorch_init_image == ""


def test_after_a_failed_start_both_ways_on_are_named() -> None:
    text = unfinished_text("gangline-operator: pod a: ImagePullBackOff")
    assert text.startswith("gangline-operator: pod a: ImagePullBackOff; no operator serves the jobs now")
    assert "gangline handover --back --yes" in text


def test_the_way_back_to_an_operator_that_did_not_run_says_so() -> None:
    running, stopped = (HandoverRecord((StoppedDeployment("kubeflow", "training-operator", n),)) for n in (1, 0))
    assert back_text(running, "ml").startswith("the Kubeflow operator serves the jobs again; ")
    assert "kubectl -n kubeflow scale deployment training-operator --replicas=1" in back_text(stopped, "ml")
    assert back_text(HandoverRecord(), "ml").startswith("no operator serves the jobs")
    assert all("gangline uninstall --namespace ml" in back_text(one, "ml") for one in (running, stopped))


def test_one_pod_is_no_pods() -> None:
    delete, create = Delete("pods", "a", "uid"), Create("pods", {})
    plan = JobPlan(JobStatus(), stages=((delete, create, create),))
    assert plan_text(JobStatus(), plan) == "1 pod is removed; 2 pods are created"
