"""From values to objects, and from the server's refusals to what to do."""

import shlex
from datetime import timedelta

import pytest

from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerTarget
from gangline.cli.install.install import InstallMode, effective_request, first_job_command
from gangline.cli.install.missing_rights import missing_right_text
from gangline.cli.install.record import InstallationRecord, ObjectRef
from gangline.cli.install.request import (
    InstallRequest,
    default_namespace,
    install_values,
    objects_to_install,
    with_argument,
)
from gangline.kube.config.connection import Connection

OLDER = InstallationRecord("0.0.9", {"logLevel": "debug"})
SAME = InstallationRecord("0.1.0", {"logLevel": "debug"})


def request(**values: object) -> InstallRequest:
    return InstallRequest("gangline", dict(values), timeout=timedelta(seconds=1))


def test_the_objects_are_in_the_namespace_of_the_request() -> None:
    wanted = objects_to_install(request()._replace(namespace="ml"), creates_namespace=True)
    kinds = [body["kind"] for body in wanted.objects]
    assert kinds[0] == "Namespace"
    assert {body["metadata"]["namespace"] for body in wanted.deployments} == {"ml"}
    assert "Namespace" not in [body["kind"] for body in objects_to_install(request(), creates_namespace=False).objects]


def test_a_value_is_merged_with_the_defaults_of_its_block() -> None:
    values = install_values({"resources": {"limits": {"memory": "2Gi"}}})
    assert values.resources["requests"] == install_values({}).resources["requests"]
    assert values.resources["limits"] == {"memory": "2Gi"}


def test_a_number_is_a_text_where_a_text_is_expected() -> None:
    assert install_values({"image": {"tag": 4}}).image.tag == "4"
    labels = {"disk": "ssd", "gpu": True, "rank": 1}
    assert install_values({"nodeSelector": labels}).node_selector == {"disk": "ssd", "gpu": "true", "rank": "1"}


def test_null_removes_an_entry_of_a_default() -> None:
    """On OpenShift, for example, the cluster chooses the user."""
    values = install_values({"podSecurityContext": {"runAsUser": None}, "resources": {"limits": None}})
    assert "runAsUser" not in values.pod_security_context
    assert values.pod_security_context["runAsNonRoot"] is True
    assert set(values.resources) == {"requests"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"logLevel": "loud"}, "values: logLevel: is not allowed; write debug, error, info or warn"),
        (
            {"kinds": ["TFJobs"]},
            "values: kinds[0]: is not allowed; write JAXJob, MPIJob, PaddleJob, PyTorchJob, TFJob or XGBoostJob",
        ),
        (
            {"watchNamespaces": ["a", ""]},
            (
                "values: watchNamespaces[1]: is not allowed; write the name of a namespace: lower-case letters, digits and"
                " dashes, as in team-a"
            ),
        ),
        (
            {"image": {"digest": "sha256:12"}},
            "values: image.digest: is not allowed; write sha256: and 64 digits from 0 to f",
        ),
        (
            {"leaderElection": {"leaseName": "My Lease"}},
            (
                "values: leaderElection.leaseName: is not allowed; write lower-case letters, digits, dashes and dots, as in"
                " gangline.example.com"
            ),
        ),
        (
            {"extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap"}]},
            "values: extraObjects[0]: has no metadata.name; write a whole object",
        ),
        ({"replicaCnt": 1}, "values: replicaCnt: there is no such value; did you mean replicaCount?"),
        ({"image": {"tga": "1"}}, "values: image.tga: there is no such value; did you mean tag?"),
        ({"replicaCount": "two"}, "values: replicaCount: expected `int`, got `str`"),
    ],
)
def test_a_wrong_value_is_named_with_its_path(values: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as error:
        install_values(values)
    assert str(error.value) == says


def test_an_installation_of_namespaces_is_in_the_first_of_them() -> None:
    assert default_namespace({"watchNamespaces": ["a", "b"]}) == "a"
    assert default_namespace({}) == "gangline"


def test_an_argument_is_added_to_one_component() -> None:
    wanted = objects_to_install(request(scheduler={"enabled": True}), creates_namespace=False)
    changed = with_argument(wanted.objects, "operator", "--take-over")
    arguments = {
        body["metadata"]["name"]: body["spec"]["template"]["spec"]["containers"][0]["args"]
        for body in changed
        if body["kind"] == "Deployment"
    }
    assert arguments["gangline-operator"][-1] == "--take-over"
    assert "--take-over" not in arguments["gangline-scheduler"]
    assert all("--take-over" not in str(body) for body in wanted.objects)


def test_an_upgrade_keeps_the_values_and_flags_change_some() -> None:
    upgraded = effective_request(request(replicaCount=1), SAME, InstallMode(is_upgrade=True))
    assert upgraded.values == {"logLevel": "debug", "replicaCount": 1}
    back = effective_request(request(logLevel=None, replicaCount=None), SAME, InstallMode(is_upgrade=True))
    assert back.values == {}
    reset = effective_request(request(replicaCount=1), SAME, InstallMode(is_upgrade=True, resets_values=True))
    assert reset.values == {"replicaCount": 1}


@pytest.mark.parametrize(
    ("record", "mode", "says"),
    [
        (None, InstallMode(is_upgrade=True), "nothing is installed in namespace gangline; write gangline install"),
        (SAME, InstallMode(), r'with other values \(logLevel="debug"\)'),
        (OLDER, InstallMode(), "gangline 0.0.9 is installed"),
        (InstallationRecord("0.3.0", {}), InstallMode(is_upgrade=True), "more than one minor version"),
    ],
)
def test_what_is_installed_already_is_respected(
    record: InstallationRecord | None, mode: InstallMode, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        effective_request(request(), record, mode)


def test_the_command_at_the_end_runs_a_job_on_the_server() -> None:
    target = ServerTarget(Connection(server="https://a.example", context="prod", namespace="ann"), "ann")
    assert shlex.join(first_job_command(target, "ann")) == "run --context prod --image IMAGE -- python train.py"
    other = first_job_command(target, "team-a")
    assert shlex.join(other) == "run --context prod --namespace team-a --image IMAGE -- python train.py"


def test_the_same_again_is_no_mistake() -> None:
    assert effective_request(request(logLevel="debug"), SAME, InstallMode()).values == {"logLevel": "debug"}


# Rights

CRD = ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "tfjobs.kubeflow.org")
CLUSTER_ROLE = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRole", "", "gangline-operator")
ROLE = ObjectRef("rbac.authorization.k8s.io/v1", "Role", "team-a", "gangline-operator")
DENIED = 'x is forbidden: User "ann" cannot patch resource "{}" in API group "{}" at the cluster scope'
ESCALATION = (
    'roles.rbac.authorization.k8s.io "gangline-operator" is forbidden: user "ann" (groups=["system:authenticated"]) is'
    " attempting to grant RBAC permissions not currently held:\n"
    '{APIGroups:["kubeflow.org"], Resources:["tfjobs/status"], Verbs:["patch"]}\n'
    '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'
)


def test_a_missing_right_is_named_with_what_is_possible_without_it() -> None:
    text = missing_right_text(CLUSTER_ROLE, DENIED.format("clusterroles", "rbac.authorization.k8s.io"))
    assert "you may not patch clusterroles.rbac.authorization.k8s.io in the whole cluster" in text
    assert "gangline install --scope namespace=NAMESPACE" in text
    crd = missing_right_text(CRD, DENIED.format("customresourcedefinitions", "apiextensions.k8s.io"))
    assert "gangline crds | kubectl apply --server-side -f -" in crd


def test_rights_that_one_cannot_grant_are_named() -> None:
    text = missing_right_text(ROLE, ESCALATION)
    assert "(patch tfjobs/status.kubeflow.org; get, list pods)" in text
    assert text.endswith("kubectl create rolebinding ann-owner --clusterrole cluster-admin --user ann -n team-a")
    assert "\n" not in text
