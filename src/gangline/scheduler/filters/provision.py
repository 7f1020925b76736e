"""Claims that get their volume when their first pod is placed: on which nodes there is one for them, or one can be made.

kube-scheduler finds or orders the volume. But a pod that we tell where to go must be told a node where it can.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from gangline.api.scheduler_views import Claim, PersistentVolume, StorageClass
from gangline.api.selectors import Operator, Requirement, SelectorError
from gangline.scheduler.pods.shape import NodeTerm, Shape
from gangline.scheduler.pods.wishes import plain
from gangline.scheduler.snapshot.node_table import Mask
from gangline.scheduler.snapshot.snapshot import Board
from gangline.scheduler.snapshot.volumes import SELECTED, tied_to
from gangline.scheduler.types.cycle import Vector
from gangline.scheduler.types.resources import nanos

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""Of this class there are only volumes that somebody has made beforehand."""


def provided(board: Board, shape: Shape) -> Mask | None:
    """Nodes where all its claims that wait for their first pod get a volume. None: all of them."""
    found: Mask | None = None
    for name in shape.claims:
        waiting = board.volumes.waiting(shape.namespace, name)
        mask = None if waiting is None else _for(board, *waiting)
        if mask is not None:
            found = mask if found is None else found & mask
    return found


def _for(board: Board, claim: Claim, storage: StorageClass) -> Mask | None:
    layout, selected = board.layout, claim.metadata.annotations.get(SELECTED)
    if selected:
        return np.array([name == selected for name in layout.names], dtype=np.bool_)
    makes = storage.provisioner != NO_PROVISIONER
    if makes and not storage.allowed_topologies:
        return None
    terms = [
        NodeTerm(
            tuple(Requirement(each.key, Operator.IN, each.values) for each in term.match_label_expressions)
        )
        for term in storage.allowed_topologies
    ]
    made = layout.any_of(terms if makes else ())
    return made | (_there(board, claim) > _promised(board, claim))


def _there(board: Board, claim: Claim) -> Vector:
    """How many volumes every node reaches that would do for the claim."""
    found = np.zeros(len(board.layout), dtype=np.int64)
    for volume in board.volumes.volumes:
        if _suits(volume, claim):
            terms = tied_to(volume)
            found += board.layout.any_of(terms[0]) if terms else 1
    return found


def _promised(board: Board, claim: Claim) -> Vector:
    """How many claims of the same class wait on every node: each takes a volume there."""
    waiting: set[tuple[int, tuple[str, str]]] = set()
    for number, key in _users(board):
        other = board.volumes.waiting(*key)
        if (
            other is not None
            and key != claim.metadata.key
            and other[0].spec.storage_class_name == claim.spec.storage_class_name
        ):
            waiting.add((number, key))
    numbers = np.array([number for number, _ in waiting], dtype=np.int64)
    return np.bincount(numbers, minlength=len(board.layout)).astype(np.int64)


def _users(board: Board) -> Iterator[tuple[int, tuple[str, str]]]:
    """Claims in use, with the number of a node on which they are."""
    for key, users in board.population.claims.items():
        for each in users.values():
            if each.uid not in board.gone and each.node in board.layout.number:
                yield board.layout.number[each.node], key
    for came in board.came:
        for name in came.shape.claims:
            for number in came.nodes.tolist():
                yield number, (came.shape.namespace, name)


def _suits(volume: PersistentVolume, claim: Claim) -> bool:
    """Whether the volume is free, or meant for this claim, and is what it asks for."""
    spec, wanted = volume.spec, claim.spec
    meant = spec.claim_ref
    free = (
        volume.status.phase == "Available"
        if meant is None
        else (meant.namespace, meant.name) == claim.metadata.key
    )
    asked = wanted.resources.requests.get("storage", "0")
    return (
        free
        and volume.metadata.deletion_timestamp is None
        and spec.storage_class_name == wanted.storage_class_name
        and spec.volume_mode == wanted.volume_mode
        and set(spec.access_modes).issuperset(wanted.access_modes)
        and nanos(spec.capacity.get("storage", "0")) >= nanos(asked)
        and _selected(volume, claim)
    )


def _selected(volume: PersistentVolume, claim: Claim) -> bool:
    try:
        return claim.spec.selector is None or plain(claim.spec.selector).matches(volume.metadata.labels)
    except SelectorError:
        return False
