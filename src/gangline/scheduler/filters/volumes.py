"""Volume filters: attach limits (each volume counts once per node), and where unbound claims can get a volume."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from gangline.api.scheduler_views import CSIVolumeSource, PersistentVolume, StorageClass, VolumeClaim
from gangline.api.selectors import Requirement, SelectorError, SelectorOperator
from gangline.scheduler.pods.decode import label_selector
from gangline.scheduler.snapshot.node_table import Mask
from gangline.scheduler.snapshot.snapshot import ClusterSnapshot
from gangline.scheduler.snapshot.volumes import SELECTED_NODE, node_affinity_terms
from gangline.scheduler.types.cycle import Vector
from gangline.scheduler.types.resources import nano_units
from gangline.scheduler.types.shape import NodeTerm, PodShape


def attachable_nodes(snapshot: ClusterSnapshot, shape: PodShape) -> Mask | None:
    """Nodes that can attach all volumes of the pod beside those already attached. None: all nodes."""
    sources = _csi_sources(snapshot, shape)
    if not sources or not snapshot.volumes.attach_limits:
        return None
    attached = _attached_sources(snapshot)
    mask = np.ones(len(snapshot.nodes), dtype=np.bool_)
    for name, limits in snapshot.volumes.attach_limits.items():
        number = snapshot.nodes.index_of.get(name)
        if number is not None:
            mask[number] = _within_limits(sources, attached.get(number, set()), limits)
    return mask


def _within_limits(sources: set[CSIVolumeSource], attached: set[CSIVolumeSource], limits: Mapping[str, int]) -> bool:
    return all(
        sum(source.driver == driver for source in sources | attached) <= limits[driver]
        for driver in {source.driver for source in sources - attached}
        if driver in limits
    )


def _attached_sources(snapshot: ClusterSnapshot) -> dict[int, set[CSIVolumeSource]]:
    """The CSI volumes attached to every node, by its number."""
    attached: dict[int, set[CSIVolumeSource]] = {}
    for (namespace, claim), users in snapshot.pods.claim_users.items():
        source = snapshot.volumes.csi_source(namespace, claim)
        if source is not None:
            for pod in users.values():
                if pod.uid not in snapshot.removed_uids and pod.node in snapshot.nodes.index_of:
                    attached.setdefault(snapshot.nodes.index_of[pod.node], set()).add(source)
    for assumed in snapshot.assumed:
        sources = _csi_sources(snapshot, assumed.shape)
        for number in np.unique(assumed.nodes).tolist() if sources else ():
            attached.setdefault(number, set()).update(sources)
    return attached


def _csi_sources(snapshot: ClusterSnapshot, shape: PodShape) -> set[CSIVolumeSource]:
    sources = (snapshot.volumes.csi_source(shape.namespace, claim) for claim in shape.claims)
    return {source for source in sources if source is not None}


NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""Storage classes with this provisioner have only volumes that were created beforehand."""


def provisionable_nodes(snapshot: ClusterSnapshot, shape: PodShape) -> Mask | None:
    """Nodes where all claims that wait for their first pod can get a volume. None: all nodes."""
    allowed: Mask | None = None
    for name in shape.claims:
        unbound = snapshot.volumes.unbound_claim(shape.namespace, name)
        mask = None if unbound is None else _nodes_for_claim(snapshot, *unbound)
        if mask is not None:
            allowed = mask if allowed is None else allowed & mask
    return allowed


def _nodes_for_claim(snapshot: ClusterSnapshot, claim: VolumeClaim, storage_class: StorageClass) -> Mask | None:
    nodes, selected = snapshot.nodes, claim.metadata.annotations.get(SELECTED_NODE)
    if selected:
        return np.array([name == selected for name in nodes.names], dtype=np.bool_)
    can_provision = storage_class.provisioner != NO_PROVISIONER
    if can_provision and not storage_class.allowed_topologies:
        return None
    terms = [
        NodeTerm(
            tuple(Requirement(each.key, SelectorOperator.IN, each.values) for each in term.match_label_expressions)
        )
        for term in storage_class.allowed_topologies
    ]
    provisioned = nodes.any_term_mask(terms if can_provision else ())
    return provisioned | (_available_volumes(snapshot, claim) > _pending_claims(snapshot, claim))


def _available_volumes(snapshot: ClusterSnapshot, claim: VolumeClaim) -> Vector:
    """How many volumes every node reaches that match the claim."""
    counts = np.zeros(len(snapshot.nodes), dtype=np.int64)
    for volume in snapshot.volumes.volumes.objects.values():
        if _matches_claim(volume, claim):
            terms = node_affinity_terms(volume)
            counts += snapshot.nodes.any_term_mask(terms[0]) if terms else 1
    return counts


def _pending_claims(snapshot: ClusterSnapshot, claim: VolumeClaim) -> Vector:
    """How many claims of the same class wait on every node: each takes a volume there."""
    claims_by_node: set[tuple[int, tuple[str, str]]] = set()
    for number, key in _claims_in_use(snapshot):
        other = snapshot.volumes.unbound_claim(*key)
        if (
            other is not None
            and key != claim.metadata.key
            and other[0].spec.storage_class_name == claim.spec.storage_class_name
        ):
            claims_by_node.add((number, key))
    numbers = np.array([number for number, _ in claims_by_node], dtype=np.int64)
    return np.bincount(numbers, minlength=len(snapshot.nodes)).astype(np.int64)


def _claims_in_use(snapshot: ClusterSnapshot) -> Iterator[tuple[int, tuple[str, str]]]:
    """Every claim in use, with the number of a node where it is used."""
    for key, users in snapshot.pods.claim_users.items():
        for pod in users.values():
            if pod.uid not in snapshot.removed_uids and pod.node in snapshot.nodes.index_of:
                yield snapshot.nodes.index_of[pod.node], key
    for assumed in snapshot.assumed:
        for name in assumed.shape.claims:
            for number in assumed.nodes.tolist():
                yield number, (assumed.shape.namespace, name)


def _matches_claim(volume: PersistentVolume, claim: VolumeClaim) -> bool:
    """Whether the volume is available, or reserved for this claim, and satisfies it."""
    spec, claim_spec = volume.spec, claim.spec
    claim_ref = spec.claim_ref
    if claim_ref is None:
        free = volume.status.phase == "Available"
    else:
        free = (claim_ref.namespace, claim_ref.name) == claim.metadata.key
    size = claim_spec.resources.requests.get("storage", "0")
    return (
        free
        and volume.metadata.deletion_timestamp is None
        and spec.storage_class_name == claim_spec.storage_class_name
        and spec.volume_mode == claim_spec.volume_mode
        and set(spec.access_modes).issuperset(claim_spec.access_modes)
        and nano_units(spec.capacity.get("storage", "0")) >= nano_units(size)
        and _selector_matches(volume, claim)
    )


def _selector_matches(volume: PersistentVolume, claim: VolumeClaim) -> bool:
    try:
        return claim.spec.selector is None or label_selector(claim.spec.selector).matches(volume.metadata.labels)
    except SelectorError:
        return False
