"""How many volumes a node can have attached: every volume once, however many pods use it there."""

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
    """Nodes to which all its volumes can be attached beside those that are there. None: all of them."""
    wanted = _csi_sources(snapshot, shape)
    if not wanted or not snapshot.volumes.attach_limits:
        return None
    attached = _attached_sources(snapshot)
    found = np.ones(len(snapshot.nodes), dtype=np.bool_)
    for name, limits in snapshot.volumes.attach_limits.items():
        number = snapshot.nodes.index_of.get(name)
        if number is not None:
            found[number] = _within_limits(wanted, attached.get(number, set()), limits)
    return found


def _within_limits(wanted: set[CSIVolumeSource], there: set[CSIVolumeSource], limits: Mapping[str, int]) -> bool:
    return all(
        sum(each.driver == driver for each in wanted | there) <= limits[driver]
        for driver in {each.driver for each in wanted - there}
        if driver in limits
    )


def _attached_sources(snapshot: ClusterSnapshot) -> dict[int, set[CSIVolumeSource]]:
    """What is attached to every node, by its number."""
    found: dict[int, set[CSIVolumeSource]] = {}
    for (namespace, claim), users in snapshot.pods.claim_users.items():
        source = snapshot.volumes.csi_source(namespace, claim)
        if source is not None:
            for each in users.values():
                if each.uid not in snapshot.removed_uids and each.node in snapshot.nodes.index_of:
                    found.setdefault(snapshot.nodes.index_of[each.node], set()).add(source)
    for assumed in snapshot.assumed:
        sources = _csi_sources(snapshot, assumed.shape)
        for number in np.unique(assumed.nodes).tolist() if sources else ():
            found.setdefault(number, set()).update(sources)
    return found


def _csi_sources(snapshot: ClusterSnapshot, shape: PodShape) -> set[CSIVolumeSource]:
    found = (snapshot.volumes.csi_source(shape.namespace, claim) for claim in shape.claims)
    return {each for each in found if each is not None}


NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""Of this class there are only volumes that somebody has made beforehand."""


def provisionable_nodes(snapshot: ClusterSnapshot, shape: PodShape) -> Mask | None:
    """Nodes where all its claims that wait for their first pod get a volume. None: all of them."""
    found: Mask | None = None
    for name in shape.claims:
        waiting = snapshot.volumes.unbound_claim(shape.namespace, name)
        mask = None if waiting is None else _nodes_for_claim(snapshot, *waiting)
        if mask is not None:
            found = mask if found is None else found & mask
    return found


def _nodes_for_claim(snapshot: ClusterSnapshot, claim: VolumeClaim, storage_class: StorageClass) -> Mask | None:
    nodes, selected = snapshot.nodes, claim.metadata.annotations.get(SELECTED_NODE)
    if selected:
        return np.array([name == selected for name in nodes.names], dtype=np.bool_)
    makes = storage_class.provisioner != NO_PROVISIONER
    if makes and not storage_class.allowed_topologies:
        return None
    terms = [
        NodeTerm(
            tuple(Requirement(each.key, SelectorOperator.IN, each.values) for each in term.match_label_expressions)
        )
        for term in storage_class.allowed_topologies
    ]
    made = nodes.any_term_mask(terms if makes else ())
    return made | (_available_volumes(snapshot, claim) > _pending_claims(snapshot, claim))


def _available_volumes(snapshot: ClusterSnapshot, claim: VolumeClaim) -> Vector:
    """How many volumes every node reaches that would do for the claim."""
    found = np.zeros(len(snapshot.nodes), dtype=np.int64)
    for volume in snapshot.volumes.volumes.objects.values():
        if _matches_claim(volume, claim):
            terms = node_affinity_terms(volume)
            found += snapshot.nodes.any_term_mask(terms[0]) if terms else 1
    return found


def _pending_claims(snapshot: ClusterSnapshot, claim: VolumeClaim) -> Vector:
    """How many claims of the same class wait on every node: each takes a volume there."""
    waiting: set[tuple[int, tuple[str, str]]] = set()
    for number, key in _claims_in_use(snapshot):
        other = snapshot.volumes.unbound_claim(*key)
        if (
            other is not None
            and key != claim.metadata.key
            and other[0].spec.storage_class_name == claim.spec.storage_class_name
        ):
            waiting.add((number, key))
    numbers = np.array([number for number, _ in waiting], dtype=np.int64)
    return np.bincount(numbers, minlength=len(snapshot.nodes)).astype(np.int64)


def _claims_in_use(snapshot: ClusterSnapshot) -> Iterator[tuple[int, tuple[str, str]]]:
    """Claims in use, with the number of a node on which they are."""
    for key, users in snapshot.pods.claim_users.items():
        for each in users.values():
            if each.uid not in snapshot.removed_uids and each.node in snapshot.nodes.index_of:
                yield snapshot.nodes.index_of[each.node], key
    for assumed in snapshot.assumed:
        for name in assumed.shape.claims:
            for number in assumed.nodes.tolist():
                yield number, (assumed.shape.namespace, name)


def _matches_claim(volume: PersistentVolume, claim: VolumeClaim) -> bool:
    """Whether the volume is free, or meant for this claim, and is what it asks for."""
    spec, wanted = volume.spec, claim.spec
    meant = spec.claim_ref
    free = volume.status.phase == "Available" if meant is None else (meant.namespace, meant.name) == claim.metadata.key
    asked = wanted.resources.requests.get("storage", "0")
    return (
        free
        and volume.metadata.deletion_timestamp is None
        and spec.storage_class_name == wanted.storage_class_name
        and spec.volume_mode == wanted.volume_mode
        and set(spec.access_modes).issuperset(wanted.access_modes)
        and nano_units(spec.capacity.get("storage", "0")) >= nano_units(asked)
        and _selector_matches(volume, claim)
    )


def _selector_matches(volume: PersistentVolume, claim: VolumeClaim) -> bool:
    try:
        return claim.spec.selector is None or label_selector(claim.spec.selector).matches(volume.metadata.labels)
    except SelectorError:
        return False
