"""The dashboard of an installation: without a role; with a history, an account that only reads."""

from typing import Any

import msgspec
import pytest

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.install.objects import install_objects
from gangline.install.values import InstallValues


def _objects(values: JSON) -> dict[str, Any]:
    objects = install_objects(msgspec.convert(values, InstallValues))
    return {
        item["kind"]: item
        for item in objects
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "dashboard"
    }


def test_there_is_none_by_default() -> None:
    assert _objects({}) == {}


def test_it_has_no_role_and_its_pod_no_token() -> None:
    found = _objects({"dashboard": {"enabled": True, "hosts": ["gangline.example"]}})
    assert set(found) == {"Deployment", "Service"}
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    (container,) = pod["containers"]
    assert container["args"] == [
        "--login=token",
        "--bind=0.0.0.0",
        "--port=8080",
        "--allow-host=gangline-dashboard",
        "--allow-host=gangline.example",
    ]
    assert container["volumeMounts"][0]["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert pod["volumes"][0]["configMap"]["name"] == "kube-root-ca.crt"
    assert "fsGroup" not in pod["securityContext"]


def test_with_a_history_it_has_a_volume_and_may_read() -> None:
    found = _objects({"dashboard": {"enabled": True, "history": {"enabled": True, "size": "5Gi"}}})
    assert set(found) == {
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
        "PersistentVolumeClaim",
        "Service",
        "ServiceAccount",
    }
    verbs = {verb for rule in found["ClusterRole"]["rules"] for verb in rule["verbs"]}
    resources = {name for rule in found["ClusterRole"]["rules"] for name in rule["resources"]}
    assert verbs == {"get", "list", "watch"}
    assert not resources & {"secrets", "configmaps"}
    spec = found["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("gangline-dashboard", True)
    assert pod["securityContext"]["fsGroup"] == 65532
    assert pod["containers"][0]["args"][-2:] == ["--history=/var/lib/gangline/history", "--record"]
    assert [volume["name"] for volume in pod["volumes"]] == ["history"]
    assert found["PersistentVolumeClaim"]["spec"]["resources"]["requests"]["storage"] == "5Gi"


def test_a_history_of_some_namespaces_is_refused() -> None:
    values = {"dashboard": {"history": {"enabled": True}}, "watchNamespaces": ["team-a"]}
    with pytest.raises(InputError, match="leave it out with watchNamespaces"):
        _objects(values)
