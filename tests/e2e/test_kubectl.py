"""The real kubectl, unmodified, on a plane that `gangline up` started."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cluster.clients import DetachedPlane, Kubectl, find_kubectl

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kubectl")]  # one plane for all of them

NUMBERS = itertools.count()

CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "app", "labels": {"tier": "front"}},
    "data": {"level": "1", "mode": "fast"},
}


def changed(level: str) -> dict[str, Any]:
    return {**CONFIG, "data": {"level": level, "mode": "fast"}}


def job(name: str, *command: str, replicas: int = 2) -> dict[str, Any]:
    container = {"name": "tensorflow", "image": "none", "command": list(command)}
    worker = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    find_kubectl()
    found = DetachedPlane(tmp_path_factory.mktemp("plane"))
    found.up()
    yield found
    found.down()


@pytest.fixture
def kubectl(plane: DetachedPlane) -> Kubectl:
    """kubectl in a new namespace."""
    name = f"kubectl-{next(NUMBERS)}"
    Kubectl(plane)("create", "namespace", name)
    return Kubectl(plane, name)


# Objects


def test_create_refuses_what_exists_and_apply_changes_it(kubectl: Kubectl) -> None:
    assert kubectl("create", "-f", "-", stdin=CONFIG) == "configmap/app created\n"
    assert "AlreadyExists" in kubectl.run_failing("create", "-f", "-", stdin=CONFIG)
    assert kubectl("apply", "-f", "-", stdin=changed("2")) == "configmap/app configured\n"
    assert kubectl("apply", "-f", "-", stdin=changed("2")) == "configmap/app unchanged\n"
    without = {**CONFIG, "data": {"level": "2"}}
    kubectl("apply", "-f", "-", stdin=without)
    assert kubectl.get("configmap", "app")["data"] == {"level": "2"}


def test_server_side_apply_tells_of_a_conflict_and_can_win_it(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "--field-manager=one", "-f", "-", stdin=CONFIG)
    refused = kubectl.run_failing("apply", "--server-side", "--field-manager=two", "-f", "-", stdin=changed("2"))
    assert 'conflict with "one": .data.level' in refused
    forced = ("--server-side", "--field-manager=two", "--force-conflicts")
    kubectl("apply", *forced, "-f", "-", stdin=changed("2"))
    shown = kubectl("get", "configmap", "app", "--show-managed-fields", "-o", "yaml")
    assert "manager: one" in shown
    assert "manager: two" in shown


def test_diff_shows_what_apply_would_change(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CONFIG)
    assert kubectl("diff", "-f", "-", stdin=CONFIG) == ""
    found = kubectl("diff", "-f", "-", stdin=changed("2"), code=1)
    assert re.search(r'^-  level: "1"\n\+  level: "2"', found, re.MULTILINE)
    assert kubectl.get("configmap", "app")["data"]["level"] == "1"


def test_get_prints_in_every_form(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG)
    assert kubectl("get", "cm", "app", "-o", "name") == "configmap/app\n"
    assert kubectl("get", "cm", "app", "-o", "jsonpath={.data.mode}") == "fast"
    assert kubectl("get", "cm", "-l", "tier=front", "-o", "wide").split()[:4] == [
        "NAME",
        "DATA",
        "AGE",
        "app",
    ]
    assert "  mode: fast\n" in kubectl("get", "cm", "app", "-o", "yaml")
    columns = "custom-columns=N:.metadata.name,M:.data.mode"
    assert kubectl("get", "cm", "app", "-o", columns).split() == ["N", "M", "app", "fast"]
    assert "NotFound" in kubectl.run_failing("get", "cm", "absent")
    assert "doesn't have a resource type" in kubectl.run_failing("get", "nonsense")


def test_a_list_comes_whole_in_small_pieces(kubectl: Kubectl) -> None:
    kinds = [{**CONFIG, "metadata": {"name": f"piece-{number}"}} for number in range(7)]
    kubectl("create", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": kinds})
    found = kubectl("get", "cm", "--chunk-size=3", "-o", "name", "--sort-by=.metadata.name").split()
    assert [name for name in found if "piece" in name] == [f"configmap/piece-{number}" for number in range(7)]


def test_labels_and_annotations_come_and_go(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG)
    kubectl("label", "cm", "app", "team=red")
    kubectl("annotate", "cm", "app", "note=a b c")
    metadata = kubectl.get("cm", "app")["metadata"]
    assert metadata["labels"] == {"tier": "front", "team": "red"}
    assert metadata["annotations"]["note"] == "a b c"
    kubectl("label", "cm", "app", "team-")
    assert kubectl("get", "cm", "-l", "team", "-o", "name") == ""


def test_patch_in_three_forms(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG)
    kubectl("patch", "cm", "app", "-p", '{"data": {"mode": null}}')
    kubectl("patch", "cm", "app", "--type=merge", "-p", '{"data": {"more": "x"}}')
    kubectl("patch", "cm", "app", "--type=json", "-p", '[{"op": "remove", "path": "/data/level"}]')
    assert kubectl.get("cm", "app")["data"] == {"more": "x"}


def test_an_unknown_field_is_refused(kubectl: Kubectl) -> None:
    bad = {**CONFIG, "dada": {}}
    assert 'unknown field "dada"' in kubectl.run_failing("apply", "-f", "-", stdin=bad)


def test_a_dry_run_changes_nothing(kubectl: Kubectl) -> None:
    assert "server dry run" in kubectl("apply", "--dry-run=server", "-f", "-", stdin=CONFIG)
    assert "NotFound" in kubectl.run_failing("get", "cm", "app")


def test_what_kubectl_makes_itself_it_sends_as_protobuf(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "password", "--from-literal=p=w")
    kubectl("create", "serviceaccount", "robot")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
    kubectl("create", "rolebinding", "reads", "--role=reader", "--serviceaccount=x:robot")
    kubectl("create", "quota", "limits", "--hard=pods=10,requests.cpu=1500m")
    kubectl("create", "poddisruptionbudget", "careful", "--selector=a=b", "--min-available=50%")
    assert kubectl.get("configmap", "settings")["data"] == {"a": "b"}
    assert kubectl.get("secret", "password")["data"] == {"p": "dw=="}
    assert kubectl.get("role", "reader")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    ]
    assert kubectl.get("quota", "limits")["spec"]["hard"] == {"pods": "10", "requests.cpu": "1500m"}
    assert kubectl.get("pdb", "careful")["spec"]["minAvailable"] == "50%"


def test_kinds_that_nothing_acts_on_say_so(kubectl: Kubectl) -> None:
    made = kubectl.run("create", "deployment", "web", "--image=nginx", "--replicas=2")
    assert made.returncode == 0
    assert "Warning: gangline stores this Deployment" in made.stderr
    started = kubectl.run("create", "job", "once", "--image=busybox", "--", "true")
    assert "Warning: gangline stores this Job" in started.stderr
    assert kubectl.get("job", "once")["spec"]["template"]["spec"]["containers"][0]["command"] == ["true"]


def test_scale_changes_the_replicas(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=2")
    assert "scaled" in kubectl("scale", "deployment", "web", "--replicas=4", "--current-replicas=2")
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "4"
    assert kubectl("get", "deployment", "web").splitlines()[1].split()[:2] == ["web", "0/4"]


# Pods and jobs


def test_run_goes_from_created_to_succeeded(kubectl: Kubectl) -> None:
    kubectl("run", "hello", "--image=any", "--restart=Never", "--command", "--", "true")
    kubectl("wait", "pod/hello", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=50s")
    line = kubectl("get", "pod", "hello", "-o", "wide").splitlines()[1].split()
    assert line[:4] == ["hello", "0/1", "Completed", "0"]
    assert "local" in line


def test_top_shows_what_pods_use(kubectl: Kubectl) -> None:
    kubectl("run", "measured", "--image=any", "--restart=Never", "--command", "--", "sleep", "300")
    kubectl("wait", "--for=condition=Ready", "pod/measured", "--timeout=50s")
    header, line = kubectl("top", "pods").splitlines()
    assert header.split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert (line.split()[0], line.split()[2][-2:]) == ("measured", "Mi")
    kubectl("delete", "pod", "measured", "--wait=false")


def test_watch_follows_a_pod_to_its_end(kubectl: Kubectl) -> None:
    with kubectl.start("get", "pods", "-w", "--output-watch-events") as watch:
        try:
            assert watch.stdout is not None
            kubectl("run", "seen", "--image=any", "--command", "--", "sleep", "300")
            # Whoever begins to watch late sees less, so that is waited for, too.
            lines: list[str] = []
            while not any("Running" in line for line in lines):
                lines.append(watch.stdout.readline())
                assert lines[-1], "the watch ended"
            kubectl("delete", "pod", "seen", "--grace-period=1")
            assert any(line.split()[:2] == ["DELETED", "seen"] for line in watch.stdout)
        finally:
            watch.kill()
    assert lines[1].split()[:2] == ["ADDED", "seen"]


def test_wait_for_deletion_ends_when_the_pod_is_gone(kubectl: Kubectl) -> None:
    kubectl("run", "gone", "--image=any", "--command", "--", "sleep", "300")
    kubectl("wait", "pod/gone", "--for=condition=Ready", "--timeout=50s")
    assert "timed out" in kubectl.run_failing("wait", "pod/gone", "--for=delete", "--timeout=1s")
    kubectl("delete", "pod", "gone", "--wait=false", "--grace-period=1")
    kubectl("wait", "pod/gone", "--for=delete", "--timeout=50s")
    assert "NotFound" in kubectl.run_failing("get", "pod", "gone")


def test_events_tell_what_the_node_did(kubectl: Kubectl) -> None:
    kubectl("run", "told", "--image=any", "--restart=Never", "--command", "--", "true")
    with kubectl.start("get", "events", "-w") as watch:
        try:
            assert watch.stdout is not None
            assert any("Started container told" in line for line in watch.stdout)
        finally:
            watch.kill()
    assert "Started container told" in kubectl("describe", "pod", "told")
    assert "Pod/told" in kubectl("events")


def test_logs_follow_a_pod_and_end_with_it(kubectl: Kubectl, tmp_path: Path) -> None:
    script = f"echo first; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo last"
    kubectl("run", "talks", "--image=any", "--restart=Never", "--command", "--", "sh", "-c", script)
    kubectl("wait", "pod/talks", "--for=condition=Ready", "--timeout=50s")
    with kubectl.start("logs", "-f", "talks") as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == "first\n"
            (tmp_path / "go").touch()
            assert following.communicate(timeout=60)[0] == "last\n"
        finally:
            following.kill()
    assert following.returncode == 0
    assert kubectl("logs", "talks", "--tail=1") == "last\n"
    stamped = kubectl("logs", "talks", "--timestamps").splitlines()
    assert [line.split()[1] for line in stamped] == ["first", "last"]
    assert "not found" in kubectl.run_failing("logs", "absent")


def test_exec_runs_a_command_where_the_pod_runs(kubectl: Kubectl) -> None:
    kubectl("run", "host", "--image=any", "--env=COLOR=red", "--command", "--", "sleep", "300")
    kubectl("wait", "pod/host", "--for=condition=Ready", "--timeout=50s")
    assert kubectl("exec", "host", "--", "sh", "-c", "echo $COLOR") == "red\n"
    assert kubectl("exec", "-i", "host", "--", "cat", stdin="some text") == "some text"
    failed = kubectl.run("exec", "host", "--", "sh", "-c", "echo no >&2; exit 7")
    assert failed.returncode == 7
    assert failed.stderr.startswith("no\n")
    kubectl("delete", "pod", "host", "--grace-period=1")


def test_a_job_succeeds_and_takes_its_pods_along_when_deleted(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=job("small", "true"))
    kubectl("wait", "tfjob/small", "--for=condition=Succeeded", "--timeout=60s")
    assert kubectl("get", "tfjob").split()[:5] == ["NAME", "STATE", "AGE", "small", "Succeeded"]
    assert len(kubectl("get", "pods", "-o", "name").split()) == 2
    kubectl("delete", "tfjob", "small", "--cascade=foreground")
    assert kubectl("get", "pods,tfjobs", "-o", "name") == ""


def test_orphans_outlive_their_owner(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG)
    uid = kubectl("get", "cm", "app", "-o", "jsonpath={.metadata.uid}")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "app", "uid": uid}
    for name in ("kept", "lost"):
        child = {**CONFIG, "metadata": {"name": name, "ownerReferences": [owner]}}
        kubectl("create", "-f", "-", stdin=child)
    kubectl("patch", "cm", "lost", "-p", '{"metadata": {"finalizers": ["test.example/hold"]}}')
    kubectl("delete", "cm", "app", "--cascade=orphan")
    kubectl("wait", "cm/kept", "--for=jsonpath={.metadata.name}=kept", "--timeout=50s")
    assert "ownerReferences" not in kubectl.get("cm", "kept")["metadata"]


def test_a_namespace_takes_everything_along(plane: DetachedPlane, kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=CONFIG)
    kubectl("run", "inside", "--image=any", "--command", "--", "sleep", "300")
    name = kubectl("get", "cm", "app", "-o", "jsonpath={.metadata.namespace}")
    kubectl("delete", "namespace", name, timeout=90)
    assert "NotFound" in kubectl.run_failing("get", "namespace", name)
    assert name not in Kubectl(plane)("get", "pods,cm", "-A")


# What there is


def test_describe_tells_about_pods_nodes_and_jobs(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=job("told", "true", replicas=1))
    kubectl("wait", "tfjob/told", "--for=condition=Succeeded", "--timeout=60s")
    assert "TFJobSucceeded" in kubectl("describe", "tfjob", "told")
    assert kubectl.get("tfjob", "told")["status"]["replicaStatuses"]["Worker"]["succeeded"] == 1
    pod = kubectl("describe", "pod", "told-worker-0")
    assert "Exit Code:    0" in pod
    assert "Controlled By:  TFJob/told" in pod
    node = kubectl("describe", "node", "local")
    assert "KubeletReady" in node
    assert re.search(r"^Taints: +<none>$", node, re.MULTILINE)


def test_the_node_is_ready(kubectl: Kubectl) -> None:
    kubectl("wait", "node/local", "--for=condition=Ready", "--timeout=50s")
    assert kubectl("get", "nodes").splitlines()[1].split()[:2] == ["local", "Ready"]
    assert kubectl("get", "node", "local", "-o", "jsonpath={.spec.taints}") == ""


def test_cordon_and_uncordon_the_node(kubectl: Kubectl) -> None:
    kubectl("cordon", "local")
    assert "SchedulingDisabled" in kubectl("get", "node", "local")
    kubectl("uncordon", "local")
    assert "SchedulingDisabled" not in kubectl("get", "node", "local")


def test_explain_knows_built_in_and_custom_kinds(kubectl: Kubectl) -> None:
    containers = kubectl("explain", "pods.spec.containers")
    assert "FIELD: containers <[]Container>" in containers
    assert "imagePullPolicy\t<string>" in containers
    assert "KIND:       TFJob" in kubectl("explain", "tfjobs")
    assert "does not exist" in kubectl.run_failing("explain", "pods.spec.nonsense")


def test_api_resources_lists_built_in_and_custom_kinds(kubectl: Kubectl) -> None:
    found = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "nodes", "deployments.apps", "leases.coordination.k8s.io", "tfjobs.kubeflow.org"} <= set(found)
    lines = [line.split() for line in kubectl("api-resources", "--no-headers").splitlines()]
    assert ["pods", "po", "v1", "true", "Pod"] in lines
    assert "kubeflow.org/v1" in kubectl("api-versions").split()


def test_a_custom_resource_definition_is_served_at_once(kubectl: Kubectl) -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "description": "How large."},
                    "color": {"type": "string", "default": "red"},
                },
            }
        },
    }
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [column],
    }
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "boxes.kubectl.example"},
        "spec": {
            "group": "kubectl.example",
            "scope": "Namespaced",
            "names": {"plural": "boxes", "singular": "box", "kind": "Box", "shortNames": ["bx"]},
            "versions": [version],
        },
    }
    kubectl("apply", "-f", "-", stdin=crd)
    kubectl("wait", "crd/boxes.kubectl.example", "--for=condition=Established", "--timeout=50s")
    box = {"apiVersion": "kubectl.example/v1", "kind": "Box", "metadata": {"name": "b"}}
    assert "spec.size" in kubectl.run_failing("apply", "-f", "-", stdin={**box, "spec": {"size": 0}})
    kubectl("apply", "-f", "-", stdin={**box, "spec": {"size": 3}})
    assert kubectl("get", "bx").split()[:4] == ["NAME", "SIZE", "b", "3"]
    assert kubectl("get", "box", "b", "-o", "jsonpath={.spec.color}") == "red"
    assert "How large." in kubectl("explain", "box.spec.size")
    kubectl("delete", "crd", "boxes.kubectl.example")
    assert "NotFound" in kubectl.run_failing("get", "--raw", "/apis/kubectl.example/v1/boxes")


def test_auth_says_who_one_is_and_what_one_may(kubectl: Kubectl) -> None:
    assert "system:masters" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "delete", "pods") == "yes\n"
    assert "*.*" in kubectl("auth", "can-i", "--list")


def test_create_token_with_all_its_options(kubectl: Kubectl) -> None:
    kubectl("run", "bound", "--image=none", "--restart=Never", "--command", "--", "true")
    uid = kubectl.get("pod", "bound")["metadata"]["uid"]
    binding = ("--bound-object-kind=Pod", "--bound-object-name=bound")
    token = kubectl("create", "token", "default", "--duration=20m", *binding, f"--bound-object-uid={uid}").strip()
    assert "authentication.kubernetes.io/pod-name" in kubectl("auth", "whoami", "--token", token)
    refused = kubectl.run_failing("create", "token", "default", *binding, "--bound-object-uid=x")
    assert "does not match the UID in record" in refused
    assert "less than 10 minutes" in kubectl.run_failing("create", "token", "default", "--duration=1m")
    assert 'serviceaccounts "nobody" not found' in kubectl.run_failing("create", "token", "nobody")
    other = kubectl("create", "token", "default", "--audience=vault").strip()
    assert "Unauthorized" in kubectl.run_failing("get", "pods", "--token", other)


def test_whoami_in_a_pod_is_its_service_account(kubectl: Kubectl) -> None:
    kubectl("run", "who", "--image=none", "--restart=Never", "--command", "--", str(find_kubectl()), "auth", "whoami")
    kubectl("wait", "pod/who", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    namespace = kubectl.get("pod", "who")["metadata"]["namespace"]
    assert f"system:serviceaccount:{namespace}:default" in kubectl("logs", "who")


def test_acting_as_somebody_else(kubectl: Kubectl) -> None:
    assert "jane" in kubectl("auth", "whoami", "--as=jane", "--as-group=devs")
    assert kubectl("auth", "can-i", "get", "pods", "--as=jane", code=1) == "no\n"
    assert 'User "jane" cannot list resource "pods"' in kubectl.run_failing("get", "--raw", "/api/v1/pods", "--as=jane")


def test_version_and_cluster_info(plane: DetachedPlane, kubectl: Kubectl) -> None:
    assert "Server Version: v1.34" in kubectl("version")
    assert "https://127.0.0.1:" in kubectl("cluster-info")
    assert kubectl("get", "--raw", "/readyz") == "ok"


def test_somebody_without_the_token_gets_nothing(plane: DetachedPlane, tmp_path: Path) -> None:
    stranger = DetachedPlane(tmp_path)
    token = (plane.folder / "token").read_text().strip()
    stranger.kubeconfig.write_text(plane.kubeconfig.read_text().replace(token, "wrong"))
    assert "Unauthorized" in Kubectl(stranger).run_failing("get", "--raw", "/api/v1/pods")
