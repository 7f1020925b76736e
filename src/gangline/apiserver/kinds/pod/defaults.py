"""Defaults of pod specs, in pods and in the templates of workloads."""

import re
from functools import lru_cache

from gangline.api.meta import JSON
from gangline.api.quantity import ZERO, Quantity, add_resources
from gangline.apiserver.kinds.machinery import quantities
from gangline.apiserver.kinds.pod.probes import PROBE_FIELDS

_DEFAULT_FILE_MODE = 420  # 0644
_TAG_PATTERN = re.compile(r":(?P<tag>[\w][\w.-]{0,127})$", re.ASCII)
_HOST_PATTERN = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_PATH_PART_PATTERN = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_match_image = re.compile(
    rf"(?:{_HOST_PATTERN}(?:\.{_HOST_PATTERN})*(?::[0-9]+)?/)?{_PATH_PART_PATTERN}(?:/{_PATH_PART_PATTERN})*"
).fullmatch
_SOURCES_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")


def set_pod_spec_defaults(spec: JSON) -> None:
    """Set the defaults of every pod spec, of a pod or a template. The spec must be canonical."""
    get = spec.setdefault
    get("dnsPolicy", "ClusterFirst")
    get("restartPolicy", "Always")
    get("securityContext", {})
    get("terminationGracePeriodSeconds", 30)
    get("schedulerName", "default-scheduler")
    # The deprecated alias and its successor are equal, whichever is set.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for container in spec["containers"] or ():
        set_container_defaults(container)
    for container in spec.get("initContainers", ()):
        set_container_defaults(container)
    for container in spec.get("ephemeralContainers", ()):
        set_container_defaults(container)
    for volume in spec.get("volumes", ()):
        _set_volume_defaults(volume)


def set_pod_defaults(spec: JSON) -> None:
    """Set the defaults that pods have in addition, but templates do not."""
    for container in spec["containers"] or ():
        _default_requests_to_limits(container["resources"])
    for container in spec.get("initContainers", ()):
        _default_requests_to_limits(container["resources"])
    if "resources" in spec:
        _set_pod_level_requests(spec)
    spec.setdefault("enableServiceLinks", True)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("hostNetwork"):
        for container in [*(spec["containers"] or ()), *spec.get("initContainers", ())]:
            for port in container.get("ports", ()):
                if port.get("containerPort"):
                    port.setdefault("hostPort", port["containerPort"])


def _default_requests_to_limits(resources: JSON) -> None:
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**limits, **resources.get("requests", {})}


def _set_pod_level_requests(spec: JSON) -> None:
    """Default the pod-level requests to those of the containers, else to the pod-level limits."""
    resources = spec["resources"]
    if not resources.get("limits"):
        return
    requests = dict(resources.get("requests", {}))
    for name, amount in _total_container_requests(spec).items():
        if name in {"cpu", "memory"}:
            requests.setdefault(name, str(amount))
    for name, text in resources["limits"].items():
        if name in {"cpu", "memory"} or name.startswith(quantities.HUGE_PAGES_PREFIX):
            requests.setdefault(name, text)
    if requests:
        resources["requests"] = requests


def _total_container_requests(spec: JSON) -> dict[str, Quantity]:
    """A pod's requests: the sum over containers and sidecars, or the peak of an init container if that is more.

    An init container runs beside the sidecars that started before it.
    """

    def requests_of(container: JSON) -> dict[str, Quantity]:
        return {
            name: quantities.parse_quantity(text) for name, text in container["resources"].get("requests", {}).items()
        }

    total: dict[str, Quantity] = {}
    for container in spec["containers"] or ():
        total = add_resources(total, requests_of(container))
    sidecars: dict[str, Quantity] = {}
    init_peak: dict[str, Quantity] = {}
    for container in spec.get("initContainers", ()):
        if container.get("restartPolicy") == "Always":
            total, sidecars = (
                add_resources(total, requests_of(container)),
                add_resources(sidecars, requests_of(container)),
            )
            demand = sidecars
        else:
            demand = add_resources(sidecars, requests_of(container))
        init_peak = {name: max(init_peak.get(name, ZERO), demand.get(name, ZERO)) for name in {*init_peak, *demand}}
    return {name: max(total.get(name, ZERO), init_peak.get(name, ZERO)) for name in {*total, *init_peak}}


def set_container_defaults(container: JSON) -> None:
    """Set the defaults of a regular, init or ephemeral container."""
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = default_pull_policy(container.get("image", ""))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for variable in container.get("env", ()):
        if "valueFrom" in variable:
            _set_field_ref_defaults(variable["valueFrom"])
    for name in PROBE_FIELDS:
        if name in container:
            _set_probe_defaults(container[name])
    for handler in container.get("lifecycle", {}).values():
        if isinstance(handler, dict) and "httpGet" in handler:
            _set_http_defaults(handler["httpGet"])


@lru_cache(1024)
def default_pull_policy(image: str) -> str:
    """`Always` for an image without a tag or tagged `latest`; `IfNotPresent` for any other tag, and for a digest."""
    name, at, _ = image.partition("@")
    tag = _TAG_PATTERN.search(name.rpartition("/")[2])
    if tag is None:
        return "IfNotPresent" if at or not _is_image_name(name) else "Always"
    return "Always" if tag["tag"] == "latest" and _is_image_name(name[: -len(tag[0])]) else "IfNotPresent"


def _is_image_name(name: str) -> bool:
    """Whether an image reference can be parsed. One that cannot has no tag."""
    return _match_image(name) is not None


def _set_field_ref_defaults(source: JSON) -> None:
    if "fieldRef" in source:
        source["fieldRef"].setdefault("apiVersion", "v1")


def _set_probe_defaults(probe: JSON) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if "httpGet" in probe:
        _set_http_defaults(probe["httpGet"])
    if "grpc" in probe and probe["grpc"]["service"] is None:
        probe["grpc"]["service"] = ""


def _set_http_defaults(action: JSON) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


def _set_volume_defaults(volume: JSON) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
        return
    for name in _SOURCES_WITH_MODE:
        if name in volume:
            volume[name].setdefault("defaultMode", _DEFAULT_FILE_MODE)
            _set_projection_defaults(volume[name])
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if "ephemeral" in volume and "volumeClaimTemplate" in volume["ephemeral"]:
        volume["ephemeral"]["volumeClaimTemplate"]["spec"].setdefault("volumeMode", "Filesystem")
    if "image" in volume and "pullPolicy" not in volume["image"]:
        volume["image"]["pullPolicy"] = default_pull_policy(volume["image"].get("reference", ""))


def _set_projection_defaults(source: JSON) -> None:
    for item in source.get("items", ()):
        _set_field_ref_defaults(item)
    for projection in source.get("sources") or ():
        if "serviceAccountToken" in projection:
            projection["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in projection.get("downwardAPI", {}).get("items", ()):
            _set_field_ref_defaults(item)
