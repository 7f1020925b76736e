"""The objects of an installation agree with each other, and with what the operator needs."""

from typing import Any

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import GROUP
from gangline.api.scheduling import GROUP as SCHEDULING
from gangline.operator.conflicting_operators import GANGLINE_ROLE, ROLE_LABEL
from gangline.operator.main import operator
from gangline.schema.crds.gang_crds import GANG_RESOURCES
from gangline.schema.crds.job_roles import job_roles
from support.cluster.installation import installation

PLURALS = [kind.plural for kind in TRAINING_KINDS]
SCALABLE = [kind.plural for kind in TRAINING_KINDS if kind.scalable]


def documents(**values: Any) -> dict[tuple[str, str], Any]:
    return {(one["kind"], one["metadata"]["name"]): one for one in installation(values)}


RBAC = documents()


def rights(role: str, group: str = GROUP) -> dict[str, set[str]]:
    """Verbs by resource of a role, for our API group."""
    rules = [rule for rule in RBAC["ClusterRole", role]["rules"] if group in rule["apiGroups"]]
    return {resource: set(rule["verbs"]) for rule in rules for resource in rule["resources"]}


def test_every_kind_is_in_every_role() -> None:
    for role in ("gangline-operator", "gangline-edit", "gangline-view"):
        found = rights(role)
        assert set(PLURALS) <= found.keys(), role
        assert {f"{plural}/status" for plural in PLURALS} <= found.keys(), role
    for role in ("gangline-edit", "gangline-view"):
        assert {f"{plural}/scale" for plural in SCALABLE} <= rights(role).keys(), role


def test_who_may_view_may_change_nothing() -> None:
    assert set().union(*rights("gangline-view").values()) == {"get", "list", "watch"}
    assert set().union(*rights("gangline-view", SCHEDULING).values()) == {"get", "list", "watch"}


def test_users_make_groups_and_nobody_but_the_scheduler_says_how_they_are() -> None:
    assert {"create", "patch", "delete"} <= rights("gangline-edit", SCHEDULING)["podgroups"]
    for role in ("gangline-edit", "gangline-operator"):
        assert "podgroups/status" not in rights(role, SCHEDULING)
    assert {"podgroups", "queues"} <= rights("gangline-view", SCHEDULING).keys()


def test_the_operator_has_no_secrets_no_wildcards_and_changes_no_spec() -> None:
    rules = RBAC["ClusterRole", "gangline-operator"]["rules"]
    assert not [rule for rule in rules if "*" in rule["resources"] + rule["verbs"] + rule["apiGroups"]]
    assert not [rule for rule in rules if "secrets" in rule["resources"]]
    assert rights("gangline-operator")["tfjobs"] == {"get", "list", "watch", "delete"}


def test_in_each_of_several_namespaces_the_rights_are_those_of_the_whole_cluster() -> None:
    namespaced = installation({"watchNamespaces": ["team-a", "team-b"]}, "team-a")
    roles = [role for role in namespaced if (role["kind"], role["metadata"]["name"]) == ("Role", "gangline-operator")]
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert all(role["rules"] == RBAC["ClusterRole", "gangline-operator"]["rules"] for role in roles)
    assert not [document for document in namespaced if document["kind"].startswith("Cluster")]


def test_only_the_opt_in_for_mpi_lets_the_operator_make_roles() -> None:
    granting = {"roles", "rolebindings", "clusterroles", "clusterrolebindings", "pods/exec", "serviceaccounts/token"}
    for rule in RBAC["ClusterRole", "gangline-operator"]["rules"]:
        assert not granting & set(rule["resources"])
    mpi = documents(rbac={"mpiJobs": True})["ClusterRole", "gangline-operator-mpi"]["rules"]
    assert granting & {resource for rule in mpi for resource in rule["resources"]} == {
        "roles",
        "rolebindings",
        "pods/exec",
    }


def test_the_watch_for_hangs_has_its_rights_and_runs_commands_only_by_choice() -> None:
    rule = {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]}
    assert RBAC["ClusterRole", "gangline-operator-hang-watch"]["rules"] == [rule]
    assert ("ClusterRole", "gangline-operator-hang-stacks") not in RBAC
    with_stacks = documents(hangWatch={"stacks": True})
    (by_choice,) = with_stacks["ClusterRole", "gangline-operator-hang-stacks"]["rules"]
    assert by_choice["resources"] == ["pods/exec"]
    assert flags(with_stacks)["hang_stacks"]
    without = documents(hangWatch={"enabled": False, "stacks": True})
    assert not [name for _, name in without if "hang" in name]
    assert (flags(RBAC)["hang_watch"], flags(RBAC)["hang_stacks"]) == (True, False)
    assert (flags(without)["hang_watch"], flags(without)["hang_stacks"]) == (False, False)


def flags(manifests: dict[tuple[str, str], Any]) -> dict[str, Any]:
    """The operator's flags as its own command reads them."""
    (container,) = manifests["Deployment", "gangline-operator"]["spec"]["template"]["spec"]["containers"]
    with operator.make_context("operator", list(container["args"])) as context:
        return context.params


def test_leases_are_written_in_one_namespace_alone() -> None:
    for role in (
        RBAC["ClusterRole", "gangline-operator"],
        documents(scheduler={"enabled": True})["ClusterRole", "gangline-scheduler"],
    ):
        rules = [rule for rule in role["rules"] if "leases" in rule["resources"]]
        assert all(rule["verbs"] == ["list"] and rule["resourceNames"] for rule in rules)


def test_no_role_of_ours_reads_secrets() -> None:
    everything = documents(
        rbac={"mpiJobs": True},
        mpiV2beta1=True,
        crds={"byOperator": True},
        scheduler={"enabled": True},
        gangSchedulerName="volcano",
    )
    for (_, name), document in everything.items():
        for rule in document.get("rules") or ():
            if "secrets" in rule.get("resources", ()):
                assert (name, rule["verbs"]) == ("gangline-operator-mpi-v2beta1", ["create"])


def test_definitions_may_be_installed_of_our_kinds_alone() -> None:
    manifests = documents(crds={"byOperator": True})["ClusterRole", "gangline-operator-install-crds"]
    (patching,) = [rule for rule in manifests["rules"] if "patch" in rule["verbs"]]
    gangs = [resource.name for resource in GANG_RESOURCES]
    assert patching["resourceNames"] == [*(f"{plural}.{GROUP}" for plural in PLURALS), *gangs]


def test_the_deployment_runs_a_command_that_exists_with_the_account_that_has_the_role() -> None:
    manifests = documents()
    deployment = manifests["Deployment", "gangline-operator"]
    pod = deployment["spec"]["template"]
    assert pod["metadata"]["labels"][ROLE_LABEL] == GANGLINE_ROLE
    account = RBAC["ServiceAccount", "gangline-operator"]["metadata"]
    assert pod["spec"]["serviceAccountName"] == account["name"]
    assert deployment["metadata"]["namespace"] == account["namespace"]
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["gangline", "operator"]
    with operator.make_context("operator", list(container["args"])) as context:
        assert context.params["leader_elect"] is True
        assert pod["spec"]["terminationGracePeriodSeconds"] > context.params["grace"]


def test_the_service_leads_to_the_pods_metrics() -> None:
    manifests = documents()
    pod = manifests["Deployment", "gangline-operator"]["spec"]["template"]
    service = manifests["Service", "gangline-operator"]["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    (port,) = service["ports"]
    names = {named["name"]: named["containerPort"] for named in pod["spec"]["containers"][0]["ports"]}
    assert names[port["targetPort"]] == 8080


def test_the_embedded_plane_has_the_same_roles_for_users() -> None:
    for role in job_roles(TRAINING_KINDS):
        installed = RBAC["ClusterRole", role["metadata"]["name"]]
        assert installed["rules"] == role["rules"]
        assert role["metadata"]["labels"].items() <= installed["metadata"]["labels"].items()
