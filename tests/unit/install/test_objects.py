"""What an installation consists of, for several values."""

from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.base.errors import InputError
from gangline.cli.services.scheduler import scheduler
from gangline.install.objects import install_crds, install_objects
from gangline.install.values import DEFAULT_RELEASE, InstallValues, Release
from gangline.jobs.pods.progress_reporting import ProgressEndpoint
from gangline.operator.conflicting_operators import GANGLINE_ROLE, ROLE_LABEL
from gangline.operator.flags import settings_from_flags
from gangline.operator.main import operator
from gangline.operator.settings import NOTIFICATIONS_SUFFIX, OperatorProcessSettings
from gangline.schema.crds.gang_crds import GANG_RESOURCES

Objects = dict[tuple[str, str], Any]


def values(**changes: Any) -> InstallValues:
    """Values as a values.yaml has them."""
    return msgspec.convert(changes, InstallValues)


def objects(release: Release = DEFAULT_RELEASE, **changes: Any) -> Objects:
    made = install_objects(values(**changes), release)
    named = {(one["kind"], one["metadata"]["name"]): one for one in made}
    assert len(named) == len(made)
    return named


def container(made: Objects, component: str = "operator") -> Any:
    (only,) = made["Deployment", f"gangline-{component}"]["spec"]["template"]["spec"]["containers"]
    return only


def test_by_default_two_operators_of_which_one_acts() -> None:
    made = objects()
    deployment = made["Deployment", "gangline-operator"]
    assert deployment["spec"]["replicas"] == 2
    assert "--leader-elect" in container(made)["args"]
    assert made["PodDisruptionBudget", "gangline-operator"]["spec"]["maxUnavailable"] == 1
    assert not [name for _, name in made if "scheduler" in name]


def test_every_object_has_the_recommended_labels_and_selectors_match_the_pods() -> None:
    made = objects(scheduler={"enabled": True}, namespace={"create": True}, networkPolicy={"enabled": True})
    for one in [*made.values(), *install_crds(values())]:
        found = {key.removeprefix("app.kubernetes.io/"): text for key, text in one["metadata"]["labels"].items()}
        assert found.keys() >= {"name", "instance", "version", "component", "part-of", "managed-by"}
    for component in ("operator", "scheduler"):
        deployment = made["Deployment", f"gangline-{component}"]["spec"]
        pod = deployment["template"]["metadata"]["labels"]
        for selector in (
            deployment["selector"]["matchLabels"],
            made["Service", f"gangline-{component}"]["spec"]["selector"],
            made["PodDisruptionBudget", f"gangline-{component}"]["spec"]["selector"]["matchLabels"],
        ):
            assert {key.removeprefix("app.kubernetes.io/") for key in selector} == {"name", "instance", "component"}
            assert selector.items() <= pod.items()
        policy = made["NetworkPolicy", "gangline-network"]["spec"]["podSelector"]
        assert policy["matchLabels"].items() <= pod.items()
        assert pod["app.kubernetes.io/component"] in policy["matchExpressions"][0]["values"]
    assert (
        made["Deployment", "gangline-operator"]["spec"]["template"]["metadata"]["labels"][ROLE_LABEL] == GANGLINE_ROLE
    )


def test_labels_of_the_values_are_everywhere_but_change_no_selector() -> None:
    mine = {"team": "ml", "app.kubernetes.io/name": "mine"}
    made = objects(extraLabels=mine, podLabels={"team": "platform", "empty": ""})
    for one in made.values():
        assert one["metadata"]["labels"]["team"] == "ml"
        assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "gangline"
    pod = made["Deployment", "gangline-operator"]["spec"]["template"]["metadata"]["labels"]
    assert (pod["team"], pod["empty"], pod["app.kubernetes.io/name"]) == ("platform", "", "gangline")


def test_the_operator_accepts_its_arguments() -> None:
    made = objects(scheduler={"enabled": True}, kinds=["TFJob", "MPIJob"], leaderElection={"leaseName": "mine"})
    pod = made["Deployment", "gangline-operator"]["spec"]["template"]["spec"]
    with operator.make_context("operator", list(container(made)["args"])) as context:
        assert context.params["leader_elect"] is True
        assert context.params["gang_scheduler_name"] == "gangline"
        assert pod["terminationGracePeriodSeconds"] > context.params["grace"]


def test_with_secure_metrics_the_components_accept_their_arguments_and_may_ask_about_tokens() -> None:
    secure = {"enabled": True, "certSecret": "metrics-tls"}
    made = objects(scheduler={"enabled": True}, metrics={"secure": secure}, watchNamespaces=["team-a"])
    for component, command in (("operator", operator), ("scheduler", scheduler)):
        with command.make_context(component, list(container(made, component)["args"])) as context:
            assert context.params["metrics_secure"] is True
            assert context.params["namespaces"] == ("team-a",)
            folder = context.params["metrics_cert_path"]
        (mount,) = container(made, component)["volumeMounts"]
        assert mount["mountPath"] == folder
    accounts = [subject["name"] for subject in made["ClusterRoleBinding", "gangline-metrics-auth"]["subjects"]]
    assert accounts == ["gangline-operator", "gangline-scheduler"]
    assert made["ClusterRole", "gangline-metrics-reader"]["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]


ROUTES = "routes:\n- name: a\n  urlFile: /etc/gangline/notifications/url\n"


@pytest.mark.parametrize("changes", [{}, {"leaderElection": {"enabled": False}, "replicaCount": 1}])
def test_with_notifications_the_operator_reads_its_routes_and_may_remember_what_it_delivered(
    changes: dict[str, Any],
) -> None:
    made = objects(notifications={"config": ROUTES, "secret": "hooks"}, watchNamespaces=["team-a"], **changes)
    environ = {one["name"]: one["value"] for one in container(made)["env"]}
    with operator.make_context("operator", list(container(made)["args"])) as context:
        settings = settings_from_flags(context.params, environ)
    assert settings.notifications is not None
    (route,) = settings.notifications.routes
    (mount,) = container(made)["volumeMounts"]
    assert route.url_file.startswith(mount["mountPath"] + "/")
    (volume,) = made["Deployment", "gangline-operator"]["spec"]["template"]["spec"]["volumes"]
    assert volume == {"name": mount["name"], "secret": {"secretName": "hooks"}}
    role = made["Role", "gangline-operator-notifications"]
    # The ConfigMap is where the operator looks for it, with or without an election.
    assert role["metadata"]["namespace"] == settings.lease_namespace == "gangline"
    assert [(rule["verbs"], rule.get("resourceNames")) for rule in role["rules"]] == [
        (["create"], None),
        (["get", "patch"], [settings.lease + NOTIFICATIONS_SUFFIX]),
    ]


def test_the_configmap_of_notifications_has_the_name_of_the_lease() -> None:
    made = objects(notifications={"config": ROUTES}, leaderElection={"leaseName": "mine"})
    rules = made["Role", "gangline-operator-notifications"]["rules"]
    assert rules[1]["resourceNames"] == ["mine-notifications"]
    assert "volumeMounts" not in container(made)


def test_without_notifications_there_is_nothing_of_them() -> None:
    assert "otifications" not in str(list(objects(notifications={"secret": "hooks"}).values()))


def test_progress_is_received_at_a_service_with_one_right_more() -> None:
    plain = objects()
    made = objects(progress={"enabled": True, "logStreams": 50})
    assert made.keys() - plain.keys() == {
        ("Service", "gangline-progress"),
        ("ClusterRole", "gangline-operator-progress"),
        ("ClusterRoleBinding", "gangline-operator-progress"),
    }
    (rule,) = made["ClusterRole", "gangline-operator-progress"]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["tokenreviews"], ["create"])
    settings = settings_of(made)
    assert settings.operator.site.progress == ProgressEndpoint("http://gangline-progress.gangline.svc:8082")
    assert (settings.progress.address, settings.progress.log_streams) == (":8082", 50)
    (port,) = made["Service", "gangline-progress"]["spec"]["ports"]
    ports = {port["name"]: port["containerPort"] for port in container(made)["ports"]}
    assert ports[port["targetPort"]] == port["port"] == 8082
    pod = made["Deployment", "gangline-operator"]["spec"]["template"]["metadata"]["labels"]
    assert made["Service", "gangline-progress"]["spec"]["selector"].items() <= pod.items()


def test_progress_by_tls_has_the_certificate_of_a_secret() -> None:
    progress = {"enabled": True, "everyJob": True, "certSecret": "progress-tls"}
    made = objects(progress=progress, networkPolicy={"enabled": True}, scheduler={"enabled": True})
    settings = settings_of(made)
    assert settings.operator.site.progress == ProgressEndpoint(
        "https://gangline-progress.gangline.svc:8082", every_job=True
    )
    (mount,) = container(made)["volumeMounts"]
    assert mount["mountPath"] == settings.progress.cert_path
    (volume,) = made["Deployment", "gangline-operator"]["spec"]["template"]["spec"]["volumes"]
    assert volume == {"name": mount["name"], "secret": {"secretName": "progress-tls"}}
    assert "volumeMounts" not in container(made, "scheduler")
    ingress = made["NetworkPolicy", "gangline-network"]["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in ingress] == [8080, 8082]


def settings_of(made: Objects) -> OperatorProcessSettings:
    """What the operator makes of its arguments."""
    with operator.make_context("operator", list(container(made)["args"])) as context:
        return settings_from_flags(context.params, {})


def test_a_scheduler_for_some_namespaces_writes_in_these_alone() -> None:
    made = objects(scheduler={"enabled": True}, watchNamespaces=["team-a"])
    everywhere = [rule for (kind, _), one in made.items() if kind == "ClusterRole" for rule in one["rules"]]
    written = {(resource, verb) for rule in everywhere for resource in rule["resources"] for verb in rule["verbs"]}
    assert {one for one in written if one[1] not in ("list", "watch")} == {("queues/status", "patch")}
    assert made["Role", "gangline-scheduler"]["metadata"]["namespace"] == "team-a"


@pytest.mark.parametrize(
    ("changes", "granted"),
    [
        ({}, {"events", "nodes"}),
        ({"recovery": {"diagnosis": False}}, set()),
        ({"watchNamespaces": ["team-a"]}, {"events"}),
    ],
)
def test_the_diagnosis_of_recovery_has_rights_of_its_own(changes: Any, granted: set[str]) -> None:
    made = objects(**changes)
    roles = [one for (kind, name), one in made.items() if kind.endswith("Role") and "diagnosis" in name]
    rules = [rule for role in roles for rule in role["rules"]]
    assert {resource for rule in rules for resource in rule["resources"]} == granted
    assert {verb for rule in rules for verb in rule["verbs"]} <= {"get", "list"}


@pytest.mark.parametrize(("kinds", "schemes"), [([], ["all"]), (["TFJob"], ["TFJob"])])
def test_mpijobs_of_v2beta1_are_served_on_request_and_no_secret_is_read(kinds: list[str], schemes: list[str]) -> None:
    def schemes_and_rights(**changes: Any) -> tuple[list[str], list[str]]:
        made = objects(kinds=kinds, **changes)
        flag = "--enable-scheme="
        enabled = [arg.removeprefix(flag) for arg in container(made)["args"] if arg.startswith(flag)]
        rules = [rule for (kind, _), one in made.items() if kind == "ClusterRole" for rule in one["rules"]]
        return enabled, [verb for rule in rules if "secrets" in rule["resources"] for verb in rule["verbs"]]

    assert schemes_and_rights() == (kinds, [])
    assert schemes_and_rights(mpiV2beta1=True) == ([*schemes, "mpijob.v2beta1"], ["create"])


def test_in_some_namespaces_there_is_nothing_of_the_cluster() -> None:
    made = install_objects(values(watchNamespaces=["team-a", "team-b"]))
    assert not [one for one in made if one["kind"].startswith("Cluster") or "namespace" not in one["metadata"]]
    places = [one["metadata"]["namespace"] for one in made if one["kind"] == "Role"]
    # The operator's role, that of its watch for hangs and that of its diagnosis in each, and the one for the Lease.
    assert places == ["team-a", "team-b"] * 3 + ["gangline"]
    subjects = [one["subjects"] for one in made if one["kind"] == "RoleBinding"]
    account = {"kind": "ServiceAccount", "name": "gangline-operator", "namespace": "gangline"}
    assert subjects == [[account]] * 7


def test_names_follow_the_release() -> None:
    other = objects(Release(name="second", namespace="ml"))
    assert ("Deployment", "second-gangline-operator") in other
    assert {one["metadata"]["namespace"] for one in other.values() if "namespace" in one["metadata"]} == {"ml"}
    assert ("Deployment", "x-operator") in objects(fullnameOverride="x")
    long = objects(Release(name="a" * 53))
    assert max(len(name) for kind, name in long if "Role" not in kind) <= 63


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ({}, "gangline:0.1.0"),
        ({"tag": "1"}, "gangline:1"),
        ({"registry": "r.example", "repository": "ml/gangline"}, "r.example/ml/gangline:0.1.0"),
        ({"tag": "1", "digest": "sha256:" + "0" * 64}, "gangline@sha256:" + "0" * 64),
    ],
)
def test_image(image: dict[str, str], reference: str) -> None:
    made = objects(image=image, scheduler={"enabled": True})
    assert container(made)["image"] == container(made, "scheduler")["image"] == reference


def test_pods_are_restricted() -> None:
    made = objects(scheduler={"enabled": True}, namespace={"create": True})
    enforced = made["Namespace", "gangline"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert enforced == "restricted"
    for component in ("operator", "scheduler"):
        pod = made["Deployment", f"gangline-{component}"]["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        context = container(made, component)["securityContext"]
        assert context == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"leaderElection": {"enabled": False}}, "replicaCount above 1 needs leaderElection.enabled"),
        (
            {"leaderElection": {"enabled": False}, "replicaCount": 1, "scheduler": {"enabled": True}},
            "scheduler.replicaCount above 1 needs",
        ),
        ({"metrics": {"enabled": False, "podMonitor": {"enabled": True}}}, "need metrics.enabled"),
        ({"fullnameOverride": "7b"}, "which begin with a letter and have no dots: choose another, or set fullname"),
    ],
)
def test_values_that_contradict_each_other_get_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        objects(**changes)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["7b", "7-gangline", "llm.7b"])
def test_the_name_of_a_release_that_no_service_may_have_gets_one_line(name: str) -> None:
    release = Release(name=name, namespace="ml", service="Helm")
    with pytest.raises(InputError, match="set fullnameOverride, as in fullnameOverride=gangline"):
        install_objects(values(), release)
    assert install_objects(values(fullnameOverride="llm"), release)


def test_crds_are_those_of_all_kinds_and_can_be_left_out() -> None:
    names = [f"{kind.plural}.kubeflow.org" for kind in TRAINING_KINDS] + [one.name for one in GANG_RESOURCES]
    made = install_crds(values())
    assert [one["metadata"]["name"] for one in made] == names
    assert install_crds(values(crds={"install": False})) == []
    assert "annotations" not in made[0]["metadata"]
    kept = install_crds(values(), Release(service="Helm"))
    assert kept[0]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
