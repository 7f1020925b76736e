"""Services, config, nodes, namespaces, events, leases."""

import copy
from typing import Any

import pytest

from gangline.apiserver.kinds.core import service_ips
from gangline.apiserver.kinds.core.event import to_core_v1, to_events_v1
from gangline.apiserver.kinds.core.ip_pools import AddressPool, PortPool
from gangline.apiserver.kinds.core.namespace import NamespaceKind
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.apiserver.registry.strategies import kind_of

JSON = dict[str, Any]
NOW = "2024-01-01T00:00:00Z"


def made(kind: Kind, obj: JSON) -> JSON:
    meta = {"name": "x", **obj.get("metadata", {})}
    if kind.namespaced:
        meta["namespace"] = "n"
    obj = {**copy.deepcopy(obj), "metadata": meta}
    kind.defaults(obj)
    obj["metadata"] |= {"uid": "u", "creationTimestamp": NOW}
    kind.create(obj, NOW)
    return obj


def changed(kind: Kind, old: JSON, **fields: Any) -> JSON:
    new = copy.deepcopy(old)
    new.update(copy.deepcopy(fields))
    kind.defaults(new)
    new["metadata"]["resourceVersion"] = "1"
    kind.update(new, old)
    return new


services = kind_of("", "Service")


def test_service_gets_its_defaults() -> None:
    spec = made(services, {"spec": {"ports": [{"port": 80}]}})["spec"]
    assert spec == {
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    assert service_ips.needs_address(spec)


def test_headless_service_needs_no_address() -> None:
    service = made(services, {"spec": {"clusterIP": "None", "selector": {"a": "b"}}})
    assert service["spec"]["clusterIPs"] == ["None"]
    assert not service_ips.needs_address(service["spec"])
    assert services.validate(service) == []


def test_service_keeps_its_address() -> None:
    old = made(services, {"spec": {"ports": [{"port": 80}]}})
    service_ips.give_address(old["spec"], "10.0.0.5")
    new = changed(services, old, spec={"ports": [{"port": 81}]})
    assert new["spec"]["clusterIPs"] == ["10.0.0.5"]
    assert services.validate_update(new, old) == []


def test_service_does_not_give_its_address_up() -> None:
    old = made(services, {"spec": {"ports": [{"port": 80}]}})
    service_ips.give_address(old["spec"], "10.0.0.5")
    new = changed(services, old, spec={"clusterIP": "None", "ports": [{"port": 81}]})
    [problem] = services.validate_update(new, old)
    assert str(problem) == 'spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set'


def test_bad_address_is_the_only_problem_told() -> None:
    service = made(services, {"spec": {"clusterIP": "x", "ports": []}})
    [problem] = services.validate(service)
    assert problem.field == "spec.clusterIPs[0]"


def test_pool_gives_every_address_once_and_takes_them_back() -> None:
    pool = AddressPool("10.0.0.0/29", taken=["10.0.0.1", "None"])
    assert [pool.take() for _ in range(6)] == [*(f"10.0.0.{last}" for last in range(2, 7)), None]
    pool.release("10.0.0.4")
    assert pool.take() == "10.0.0.4"


def test_pool_refuses_what_is_taken_or_elsewhere() -> None:
    pool = AddressPool("10.0.0.0/24")
    assert pool.take_this(["10.0.0.9"]) == []
    [problem] = pool.take_this(["10.0.0.9"])
    assert problem.detail == "failed to allocate IP 10.0.0.9: provided IP is already allocated"
    assert pool.take_this(["192.168.0.1"])


def test_node_ports_come_from_their_range() -> None:
    pool = PortPool([30000])
    assert pool.take() == 30001
    assert pool.take_this(30001, "spec.ports[0].nodePort")
    assert pool.take_this(80, "spec.ports[0].nodePort")
    service = made(services, {"spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    assert len(service_ips.ports_without_number(service["spec"])) == 1


config_maps, secrets = kind_of("", "ConfigMap"), kind_of("", "Secret")


def test_immutable_config_map_stays() -> None:
    old = made(config_maps, {"immutable": True, "data": {"a": "b"}})
    assert config_maps.validate_update(changed(config_maps, old), old) == []
    found = config_maps.validate_update(changed(config_maps, old, immutable=False, data={"a": "c"}), old)
    assert [problem.field for problem in found] == ["immutable", "data"]


def test_string_data_wins_over_data_and_is_not_stored() -> None:
    secret = made(secrets, {"data": {"a": "YQ=="}, "stringData": {"a": "over", "b": "new"}})
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
    assert [problem.field for problem in secrets.validate(made(secrets, {"type": kind}))] == fields


nodes = kind_of("", "Node")


def test_new_node_is_tainted_and_keeps_its_status() -> None:
    node = made(nodes, {"status": {"capacity": {"cpu": "8000m"}}})
    assert node["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert node["status"]["capacity"] == node["status"]["allocatable"] == {"cpu": "8"}
    assert nodes.validate(node) == []


def test_node_keeps_its_address_range() -> None:
    old = made(nodes, {"spec": {"podCIDR": "10.1.0.0/24"}})
    assert old["spec"]["podCIDRs"] == ["10.1.0.0/24"]
    new = changed(nodes, old, spec={"podCIDR": "10.2.0.0/24"})
    assert [problem.field for problem in nodes.validate_update(new, old)] == ["spec.podCIDRs"]


namespaces = kind_of("", "Namespace")


def test_namespace_is_labelled_finalized_and_active() -> None:
    namespace = made(namespaces, {"status": {"phase": "Terminating"}})
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}


def test_namespace_finalizers_change_through_finalize_only() -> None:
    assert isinstance(namespaces, NamespaceKind)
    old = made(namespaces, {})
    assert changed(namespaces, old, spec={})["spec"] == {"finalizers": ["kubernetes"]}
    new = {**copy.deepcopy(old), "spec": {"finalizers": ["bad"]}}
    new["metadata"]["resourceVersion"] = "1"
    namespaces.update_finalizers(new, old)
    assert [problem.field for problem in namespaces.validate_finalize_update(new, old)] == [
        "spec.finalizers[0]"
    ]


def test_event_is_one_object_in_two_shapes() -> None:
    core = made(
        kind_of("", "Event"),
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
    events = kind_of("", "Event")
    event = made(events, {"involvedObject": {"namespace": "other"}})
    [problem] = events.validate(event)
    assert str(problem) == 'involvedObject.namespace: Invalid value: "other": does not match event.namespace'


def test_lease_counts_upwards() -> None:
    leases = kind_of("coordination.k8s.io", "Lease")
    lease = made(leases, {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}})
    assert [problem.field for problem in leases.validate(lease)] == [
        "spec.leaseDurationSeconds",
        "spec.leaseTransitions",
    ]
    assert leases.created_by_update
    assert not leases.updated_blindly


def test_kind_without_rules_changes_nothing() -> None:
    kind = kind_of("a.io", "Thing")
    thing = {"metadata": {"name": "x", "namespace": "n"}, "spec": {"a": None}}
    kind.defaults(thing)
    assert thing == {"metadata": {"name": "x", "namespace": "n"}, "spec": {"a": None}}
