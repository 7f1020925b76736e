"""The rights of gangline in a cluster, held against every request that it sent in all tests here. This file runs last."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from gangline.apiserver.audit.rights import read_events
from gangline.install.rules import Feature, operator_rules
from support.cluster.accounts import GrantedRight, unused_rights
from support.nodes.inside import NodeCluster
from support.nodes.installation import NAMESPACE

pytestmark = pytest.mark.cluster

COMPONENTS = ("gangline-operator", "gangline-scheduler")
# Why roles grant what no test here needs.
NOT_USED_HERE: Mapping[str, Callable[[GrantedRight], bool]] = {
    "servers that check who may block a deletion": lambda right: right.resource.endswith("/finalizers"),
    "nobody may grant what they do not have": lambda right: right.resource == "pods/exec",
    "an object of that name exists, an orphan is adopted, or an answer was lost": lambda right: right.verb == "get",
    "a job whose workers the server rejects loses its launcher": lambda right: (
        (right.verb, right.group, right.resource) == ("delete", "batch", "jobs")
    ),
    "a job of which some pods failed and others have no node": lambda right: (
        (right.verb, right.resource) == ("list", "nodes")
    ),
    "adoption, labels of an older version, a changed policy, repeated events": lambda right: right.verb == "patch",
}


def account(component: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{component}"


def test_gangline_was_refused_nothing_but_what_it_was_installed_without(cluster: NodeCluster) -> None:
    # An installation without `rbac.mpiJobs` looks from time to time whether it has these rights by now.
    optional = {
        (group, resource, verb)
        for rule in operator_rules([Feature.MPI])
        for group in rule.groups
        for resource in rule.resources
        for verb in rule.verbs
    }
    removals = binding_removals(cluster)
    first_requests: dict[str, str] = {}
    refused = set()
    for event, reference in requests_of_gangline(cluster):
        now = event["requestReceivedTimestamp"]
        began = first_requests.setdefault(pod_of(event), now)
        # `helm uninstall` and `kubectl delete` do not wait for the pods that use the rights.
        has_lost_rights = any(began <= removed <= now for removed in removals)
        if event["annotations"].get("authorization.k8s.io/decision") == "forbid" and not has_lost_rights:
            refused.add((reference.get("apiGroup", ""), reference["resource"], event["verb"]))
    assert refused - optional == set()


@pytest.mark.slow
def test_every_right_of_the_installation_was_used(installed: NodeCluster) -> None:
    unused = {
        component: unused_rights(account(component), roles_of(installed, component), installed.layout.audit_log)
        for component in COMPONENTS
    }
    unexplained = {
        component: [right for right in rights if not any(explains(right) for explains in NOT_USED_HERE.values())]
        for component, rights in unused.items()
    }
    assert unexplained == {component: [] for component in COMPONENTS}


def requests_of_gangline(cluster: NodeCluster) -> Iterator[tuple[Any, Any]]:
    """The events about requests of all its components, with the resource of each."""
    users = {account(component) for component in COMPONENTS}
    for event in read_events(cluster.layout.audit_log):
        if event["user"].get("username") in users and "objectRef" in event:
            yield event, event["objectRef"]


def pod_of(event: Any) -> str:
    """The uid of the pod whose token sent the request."""
    uids: Sequence[str] = event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-uid", [""])
    return uids[0]


def binding_removals(cluster: NodeCluster) -> list[str]:
    """When bindings of gangline's roles were deleted."""
    return [
        event["requestReceivedTimestamp"]
        for event in read_events(cluster.layout.audit_log)
        if event.get("objectRef", {}).get("resource") in ("rolebindings", "clusterrolebindings")
        and event["objectRef"].get("name", "").startswith("gangline")
        and event["verb"] == "delete"
        and event.get("responseStatus", {}).get("code", 0) < 300
    ]


def roles_of(cluster: NodeCluster, component: str) -> Iterator[Any]:
    """The roles that are bound to the account of a component, in the cluster and in namespaces."""
    for binding in cluster.objects("rolebindings,clusterrolebindings"):
        if any(subject.get("name") == component for subject in binding.get("subjects", ())):
            role = binding["roleRef"]
            where = binding["metadata"].get("namespace", "")
            yield from (
                one
                for one in cluster.objects(role["kind"].lower(), where if role["kind"] == "Role" else "")
                if one["metadata"]["name"] == role["name"]
            )
