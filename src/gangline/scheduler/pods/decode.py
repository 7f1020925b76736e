"""Pods as they come from the server, as shapes and residents."""

from collections.abc import Collection, Mapping
from sys import intern
from typing import Final

from gangline.api.meta import Key
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import COMMIT_ANNOTATION, COMMIT_PIN, GANG_GATE
from gangline.api.selectors import SelectorError
from gangline.scheduler.pods.shape import NO_NODE_CONSTRAINTS, NO_POD_CONSTRAINTS, HostPort, PodShape
from gangline.scheduler.pods.wishes import node_constraints_of, pod_constraints_of, selector_keys
from gangline.scheduler.types.cycle import BoundPod
from gangline.scheduler.types.resources import pod_requests

IDENTITY_LABELS: Final = frozenset(
    (
        "training.kubeflow.org/replica-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
        "batch.kubernetes.io/job-completion-index",
        "batch.kubernetes.io/job-index",
    )
)
"""Labels that tell the members of a set apart. They are no part of a shape unless a rule asks for them."""

PINNING_HINT: Final = f"annotate the job with {COMMIT_ANNOTATION}: {COMMIT_PIN}"
"""What to do about what only kube-scheduler can do."""
_SORTED_IDENTITY_LABELS: Final = tuple(sorted(IDENTITY_LABELS))
_TERMINAL_PHASES: Final = ("Succeeded", "Failed")
# To kube-scheduler and to kubelets only this means all addresses; `::` is one like any other.
_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 (compared, not bound)


def shape_of(pod: Pod, keep: Collection[str] = ()) -> PodShape:
    """The shape of a pod. `keep`: labels that rules of others ask for (`Cluster.asked`), kept even if of one pod alone.

    A rule that cannot be understood becomes the shape's obstacle. Raises `QuantityError`.
    """
    obstacle = _unsupported_field(pod)
    where, peers = NO_NODE_CONSTRAINTS, NO_POD_CONSTRAINTS
    try:
        where, peers = node_constraints_of(pod), pod_constraints_of(pod)
    except SelectorError as error:
        obstacle = obstacle or f"spec.affinity: {error}"
    asked = {*keep, *selector_keys(peers)}
    own = _ephemeral_claims(pod)
    return PodShape(
        requests=pod_requests(pod),
        node_constraints=where,
        host_ports=_host_ports(pod),
        namespace=pod.metadata.namespace,
        labels=tuple(
            sorted(pair for pair in pod.metadata.labels.items() if pair[0] not in IDENTITY_LABELS or pair[0] in asked)
        ),
        pod_constraints=peers,
        claims=_claim_names(pod, own),
        ephemeral_claims=own,
        uid=pod.metadata.uid if own else "",
        unsupported=obstacle,
        pinned=is_gated(pod),
    )


def bound_pod_of(pod: Pod, shape: PodShape | None = None) -> BoundPod | None:
    """Who holds room: bound and not ended, or nominated. None: nobody. `shape`: what `shape_of` gave, if at hand."""
    node = pod.spec.node_name or pod.status.nominated_node_name
    if not node or pod.status.phase in _TERMINAL_PHASES:
        return None
    shape = shape_of(pod) if shape is None else shape
    # Fifty thousand residents share a few names: each is kept once.
    return BoundPod(
        uid=pod.metadata.uid,
        key=Key(intern(pod.metadata.namespace), pod.metadata.name),
        node=intern(node),
        shape=shape,
        priority=pod.spec.priority,
        terminating=pod.metadata.deletion_timestamp is not None,
        nominated=not pod.spec.node_name,
        identity_labels=identity_labels_of(pod.metadata.labels, shape),
    )


def identity_labels_of(labels: Mapping[str, str], shape: PodShape) -> tuple[tuple[str, str], ...]:
    """Labels of one pod alone, as far as its shape has left them out."""
    if IDENTITY_LABELS.isdisjoint(labels):
        return ()
    return tuple(
        (key, labels[key])
        for key in _SORTED_IDENTITY_LABELS
        if key in labels and (key, labels[key]) not in shape.labels
    )


def is_gated(pod: Pod) -> bool:
    """Whether kube-scheduler places it in the end, where we say."""
    return any(gate.name == GANG_GATE for gate in pod.spec.scheduling_gates)


def _unsupported_field(pod: Pod) -> str:
    claims = pod.spec.resource_claims
    if not claims or is_gated(pod):
        return ""
    return f"spec.resourceClaims ({claims[0].name}): only kube-scheduler gives out devices; {PINNING_HINT}"


def _host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Ports of the node that containers and sidecars take."""
    running = (
        *pod.spec.containers,
        *(each for each in pod.spec.init_containers if each.restart_policy == "Always"),
    )
    found = {
        HostPort(port.host_port, port.protocol or "TCP", "" if port.host_ip == _ALL_ADDRESSES else port.host_ip)
        for container in running
        for port in container.ports
        if port.host_port
    }
    return tuple(sorted(found, key=lambda each: (each.port, each.protocol, each.ip)))


def _claim_names(pod: Pod, own: tuple[str, ...]) -> tuple[str, ...]:
    named = (each.persistent_volume_claim for each in pod.spec.volumes)
    return tuple(sorted({*own, *(each.claim_name for each in named if each is not None)}))


def _ephemeral_claims(pod: Pod) -> tuple[str, ...]:
    """Claims that a controller makes for this pod."""
    made = (each for each in pod.spec.volumes if each.persistent_volume_claim is None)
    return tuple(sorted({f"{pod.metadata.name}-{each.name}" for each in made}))
