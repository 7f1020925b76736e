"""What a proxy request names, and where that is. Pure; errors have kube-apiserver's words."""

from collections.abc import Iterable

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import StatusError

SCHEMES = ("", "http", "https")


class ProxyName(msgspec.Struct, frozen=True):
    """`[SCHEME:]NAME[:PORT]` in the path of a proxy request; the port is a number, or a name in a service."""

    scheme: str
    name: str
    port: str

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"


class ServiceEndpoint(msgspec.Struct, frozen=True):
    """One way to reach a service: a pod and a port of it, or an address that somebody else has listed."""

    port: int
    pod: Key | None = None
    address: str = ""


def parse_proxy_name(kind: str, text: str) -> ProxyName:
    """The parts of a name. Raises `StatusError` (400)."""
    match text.split(":"):
        case [name] if name:
            return ProxyName("", name, "")
        case [name, port] if name:
            return ProxyName("", name, port)
        case [scheme, name, port] if name and scheme in SCHEMES:
            return ProxyName(scheme, name, port)
        case _:
            raise apierrors.bad_request(f'invalid {kind} request "{text}"')


def pod_port(pod: JSON, written: str) -> int:
    """The port of a pod that a request names: the first one of its containers by default, else 80 or as HTTP has it.

    Raises `StatusError` (400).
    """
    if written:
        return _port_number(written)
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
    first = next(ports, None)
    return int(first["containerPort"]) if first is not None else 80


def _port_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**16):
        raise apierrors.bad_request(f'invalid port "{text}"')
    return int(text)


def service_port(service: JSON, written: str) -> JSON:
    """The port of a service that a request names, by name or number. Raises `StatusError` (503)."""
    name, ports = service["metadata"]["name"], service["spec"].get("ports") or []
    if not written and len(ports) == 1:
        only: JSON = ports[0]
        return only
    for port in ports:
        if written and written in (port.get("name", ""), str(port["port"])):
            found: JSON = port
            return found
    raise service_unavailable(f'no service port "{written}" found for service "{name}"')


def selected_endpoints(port: JSON, pods: Iterable[JSON]) -> list[ServiceEndpoint]:
    """The ready pods of a service, with the port that each has for this port of the service."""
    endpoints = []
    for pod in pods:
        number = _target_port(port, pod)
        if number is not None and _is_ready(pod):
            metadata = pod["metadata"]
            endpoints.append(ServiceEndpoint(number, Key(metadata["namespace"], metadata["name"])))
    return endpoints


def _target_port(port: JSON, pod: JSON) -> int | None:
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    ports = (item for container in pod["spec"]["containers"] for item in container.get("ports") or ())
    return next((int(item["containerPort"]) for item in ports if item.get("name") == target), None)


def _is_ready(pod: JSON) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def listed_endpoints(port: JSON, endpoints: JSON) -> list[ServiceEndpoint]:
    """The addresses that an Endpoints object has for a port of its service."""
    name = port.get("name", "")
    return [
        ServiceEndpoint(int(item["port"]), address=address["ip"])
        for subset in endpoints.get("subsets") or ()
        for item in subset.get("ports") or ()
        if item.get("name", "") == name
        for address in subset.get("addresses") or ()
    ]


def node_address(node: JSON) -> tuple[str, int]:
    """The address of a node's kubelet. Raises `StatusError` (503) if it has none."""
    status = node.get("status") or {}
    by_type = {item["type"]: item["address"] for item in reversed(status.get("addresses") or [])}
    address = next((by_type[kind] for kind in ("Hostname", "InternalDNS", "InternalIP") if kind in by_type), "")
    address = by_type.get("InternalIP", address)
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    if not address or not port:
        raise service_unavailable(f"no preferred addresses found; known addresses: {sorted(by_type)}")
    return address, int(port)


def service_unavailable(message: str) -> StatusError:
    return StatusError(503, message, reason="ServiceUnavailable")
