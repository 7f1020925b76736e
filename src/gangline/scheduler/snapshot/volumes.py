"""Persistent volumes: which nodes reach them, and which claims cannot be used yet."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from gangline.api.meta import Key
from gangline.api.scheduler_views import CSINode, CSIVolumeSource, PersistentVolume, StorageClass, VolumeClaim
from gangline.api.selectors import Requirement, SelectorOperator
from gangline.scheduler.pods.decode import PINNING_HINT, node_term
from gangline.scheduler.snapshot.node_table import Mask, NodeTable
from gangline.scheduler.types.shape import NodeTerm, PodShape
from gangline.scheduler.types.tracked import TrackedObjects, key_of, name_of

_CURRENT_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation of a claim that names the node for which its volume is being provisioned."""
_WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
_TOPOLOGY_LABELS: Final = (*_CURRENT_LABELS, *_CURRENT_LABELS.values())
# A node without zone and region labels is in none, and no volume's zone excludes it.
_NO_TOPOLOGY: Final = NodeTerm(tuple(Requirement(key, SelectorOperator.DOES_NOT_EXIST) for key in _TOPOLOGY_LABELS))


class VolumeCache:
    """Claims, volumes, storage classes, and how many volumes each node can attach."""

    def __init__(self) -> None:
        self.claims = TrackedObjects[Key, VolumeClaim, tuple[object, ...]](key_of, _claim_fields)
        self.volumes = TrackedObjects[str, PersistentVolume, tuple[object, ...]](name_of, _volume_fields)
        self.storage_classes = TrackedObjects[str, StorageClass, tuple[object, ...]](name_of, _class_fields)
        # The fields are the attach limits: storage driver -> number of volumes.
        self.csi_nodes = TrackedObjects[str, CSINode, dict[str, int]](name_of, _attach_limits, absent={})

    @property
    def version(self) -> int:
        """Grows with every change that may matter to a decision."""
        return self.claims.version + self.volumes.version + self.storage_classes.version + self.csi_nodes.version

    @property
    def attach_limits(self) -> Mapping[str, Mapping[str, int]]:
        """Node -> storage driver -> how many of its volumes can be attached to the node."""
        return self.csi_nodes.fields

    def csi_source(self, namespace: str, claim: str) -> CSIVolumeSource | None:
        """The CSI volume source that a node attaches for a claim; None if the claim is not bound to a CSI volume."""
        bound_claim = self.claims.objects.get(Key(namespace, claim))
        volume = self.volumes.objects.get(bound_claim.spec.volume_name) if bound_claim is not None else None
        return None if volume is None else volume.spec.csi

    def unbound_claim(self, namespace: str, name: str) -> tuple[VolumeClaim, StorageClass] | None:
        """A claim that is bound only when its first pod is placed, with its storage class; None for all other claims."""
        claim = self.claims.objects.get(Key(namespace, name))
        if claim is None or (claim.spec.volume_name and claim.status.phase != "Pending"):
            return None
        storage_class = self.storage_classes.objects.get(claim.spec.storage_class_name or "")
        return (
            None
            if storage_class is None or storage_class.volume_binding_mode != _WAIT_FOR_FIRST_CONSUMER
            else (claim, storage_class)
        )

    def claim_problem(self, shape: PodShape) -> str:
        """Why no node can run the pod while its claims are as they are; empty if nothing prevents it."""
        return next((problem for name in shape.claims if (problem := self._problem_of(shape, name))), "")

    def exclusive_claim(self, shape: PodShape) -> str:
        """The first claim that only one pod may use at a time (ReadWriteOncePod); empty if there is none."""
        for name in shape.claims:
            claim = self.claims.objects.get(Key(shape.namespace, name))
            if claim is not None and "ReadWriteOncePod" in claim.spec.access_modes:
                return name
        return ""

    def reachable_nodes(self, nodes: NodeTable, shape: PodShape) -> Mask | None:
        """Nodes from which all volumes of the pod can be reached. None: all nodes."""
        terms = [terms for name in shape.claims for terms in self._node_terms(shape.namespace, name)]
        if not terms:
            return None
        mask = np.ones(len(nodes), dtype=np.bool_)
        for alternatives in terms:
            mask &= nodes.any_term_mask(alternatives)
        return mask

    def _problem_of(self, shape: PodShape, name: str) -> str:
        claim = self.claims.objects.get(Key(shape.namespace, name))
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if name in shape.ephemeral_claims and _owner_uid(claim) != shape.uid:
            return f'persistentvolumeclaim "{name}" was not made for this pod'
        if claim.status.phase == "Lost":
            return f'persistentvolumeclaim "{name}" has lost its volume'
        # A claim that names a volume is bound only when the volume controller says so.
        if claim.spec.volume_name and claim.status.phase != "Pending":
            exists = claim.spec.volume_name in self.volumes.objects
            return "" if exists else f'persistentvolume "{claim.spec.volume_name}" of claim "{name}" not found'
        if self.unbound_claim(shape.namespace, name) is not None:
            return (
                ""
                if shape.pinned
                else (
                    f'persistentvolumeclaim "{name}" is bound only when kube-scheduler places its first pod'
                    f" (WaitForFirstConsumer): {PINNING_HINT}, take a class with Immediate binding, or bind it beforehand"
                )
            )
        return f'persistentvolumeclaim "{name}" is not bound yet'

    def _node_terms(self, namespace: str, name: str) -> list[tuple[NodeTerm, ...]]:
        """Lists of node terms; a node must match one term of each list."""
        claim = self.claims.objects.get(Key(namespace, name))
        volume = self.volumes.objects.get(claim.spec.volume_name) if claim is not None else None
        return [] if volume is None else [*_topology_terms(volume.metadata.labels), *node_affinity_terms(volume)]


def node_affinity_terms(volume: PersistentVolume) -> list[tuple[NodeTerm, ...]]:
    """The terms of the volume's node affinity, one of which must match; empty if it has none."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    return [tuple(node_term(each) for each in affinity.required.node_selector_terms)]


def _attach_limits(node: CSINode) -> dict[str, int]:
    return {
        driver.name: driver.allocatable.count for driver in node.spec.drivers if driver.allocatable.count is not None
    }


def _class_fields(storage_class: StorageClass) -> tuple[object, ...]:
    return storage_class.volume_binding_mode, storage_class.provisioner, storage_class.allowed_topologies


def _volume_fields(volume: PersistentVolume) -> tuple[object, ...]:
    return volume.spec, volume.status, volume.metadata.labels, volume.metadata.deletion_timestamp


def _claim_fields(claim: VolumeClaim) -> tuple[object, ...]:
    """The fields of a claim that scheduling reads."""
    selected = claim.metadata.annotations.get(SELECTED_NODE)
    return claim.spec, claim.status, claim.metadata.deletion_timestamp, selected, _owner_uid(claim)


def _owner_uid(claim: VolumeClaim) -> str:
    """The uid of the pod for which the claim was created; empty if it has no owner."""
    owner = claim.metadata.controller
    return "" if owner is None else owner.uid


def _topology_terms(labels: Mapping[str, str]) -> list[tuple[NodeTerm, ...]]:
    """Node terms for the zone and region labels of a volume; several values are joined by two underscores."""
    terms = []
    for key in _TOPOLOGY_LABELS:
        if key in labels:
            values = tuple(sorted(labels[key].split("__")))
            names = dict.fromkeys((key, _CURRENT_LABELS.get(key, key)))
            terms.append(
                (_NO_TOPOLOGY, *(NodeTerm((Requirement(name, SelectorOperator.IN, values),)) for name in names))
            )
    return terms
