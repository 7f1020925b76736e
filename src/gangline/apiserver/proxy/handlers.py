"""Handlers of the subresource `proxy` of pods, services and nodes."""

import asyncio
import ipaddress
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import cache

from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.handler import ApiRequest, SubresourceHandler
from gangline.apiserver.proxy.forwarding import Upstream, forward_request, unreachable
from gangline.apiserver.proxy.targets import (
    ProxyName,
    ServiceEndpoint,
    listed_endpoints,
    node_address,
    parse_proxy_name,
    pod_port,
    selected_endpoints,
    service_port,
    service_unavailable,
)
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.kube.podstreams import ContainerNotRunning, ContainerRef, PodStreams

NodesByName = Mapping[str, PodStreams]
KubeletTls = Callable[[], ssl.SSLContext]
"""Makes the TLS context with which the server speaks to kubelets of other machines."""
CONNECT_SECONDS = 30.0
StreamPair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def proxy_handlers(
    registry: Registry, nodes: NodesByName, kubelet_tls: KubeletTls | None = None
) -> dict[tuple[str, str, str], SubresourceHandler]:
    """The handlers by group, plural and name of the subresource."""
    handlers = ProxyHandlers(registry, nodes, kubelet_tls or unverified_tls)
    return {
        ("", "pods", "proxy"): handlers.pod,
        ("", "services", "proxy"): handlers.service,
        ("", "nodes", "proxy"): handlers.node,
    }


@cache
def unverified_tls() -> ssl.SSLContext:
    """TLS without verification, as kube-apiserver speaks it to pods and services: their certificates are anybody's."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class ProxyHandlers:
    """The handlers. Pods of nodes in this process are reached through their node, others by their address."""

    def __init__(self, registry: Registry, nodes: NodesByName, kubelet_tls: KubeletTls) -> None:
        self._registry, self._nodes, self._kubelet_tls = registry, nodes, kubelet_tls

    async def pod(self, request: ApiRequest) -> web.StreamResponse:
        """Pass a request on to a port of a pod."""
        name = parse_proxy_name("pod", request.info.name)
        pod = self._object(request, name)

        async def connect() -> Upstream:
            port = pod_port(pod, name.port)
            return await _upstream(await self._connect_pod(pod, port), f"{_pod_ip(pod)}:{port}", name)

        return await _serve(request, connect)

    async def service(self, request: ApiRequest) -> web.StreamResponse:
        """Pass a request on to one of the ready pods of a service."""
        name = parse_proxy_name("service", request.info.name)
        service = self._object(request, name)

        async def connect() -> Upstream:
            endpoints = self._endpoints(service, service_port(service, name.port))
            if not endpoints:
                raise service_unavailable(f'no endpoints available for service "{request.info.name}"')
            return await self._connect_endpoint(random.choice(endpoints), name)  # noqa: S311 - only spreads the load

        return await _serve(request, connect)

    async def node(self, request: ApiRequest) -> web.StreamResponse:
        """Pass a request on to the API of a kubelet."""
        name = parse_proxy_name("node", request.info.name)
        node = self._object(request, name)

        async def connect() -> Upstream:
            own = self._nodes.get(name.name)
            if own is not None and not name.port:
                reader, writer = await _dial(own.connect_api(), name.name)
                return Upstream(reader, writer, name.name)
            address, kubelet_port = node_address(node)
            port = int(name.port) if name.port.isdecimal() else kubelet_port
            if port != kubelet_port:
                _check_proxyable(address)
            authority = f"{address}:{port}"
            is_secure = port == kubelet_port or name.is_secure
            tls = self._kubelet_tls() if is_secure else None
            reader, writer = await _dial(asyncio.open_connection(address, port, ssl=tls), authority)
            return Upstream(reader, writer, authority, secure=is_secure)

        return await _serve(request, connect)

    def _object(self, request: ApiRequest, name: ProxyName) -> JSON:
        key = Key(request.info.namespace, name.name)
        return decode_record(self._registry.get(request.served_kind, key))

    def _endpoints(self, service: JSON, port: JSON) -> list[ServiceEndpoint]:
        namespace, selector = service["metadata"]["namespace"], service["spec"].get("selector") or {}
        if selector:
            pods = map(decode_record, self._registry.store.range(collection_prefix("", "pods", namespace)).records)
            chosen = (pod for pod in pods if selector.items() <= (pod["metadata"].get("labels") or {}).items())
            return selected_endpoints(port, chosen)
        record = self._registry.store.get(object_path("", "endpoints", namespace, service["metadata"]["name"]))
        return listed_endpoints(port, decode_record(record)) if record is not None else []

    async def _connect_endpoint(self, endpoint: ServiceEndpoint, name: ProxyName) -> Upstream:
        if endpoint.pod is None:
            _check_proxyable(endpoint.address)
            authority = f"{endpoint.address}:{endpoint.port}"
            pair = await _dial(asyncio.open_connection(endpoint.address, endpoint.port), authority)
            return await _upstream(pair, authority, name)
        record = self._registry.store.get(object_path("", "pods", *endpoint.pod))
        if record is None:
            raise unreachable("the pod is gone")
        pod = decode_record(record)
        pair = await self._connect_pod(pod, endpoint.port)
        return await _upstream(pair, f"{_pod_ip(pod)}:{endpoint.port}", name)

    async def _connect_pod(self, pod: JSON, port: int) -> StreamPair:
        node = self._nodes.get(pod["spec"].get("nodeName", ""))
        address = _pod_ip(pod)
        authority = f"{address}:{port}"
        if node is not None:
            metadata = pod["metadata"]
            ref = ContainerRef(Key(metadata["namespace"], metadata["name"]), metadata["uid"], "")
            return await _dial(node.connect(ref, port), authority)
        if not address:
            raise service_unavailable(f"pod {pod['metadata']['name']} has no address yet")
        _check_proxyable(address)
        return await _dial(asyncio.open_connection(address, port), authority)


def _pod_ip(pod: JSON) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def _check_proxyable(address: str) -> None:
    """Refuse addresses by which a proxy would reach the server's own machine, as kube-apiserver does."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return
    if ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        raise apierrors.bad_request("address not allowed")


async def _dial(connecting: Awaitable[StreamPair], authority: str) -> StreamPair:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await connecting
    except TimeoutError:
        raise unreachable(f"dial tcp {authority}: i/o timeout") from None
    except ContainerNotRunning as error:
        raise unreachable(str(error)) from error
    except OSError as error:
        problem = os.strerror(error.errno).lower() if error.errno else str(error)
        raise unreachable(f"dial tcp {authority}: connect: {problem}") from error


async def _upstream(pair: StreamPair, authority: str, name: ProxyName) -> Upstream:
    reader, writer = pair
    if name.is_secure:
        try:
            await writer.start_tls(unverified_tls())
        except OSError as error:  # also ssl.SSLError
            writer.close()
            raise unreachable(f"tls: {error}") from error
    return Upstream(reader, writer, authority, secure=name.is_secure)


async def _serve(request: ApiRequest, connect: Callable[[], Awaitable[Upstream]]) -> web.StreamResponse:
    http = request.http
    prefix, path = split_proxy_path(http.rel_url.raw_path, namespaced=bool(request.info.namespace))
    query = f"?{http.rel_url.raw_query_string}" if http.rel_url.raw_query_string else ""
    if not path and http.method in ("GET", "HEAD") and "Upgrade" not in http.headers:
        # Without the slash the relative links of a page would lead elsewhere.
        return web.Response(status=301, headers={"Location": f"{prefix}/{query}"})
    extra = {
        "X-Forwarded-Uri": f"{prefix}{path}",
        "X-Forwarded-Host": http.headers.get("Host", ""),
        "X-Forwarded-Proto": "https" if http.secure else "http",
    }
    return await forward_request(http, await connect(), f"{path or '/'}{query}", prefix=prefix, extra=extra)


def split_proxy_path(raw_path: str, *, namespaced: bool) -> tuple[str, str]:
    """A path up to `/proxy`, and the path behind it, which is empty or begins with a slash. Both as the client sent them."""
    count = 8 if namespaced else 6
    parts = raw_path.split("/")
    head, rest = parts[:count], parts[count:]
    return "/".join(head), f"/{'/'.join(rest)}" if rest else ""
