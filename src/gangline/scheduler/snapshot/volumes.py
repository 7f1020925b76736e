"""Volumes that tie pods to nodes: which nodes reach them, and which claims nobody can place yet."""

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from gangline.api.meta import Key
from gangline.api.scheduler_views import Claim, CSINode, CSISource, PersistentVolume, StorageClass
from gangline.api.selectors import Operator, Requirement
from gangline.scheduler.pods.decode import REMEDY
from gangline.scheduler.pods.shape import NodeTerm, Shape
from gangline.scheduler.pods.wishes import node_term
from gangline.scheduler.snapshot.node_table import Layout, Mask

_NOW: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
SELECTED: Final = "volume.kubernetes.io/selected-node"
"""The annotation of a claim that says on which node its volume is being made."""
_WAITS: Final = "WaitForFirstConsumer"
_ZONES: Final = (*_NOW, *_NOW.values())
# A node that says nothing about zones is in none, and no volume's zone keeps it out.
_ZONELESS: Final = NodeTerm(tuple(Requirement(key, Operator.DOES_NOT_EXIST) for key in _ZONES))


class Volumes:
    """Claims, volumes and storage classes. What changes says so: True."""

    def __init__(self) -> None:
        self._claims: dict[Key, Claim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._classes: dict[str, StorageClass] = {}
        # Node -> storage driver -> how many volumes of it.
        self._limits: dict[str, Mapping[str, int]] = {}

    def put_claim(self, claim: Claim) -> bool:
        key = claim.metadata.key
        before = self._claims.get(key)
        self._claims[key] = claim
        return before is None or _known(before) != _known(claim)

    def drop_claim(self, key: Key) -> bool:
        return self._claims.pop(key, None) is not None

    def put_volume(self, volume: PersistentVolume) -> bool:
        before = self._volumes.get(volume.metadata.name)
        self._volumes[volume.metadata.name] = volume
        return before is None or _looked_at(before) != _looked_at(volume)

    def drop_volume(self, name: str) -> bool:
        return self._volumes.pop(name, None) is not None

    def put_class(self, storage: StorageClass) -> bool:
        name = storage.metadata.name
        before = self._classes.get(name)
        self._classes[name] = storage
        return before is None or _rules(before) != _rules(storage)

    def drop_class(self, name: str) -> bool:
        return self._classes.pop(name, None) is not None

    def put_limits(self, node: CSINode) -> bool:
        limits = {
            driver.name: driver.allocatable.count
            for driver in node.spec.drivers
            if driver.allocatable.count is not None
        }
        before = self._limits.get(node.metadata.name, {})
        self._limits[node.metadata.name] = limits
        return before != limits

    def drop_limits(self, name: str) -> bool:
        return bool(self._limits.pop(name, None))

    @property
    def limits(self) -> Mapping[str, Mapping[str, int]]:
        """Node -> storage driver -> how many of its volumes can be attached there."""
        return self._limits

    def source(self, namespace: str, claim: str) -> CSISource | None:
        """What is attached to a node for a claim, if it is bound to a volume of a storage driver."""
        found = self._claims.get(Key(namespace, claim))
        volume = self._volumes.get(found.spec.volume_name) if found is not None else None
        return None if volume is None else volume.spec.csi

    def waiting(self, namespace: str, name: str) -> tuple[Claim, StorageClass] | None:
        """A claim that gets its volume only when its first pod is placed, with its class. None: it is no such claim."""
        claim = self._claims.get(Key(namespace, name))
        if claim is None or (claim.spec.volume_name and claim.status.phase != "Pending"):
            return None
        found = self._classes.get(claim.spec.storage_class_name or "")
        return None if found is None or found.volume_binding_mode != _WAITS else (claim, found)

    @property
    def volumes(self) -> Collection[PersistentVolume]:
        return self._volumes.values()

    def obstacle(self, shape: Shape) -> str:
        """Why no node will do, as long as its claims are as they are. Empty: nothing."""
        return next((found for name in shape.claims if (found := self._trouble(shape, name))), "")

    def alone(self, shape: Shape) -> str:
        """A claim of it that only one pod may use at a time. Empty: none."""
        for name in shape.claims:
            claim = self._claims.get(Key(shape.namespace, name))
            if claim is not None and "ReadWriteOncePod" in claim.spec.access_modes:
                return name
        return ""

    def reach(self, layout: Layout, shape: Shape) -> Mask | None:
        """Nodes from which all its volumes can be reached. None: all of them."""
        terms = [terms for name in shape.claims for terms in self._terms(shape.namespace, name)]
        if not terms:
            return None
        found = np.ones(len(layout), dtype=np.bool_)
        for each in terms:
            found &= layout.any_of(each)
        return found

    def _trouble(self, shape: Shape, name: str) -> str:
        claim = self._claims.get(Key(shape.namespace, name))
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if name in shape.own_claims and _maker(claim) != shape.uid:
            return f'persistentvolumeclaim "{name}" was not made for this pod'
        if claim.status.phase == "Lost":
            return f'persistentvolumeclaim "{name}" has lost its volume'
        # One that names a volume is bound only when the volume controller says so.
        if claim.spec.volume_name and claim.status.phase != "Pending":
            there = claim.spec.volume_name in self._volumes
            return "" if there else f'persistentvolume "{claim.spec.volume_name}" of claim "{name}" not found'
        if self.waiting(shape.namespace, name) is not None:
            return (
                ""
                if shape.pinned
                else (
                    f'persistentvolumeclaim "{name}" is bound only when kube-scheduler places its first pod'
                    f" (WaitForFirstConsumer): {REMEDY}, take a class with Immediate binding, or bind it beforehand"
                )
            )
        return f'persistentvolumeclaim "{name}" is not bound yet'

    def _terms(self, namespace: str, name: str) -> list[tuple[NodeTerm, ...]]:
        """What a node must be; of each, one of the alternatives."""
        claim = self._claims.get(Key(namespace, name))
        volume = self._volumes.get(claim.spec.volume_name) if claim is not None else None
        return [] if volume is None else [*_zones(volume.metadata.labels), *tied_to(volume)]


def tied_to(volume: PersistentVolume) -> list[tuple[NodeTerm, ...]]:
    """What its affinity wants of a node: one of the alternatives. Empty: nothing."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    return [tuple(node_term(each) for each in affinity.required.node_selector_terms)]


def _rules(storage: StorageClass) -> tuple[object, ...]:
    return storage.volume_binding_mode, storage.provisioner, storage.allowed_topologies


def _looked_at(volume: PersistentVolume) -> tuple[object, ...]:
    return volume.spec, volume.status, volume.metadata.labels, volume.metadata.deletion_timestamp


def _known(claim: Claim) -> tuple[object, ...]:
    """All that we look at."""
    selected = claim.metadata.annotations.get(SELECTED)
    return claim.spec, claim.status, claim.metadata.deletion_timestamp, selected, _maker(claim)


def _maker(claim: Claim) -> str:
    """The uid of whom it was made for."""
    owner = claim.metadata.controller
    return "" if owner is None else owner.uid


def _zones(labels: Mapping[str, str]) -> list[tuple[NodeTerm, ...]]:
    """Zones and regions of a volume; several are joined by two underscores."""
    found = []
    for key in _ZONES:
        if key in labels:
            values = tuple(sorted(labels[key].split("__")))
            names = dict.fromkeys((key, _NOW.get(key, key)))
            found.append(
                (_ZONELESS, *(NodeTerm((Requirement(name, Operator.IN, values),)) for name in names))
            )
    return found
