"""Services, config, nodes, namespaces, events, leases."""

import copy
from typing import Any

import pytest

from gangline.apiserver.kinds.core import service_ips
from gangline.apiserver.kinds.core.event import to_core_v1, to_events_v1
from gangline.apiserver.kinds.core.ip_pools import AddressPool, PortPool
from gangline.apiserver.kinds.core.namespace import NamespaceStrategy
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.registry.strategies import strategy_for

JSON = dict[str, Any]
NOW = "2024-01-01T00:00:00Z"


def prepared(kind: Strategy, obj: JSON) -> JSON:
    meta = {"name": "x", **obj.get("metadata", {})}
    if kind.namespaced:
        meta["namespace"] = "n"
    obj = {**copy.deepcopy(obj), "metadata": meta}
    kind.normalize(obj)
    obj["metadata"] |= {"uid": "u", "creationTimestamp": NOW}
    kind.prepare_for_create(obj, NOW)
    return obj


def updated(kind: Strategy, old: JSON, **fields: Any) -> JSON:
    new = copy.deepcopy(old)
    new.update(copy.deepcopy(fields))
    kind.normalize(new)
    new["metadata"]["resourceVersion"] = "1"
    kind.prepare_for_update(new, old)
    return new


services = strategy_for("", "Service")


def test_service_gets_its_defaults() -> None:
    spec = prepared(services, {"spec": {"ports": [{"port": 80}]}})["spec"]
    assert spec == {
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    assert service_ips.needs_cluster_ip(spec)


def test_headless_service_needs_no_address() -> None:
    service = prepared(services, {"spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    assert service["spec"]["clusterIPs"] == ["None"]
    assert not service_ips.needs_cluster_ip(service["spec"])
    assert services.validate(service) == []


def test_service_keeps_its_address() -> None:
    old = prepared(services, {"spec": {"ports": [{"port": 80}]}})
    service_ips.set_cluster_ip(old["spec"], "10.0.0.5")
    new = updated(services, old, spec={"ports": [{"port": 81}]})
    assert new["spec"]["clusterIPs"] == ["10.0.0.5"]
    assert services.validate_update(new, old) == []


def test_service_does_not_give_its_address_up() -> None:
    old = prepared(services, {"spec": {"ports": [{"port": 80}]}})
    service_ips.set_cluster_ip(old["spec"], "10.0.0.5")
    new = updated(services, old, spec={"clusterIP": "None", "ports": [{"port": 81}]})
    [problem] = services.validate_update(new, old)
    assert str(problem) == 'spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set'


def test_bad_address_is_the_only_problem_reported() -> None:
    service = prepared(services, {"spec": {"clusterIP": "x", "ports": []}})
    [problem] = services.validate(service)
    assert problem.field == "spec.clusterIPs[0]"


def test_pool_gives_every_address_once_and_takes_them_back() -> None:
    pool = AddressPool("10.0.0.0/29", allocated=["10.0.0.1", "None"])
    assert [pool.allocate_next() for _ in range(6)] == [*(f"10.0.0.{last}" for last in range(2, 7)), None]
    pool.release("10.0.0.4")
    assert pool.allocate_next() == "10.0.0.4"


def test_pool_refuses_what_is_taken_or_elsewhere() -> None:
    pool = AddressPool("10.0.0.0/24")
    assert pool.allocate(["10.0.0.9"]) == []
    [problem] = pool.allocate(["10.0.0.9"])
    assert problem.detail == "failed to allocate IP 10.0.0.9: provided IP is already allocated"
    assert pool.allocate(["192.168.0.1"])


def test_node_ports_come_from_their_range() -> None:
    pool = PortPool([30000])
    assert pool.allocate_next() == 30001
    assert pool.allocate(30001, "spec.ports[0].nodePort")
    assert pool.allocate(80, "spec.ports[0].nodePort")
    service = prepared(services, {"spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    assert len(service_ips.ports_without_node_port(service["spec"])) == 1


config_maps, secrets = strategy_for("", "ConfigMap"), strategy_for("", "Secret")


def test_immutable_config_map_stays() -> None:
    old = prepared(config_maps, {"immutable": True, "data": {"a": "b"}})
    assert config_maps.validate_update(updated(config_maps, old), old) == []
    result = config_maps.validate_update(updated(config_maps, old, immutable=False, data={"a": "c"}), old)
    assert [problem.field for problem in result] == ["immutable", "data"]


def test_string_data_wins_over_data_and_is_not_stored() -> None:
    secret = prepared(secrets, {"data": {"a": "YQ=="}, "stringData": {"a": "over", "b": "new"}})
    assert secret["data"] == {"a": "b3Zlcg==", "b": "bmV3"}
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("kubernetes.io/tls", ["data[tls.crt]", "data[tls.key]"]),
        ("kubernetes.io/basic-auth", ["data[username]", "data[password]"]),
        ("kubernetes.io/dockerconfigjson", ["data[.dockerconfigjson]"]),
        ("a.io/anything", []),
    ],
)
def test_secret_types_need_their_keys(kind: str, fields: list[str]) -> None:
    assert [problem.field for problem in secrets.validate(prepared(secrets, {"type": kind}))] == fields


nodes = strategy_for("", "Node")


def test_new_node_is_tainted_and_keeps_its_status() -> None:
    node = prepared(nodes, {"status": {"capacity": {"cpu": "8000m"}}})
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert node["status"]["capacity"] == node["status"]["allocatable"] == {"cpu": "8"}
    assert nodes.validate(node) == []


def test_node_keeps_its_address_range() -> None:
    old = prepared(nodes, {"spec": {"podCIDR": "10.1.0.0/24"}})
    assert old["spec"]["podCIDRs"] == ["10.1.0.0/24"]
    new = updated(nodes, old, spec={"podCIDR": "10.2.0.0/24"})
    assert [problem.field for problem in nodes.validate_update(new, old)] == ["spec.podCIDRs"]


namespaces = strategy_for("", "Namespace")


def test_namespace_is_labelled_finalized_and_active() -> None:
    namespace = prepared(namespaces, {"status": {"phase": "Terminating"}})
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}


def test_namespace_finalizers_change_through_finalize_only() -> None:
    assert isinstance(namespaces, NamespaceStrategy)
    old = prepared(namespaces, {})
    assert updated(namespaces, old, spec={})["spec"] == {"finalizers": ["kubernetes"]}
    new = {**copy.deepcopy(old), "spec": {"finalizers": ["bad"]}}
    new["metadata"]["resourceVersion"] = "1"
    namespaces.prepare_for_finalize_update(new, old)
    assert [problem.field for problem in namespaces.validate_finalize_update(new, old)] == ["spec.finalizers[0]"]


def test_event_is_one_object_in_two_shapes() -> None:
    core = prepared(
        strategy_for("", "Event"),
        {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": {"name": "p", "namespace": "n"},
            "message": "m",
            "count": 2,
            "source": {"component": "k"},
        },
    )
    new = to_events_v1(core)
    assert (new["note"], new["regarding"]["name"], new["deprecatedCount"]) == ("m", "p", 2)
    assert to_core_v1(new) == core


def test_event_belongs_to_the_namespace_of_its_object() -> None:
    events = strategy_for("", "Event")
    event = prepared(events, {"involvedObject": {"namespace": "other"}})
    [problem] = events.validate(event)
    assert str(problem) == 'involvedObject.namespace: Invalid value: "other": does not match event.namespace'


def test_lease_counts_upwards() -> None:
    leases = strategy_for("coordination.k8s.io", "Lease")
    lease = prepared(leases, {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}})
    assert [problem.field for problem in leases.validate(lease)] == [
        "spec.leaseDurationSeconds",
        "spec.leaseTransitions",
    ]


def test_kind_without_rules_changes_nothing() -> None:
    kind = strategy_for("a.io", "Thing")
    thing = {"metadata": {"name": "x", "namespace": "n"}, "spec": {"a": None}}
    kind.normalize(thing)
    assert thing == {"metadata": {"name": "x", "namespace": "n"}, "spec": {"a": None}}
