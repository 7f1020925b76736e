"""Real kubelets with containerd, kube-proxy, kube-controller-manager, kube-scheduler and CoreDNS on our API server.

hack/cluster.sh starts them in namespaces of their own, with `gangline up --no-node` in the place of kube-apiserver.
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.nodes.layout import NODES
from support.nodes.node import BUSYBOX
from support.requirements import skip_or_fail
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("nodes"), pytest.mark.timeout(900)]

CLUSTER_SH = Path(__file__).parents[2] / "hack" / "cluster.sh"
NOT_ALLOWED = 3
FORWARD = """
kubectl port-forward pod/server 18080:8080 > /dev/null &
until wget -qO- http://127.0.0.1:18080; do sleep 0.2; done
kill $!
"""
SERVE = "mkdir /www && hostname > /www/index.html && exec httpd -f -p 8080 -h /www"


class OurCluster:
    """A cluster of real nodes on our server."""

    def __init__(self, folder: Path) -> None:
        self._env = {**os.environ, "GANGLINE_CLUSTER_DIR": str(folder), "PYTHON": sys.executable}

    def run(self, *words: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """One command of hack/cluster.sh."""
        return subprocess.run(
            [CLUSTER_SH, *words], env=self._env, input=stdin, capture_output=True, text=True, timeout=600
        )

    def kubectl(self, *words: str, body: object = None, code: int = 0) -> str:
        stdin = None if body is None else json.dumps(body)
        done = self.run("exec", "--", "kubectl", *words, stdin=stdin)
        assert done.returncode == code, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def get(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "--output=json"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurCluster]:
    cluster = OurCluster(tmp_path_factory.mktemp("nodes") / "cluster")
    done = cluster.run("up", "--server", "gangline")
    if done.returncode == NOT_ALLOWED:
        skip_or_fail(done.stderr.strip(), required="GANGLINE_REQUIRE_CLUSTER")
    assert done.returncode == 0, done.stderr
    yield cluster
    assert cluster.run("down").returncode == 0


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script], **spec.pop("container", {})}
    body = {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": body}


def renew_time(cluster: OurCluster) -> str:
    lease = cluster.get("lease/n1", "--namespace=kube-node-lease")
    assert lease["spec"]["holderIdentity"] == "n1"
    return str(lease["spec"]["renewTime"])


def test_kubelets_register_and_renew_their_leases(cluster: OurCluster) -> None:
    nodes = cluster.get("nodes")["items"]
    assert [node["metadata"]["name"] for node in nodes] == [node.name for node in NODES]
    assert all(node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://") for node in nodes)
    first = renew_time(cluster)
    wait_until_blocking(lambda: renew_time(cluster) != first, "the lease is not renewed")


def test_pod_runs_with_its_volumes_and_its_token(cluster: OurCluster) -> None:
    cluster.kubectl("create", "configmap", "settings", "--from-literal=epochs=3")
    cluster.kubectl("create", "secret", "generic", "tracking", "--from-literal=key=hidden")
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("settings", "tracking")]
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = f"cat /settings/epochs /tracking/key {account}/namespace; echo; cat {account}/token"
    cluster.kubectl(
        "apply",
        "--filename=-",
        body=pod(
            "reader",
            script,
            container={"volumeMounts": mounts},
            restartPolicy="Never",
            volumes=[
                {"name": "settings", "configMap": {"name": "settings"}},
                {"name": "tracking", "secret": {"secretName": "tracking"}},
            ],
        ),
    )
    cluster.kubectl("wait", "pod/reader", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")
    first, token = cluster.kubectl("logs", "reader").splitlines()
    assert first == "3hiddendefault"
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["kubernetes.io"]["pod"]["name"] == "reader"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    found = json.loads(cluster.kubectl("create", "--filename=-", "--output=json", body=review))["status"]
    assert found["user"]["username"] == "system:serviceaccount:default:default"


def test_streams_and_proxies_reach_the_kubelet_and_the_pod(cluster: OurCluster) -> None:
    cluster.kubectl("apply", "--filename=-", body=pod("server", SERVE, nodeName="n2"))
    cluster.kubectl("wait", "pod/server", "--for=condition=Ready", "--timeout=180s")
    assert cluster.kubectl("exec", "server", "--", "hostname") == "server\n"
    cluster.kubectl("exec", "server", "--", "sh", "-c", "exit 7", code=7)
    assert cluster.kubectl("get", "--raw", "/api/v1/namespaces/default/pods/server:8080/proxy/") == "server\n"
    assert cluster.kubectl("get", "--raw", "/api/v1/nodes/n2/proxy/healthz") == "ok"
    assert "kubelet_running_pods" in cluster.kubectl("get", "--raw", "/api/v1/nodes/n2/proxy/metrics")
    done = cluster.run("exec", "--", "sh", "-c", FORWARD)
    assert done.stdout == "server\n", done.stderr
    cluster.kubectl("delete", "pod", "server", "--timeout=60s")
    assert cluster.kubectl("get", "pods", "--selector=app=server", "--output=name") == ""


def test_deployment_is_reached_by_the_name_of_its_service(cluster: OurCluster) -> None:
    template = pod("web", SERVE)
    labels = template["metadata"]["labels"]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }
    cluster.kubectl("apply", "--filename=-", body=deployment)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=180s")
    cluster.kubectl("expose", "deployment", "web", "--port=80", "--target-port=8080")
    ask = "until wget -qO- http://web.default.svc.cluster.local; do sleep 0.5; done"
    cluster.kubectl("apply", "--filename=-", body=pod("client", ask, restartPolicy="Never"))
    cluster.kubectl("wait", "pod/client", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s")
    pods = [one["metadata"]["name"] for one in cluster.get("pods", "--selector=app=web")["items"]]
    assert cluster.kubectl("logs", "client").strip() in pods
