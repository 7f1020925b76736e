"""The custom resource definitions of the six kinds: schemas from our structs, pod templates as Kubernetes has them.

No webhook is needed: what can be wrong with a job is said in the schema, as bounds or as CEL rules.
"""

from collections.abc import Iterator

import msgspec

from gangline.api.kubeflow.kinds import KINDS
from gangline.api.kubeflow.mpijob import MPIJOB
from gangline.api.kubeflow.training import CATEGORY, JobKind, JobStatus
from gangline.api.meta import JSON
from gangline.schema.crds import cel_rules, pod_schemas
from gangline.schema.crds.descriptions import KIND, SPEC, STATUS, WORDS
from gangline.schema.crds.fields import fields
from gangline.schema.crds.struct_schemas import Structs

_VALIDATIONS = "x-kubernetes-validations"


def crds(*, described: bool = False) -> tuple[JSON, ...]:
    """The definitions of all kinds. See `crd`."""
    return tuple(crd(kind, described=described) for kind in KINDS)


def crd(kind: JobKind, *, described: bool = False) -> JSON:
    """The definition of one kind, to send to any API server from 1.30 on.

    Small enough for `kubectl apply`, unless `described`: descriptions are most of the size, and such a definition
    needs `kubectl apply --server-side`.
    """
    resource = kind.resource
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "categories": [CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": list(_columns(kind)),
                    "schema": {"openAPIV3Schema": _copied(schema(kind, described=described))},
                    "subresources": _subresources(kind),
                }
            ],
        },
    }


def schema(kind: JobKind, *, described: bool = False) -> JSON:
    """The structural schema of a kind. Parts that are alike are one object: copy it before changing it."""
    structs = Structs(fields(kind, described=described), WORDS if described else {})
    spec, status = _spec(kind, structs), _status(structs, described=described)
    if described:
        spec, status = {"description": SPEC, **spec}, {"description": STATUS, **status}
    return {
        **({"description": KIND} if described else {}),
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            # Named, so that rules can point at it.
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": spec,
            "status": status,
        },
        _VALIDATIONS: cel_rules.of_job(kind),
    }


def _spec(kind: JobKind, structs: Structs) -> JSON:
    spec = structs.schema(kind.model.__annotations__["spec"])
    if between := cel_rules.of_spec(kind):
        spec[_VALIDATIONS] = between
    properties = spec["properties"]
    properties["runPolicy"] |= {"default": {}, _VALIDATIONS: cel_rules.of_run_policy()}
    replicas = properties[kind.replicas]
    replicas["additionalProperties"]["required"] = ["template"]
    replicas |= {"maxProperties": cel_rules.MOST_TYPES, _VALIDATIONS: cel_rules.of_replica_specs(kind)}
    if "elasticPolicy" in properties:
        properties["elasticPolicy"][_VALIDATIONS] = cel_rules.of_elastic_policy()
    return spec


def _status(structs: Structs, *, described: bool) -> JSON:
    status = structs.schema(JobStatus)
    counts = status["properties"]["replicaStatuses"]["additionalProperties"]["properties"]
    # Deprecated in v1 and never written; named, so that nothing that was ever stored is dropped.
    counts["labelSelector"] = pod_schemas.schema_of(pod_schemas.LABEL_SELECTOR, described=described)
    return status


def _copied(value: JSON) -> JSON:
    found: JSON = msgspec.json.decode(msgspec.json.encode(value))
    return found


def _columns(kind: JobKind) -> Iterator[JSON]:
    state = {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    yield from (age, state) if kind is MPIJOB else (state, age)
    yield {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "priority": 1}
    yield {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts", "priority": 1}


def _subresources(kind: JobKind) -> JSON:
    if not kind.scalable:
        return {"status": {}}
    workers = ".status.replicaStatuses.Worker"
    scale = {
        "specReplicasPath": f".spec.{kind.replicas}.Worker.replicas",
        "statusReplicasPath": f"{workers}.active",
        "labelSelectorPath": f"{workers}.selector",
    }
    return {"status": {}, "scale": scale}
