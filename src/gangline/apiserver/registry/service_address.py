"""Where a Service leads to, for the API server itself: webhooks and aggregated groups name Services."""

from collections.abc import Iterator

from gangline.api.meta import JSON
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.apiserver.store.store import Store
from gangline.base.errors import InputError

_SLICES = ("discovery.k8s.io", "endpointslices")
_SERVICE_LABEL = "kubernetes.io/service-name"


class ServiceUnavailable(InputError):
    """A Service that leads nowhere, in the words of kube-apiserver."""


def service_address(store: Store, namespace: str, name: str, port: int) -> tuple[str, int]:
    """Host and port behind a port of a Service: those of a ready endpoint, or of a running pod that it selects.

    Raises `ServiceUnavailable`.
    """
    record = store.get(object_path("", "services", namespace, name))
    if record is None:
        raise ServiceUnavailable(f'service "{name}" not found')
    spec = decode_record(record)["spec"]
    if spec.get("type") == "ExternalName":
        return spec["externalName"], port
    declared = next((item for item in spec.get("ports", ()) if item["port"] == port), None)
    if declared is None:
        raise ServiceUnavailable(f'no service port {port} found for service "{name}"')
    found = next(_endpoints(store, namespace, name, declared), None) or next(
        _selected_pods(store, namespace, spec.get("selector") or {}, declared), None
    )
    if found is None:
        raise ServiceUnavailable(f'no endpoints available for service "{name}"')
    return found


def _endpoints(store: Store, namespace: str, name: str, declared: JSON) -> Iterator[tuple[str, int]]:
    """The ready endpoints in the slices of a Service, and in its Endpoints."""
    for record in store.range(collection_prefix(*_SLICES, namespace)).records:
        if name.encode() not in record.data:
            continue
        part = decode_record(record)
        if (part["metadata"].get("labels") or {}).get(_SERVICE_LABEL) != name:
            continue
        ports = [item["port"] for item in part.get("ports") or () if _is_port(item, declared)]
        for endpoint in part.get("endpoints") or () if ports else ():
            if (endpoint.get("conditions") or {}).get("ready", True):
                yield from ((address, ports[0]) for address in endpoint["addresses"])
    own = store.get(object_path("", "endpoints", namespace, name))
    for subset in decode_record(own).get("subsets", ()) if own is not None else ():
        ports = [item["port"] for item in subset.get("ports", ()) if _is_port(item, declared)]
        yield from ((item["ip"], ports[0]) for item in subset.get("addresses", ()) if ports)


def _is_port(item: JSON, declared: JSON) -> bool:
    return (item.get("name") or "") == (declared.get("name") or "")


def _selected_pods(store: Store, namespace: str, selector: JSON, declared: JSON) -> Iterator[tuple[str, int]]:
    """The running pods of a Service that nobody writes endpoints for."""
    for record in store.range(collection_prefix("", "pods", namespace)).records if selector else ():
        pod = decode_record(record)
        labels, status = pod["metadata"].get("labels") or {}, pod.get("status") or {}
        if status.get("phase") != "Running" or not status.get("podIP") or not selector.items() <= labels.items():
            continue
        target = declared.get("targetPort") or declared["port"]
        number = target if isinstance(target, int) else _container_port(pod, target)
        if number is not None:
            yield status["podIP"], number


def _container_port(pod: JSON, name: str) -> int | None:
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
    return next((port["containerPort"] for port in ports if port.get("name") == name), None)
