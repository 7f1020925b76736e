"""What a handover took away, so that it can be put back: kept in ConfigMaps beside our operator. Pure.

Every object has a ConfigMap of its own, compressed: a CRD of the Kubeflow operator has 0.6 MB, a ConfigMap at most 1.
"""

import base64
import gzip
from collections.abc import Iterable, Sequence

import msgspec

from gangline.api.meta import JSON
from gangline.cli.install.record import HANDOVER_NAME, PART_OF, PART_OF_LABEL, ObjectRef, object_ref

COMPONENT_LABEL, COMPONENT = "app.kubernetes.io/component", "handover"
HANDOVER_SELECTOR = f"{PART_OF_LABEL}={PART_OF},{COMPONENT_LABEL}={COMPONENT}"
_FIELD = "object.json.gz"


class StoppedDeployment(msgspec.Struct, frozen=True):
    """A Deployment of the other operator, and how many replicas it had."""

    namespace: str
    name: str
    replicas: int


class HandoverRecord(msgspec.Struct, frozen=True):
    """What is to be put back: the Deployments by their replicas, webhook configurations and CRDs as they were."""

    deployments: tuple[StoppedDeployment, ...] = ()
    objects: tuple[JSON, ...] = ()

    @property
    def refs(self) -> tuple[ObjectRef, ...]:
        return tuple(object_ref(body) for body in self.objects)


def record_bodies(record: HandoverRecord, namespace: str) -> list[JSON]:
    """The ConfigMaps of a record. The one with the Deployments comes last: where it is, all others are."""
    bodies = [
        _config_map(
            f"{HANDOVER_NAME}-{_short_name(object_ref(body))}", namespace, {"binaryData": {_FIELD: _packed(body)}}
        )
        for body in record.objects
    ]
    deployments = msgspec.json.encode(record.deployments).decode()
    return [*bodies, _config_map(HANDOVER_NAME, namespace, {"data": {"deployments": deployments}})]


def read_handover(bodies: Iterable[JSON]) -> HandoverRecord | None:
    """The record in the ConfigMaps of a namespace; None if there is none, or only a part of one."""
    maps = {body["metadata"]["name"]: body for body in bodies}
    main = maps.pop(HANDOVER_NAME, None)
    if main is None:
        return None
    deployments = msgspec.json.decode(main["data"]["deployments"], type=tuple[StoppedDeployment, ...])
    return HandoverRecord(deployments, tuple(_unpacked(maps[name]) for name in sorted(maps)))


def with_earlier(record: HandoverRecord, earlier: HandoverRecord | None) -> HandoverRecord:
    """A record in which what an earlier attempt recorded wins: that attempt may have changed it since."""
    if earlier is None:
        return record
    known = {(item.namespace, item.name) for item in earlier.deployments}
    deployments = [item for item in record.deployments if (item.namespace, item.name) not in known]
    objects = [body for body in record.objects if object_ref(body) not in earlier.refs]
    return HandoverRecord((*earlier.deployments, *deployments), (*earlier.objects, *objects))


def _short_name(ref: ObjectRef) -> str:
    return f"{'crd' if ref.kind == 'CustomResourceDefinition' else ref.kind.lower()}-{ref.name}"


def _config_map(name: str, namespace: str, content: JSON) -> JSON:
    labels = {PART_OF_LABEL: PART_OF, COMPONENT_LABEL: COMPONENT}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}


def _packed(body: JSON) -> str:
    # Without a time in it, so that the same object gives the same bytes.
    return base64.b64encode(gzip.compress(msgspec.json.encode(body, order="sorted"), mtime=0)).decode()


def _unpacked(config_map: JSON) -> JSON:
    content: JSON = msgspec.json.decode(gzip.decompress(base64.b64decode(config_map["binaryData"][_FIELD])))
    return content


def map_refs(bodies: Sequence[JSON]) -> tuple[ObjectRef, ...]:
    """The ConfigMaps themselves."""
    return tuple(object_ref({"apiVersion": "v1", "kind": "ConfigMap", **body}) for body in bodies)
