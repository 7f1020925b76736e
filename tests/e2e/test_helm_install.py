"""Helm on a plane that `gangline up` started: a chart with an Ingress, installed, upgraded, rolled back and tested."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster.clients import DetachedPlane, Kubectl, find_kubectl
from support.cluster.helm import Helm
from support.requirements import skip_or_fail
from support.servers.real import LoggedProcess, free_ports

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("clients")]

CHART = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
TEMPLATE = """
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: "{{ .Release.Name }}"}
spec: {controller: example.com/none}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: "{{ .Release.Name }}"}
spec:
  ingressClassName: "{{ .Release.Name }}"
  rules:
  - host: "{{ .Values.host }}"
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: "{{ .Release.Name }}", port: {number: 80}}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: "{{ .Release.Name }}"}
spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: "{{ .Release.Name }}"}
spec: {ports: [{port: 80}], selector: {app: "{{ .Release.Name }}"}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  replicas: 1
  selector: {matchLabels: {app: "{{ .Release.Name }}"}}
  template:
    metadata: {labels: {app: "{{ .Release.Name }}"}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: none, command: [sleep, "600"]}]
"""
CHECK = """
apiVersion: v1
kind: Pod
metadata: {name: "{{ .Release.Name }}-check", annotations: {helm.sh/hook: test}}
spec: {restartPolicy: Never, containers: [{name: c, image: none, command: ["true"]}]}
"""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[DetachedPlane]:
    """A plane with kube-controller-manager, which Deployments need."""
    manager = find_kubectl().parent / "kube-controller-manager"
    if not manager.is_file():
        skip_or_fail("kube-controller-manager not found: run hack/kubernetes.sh")
    plane = DetachedPlane(tmp_path / "plane")
    plane.up()
    (port,) = free_ports(1)
    command = [str(manager), f"--kubeconfig={plane.kubeconfig}", f"--secure-port={port}", "--bind-address=127.0.0.1"]
    process = LoggedProcess(command, tmp_path / "manager.log")
    try:
        yield plane
    finally:
        process.kill()
        plane.down()


def test_install_upgrade_rollback_and_test_of_a_chart_with_an_ingress(plane: DetachedPlane, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(CHART)
    (chart / "values.yaml").write_text("host: a.example.com\n")
    (chart / "templates" / "web.yaml").write_text(TEMPLATE)
    (chart / "templates" / "check.yaml").write_text(CHECK)
    helm, kubectl = Helm(tmp_path / "helm", plane.kubeconfig), Kubectl(plane)
    helm("install", "web", chart, "--wait", "--timeout", "90s")
    assert kubectl("get", "ingress", "web", "-o", "jsonpath={.spec.rules[0].host}") == "a.example.com"
    helm("upgrade", "web", chart, "--wait", "--timeout", "90s", "--set", "host=b.example.com")
    shown = kubectl("get", "ingress", "web")
    assert shown.splitlines()[1].split()[:3] == ["web", "web", "b.example.com"]
    helm("rollback", "web", "1", "--wait", "--timeout", "90s")
    assert kubectl("get", "ingress", "web", "-o", "jsonpath={.spec.rules[0].host}") == "a.example.com"
    assert "Phase:          Succeeded" in helm("test", "web", "--timeout", "90s")
    helm("uninstall", "web", "--wait", "--timeout", "90s")
    assert kubectl("get", "ingress,ingressclass,networkpolicy", "-o", "name") == ""
