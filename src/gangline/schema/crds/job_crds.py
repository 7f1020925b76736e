"""The custom resource definitions of the six kinds: schemas from our structs, pod templates as Kubernetes has them.

No webhook is needed: what can be wrong with a job is said in the schema, as bounds or as CEL rules.
"""

from collections.abc import Iterator

import msgspec

from gangline.api.kubeflow.kinds import MPIJOB, TRAINING_KINDS
from gangline.api.kubeflow.training import TRAINING_JOBS_CATEGORY, JobKind, JobStatus
from gangline.api.meta import JSON
from gangline.schema.crds import cel_rules, pod_schemas
from gangline.schema.crds.descriptions import (
    FIELD_DESCRIPTIONS,
    KIND_DESCRIPTION,
    SPEC_DESCRIPTION,
    STATUS_DESCRIPTION,
)
from gangline.schema.crds.fields import field_keywords
from gangline.schema.crds.struct_schemas import StructSchemaWriter

_VALIDATIONS_KEYWORD = "x-kubernetes-validations"


def crds(*, described: bool = False) -> tuple[JSON, ...]:
    """The definitions of all kinds. See `crd`."""
    return tuple(crd(kind, described=described) for kind in TRAINING_KINDS)


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
                "categories": [TRAINING_JOBS_CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": list(_printer_columns(kind)),
                    "schema": {"openAPIV3Schema": _deep_copy(crd_schema(kind, described=described))},
                    "subresources": _subresources(kind),
                }
            ],
        },
    }


def crd_schema(kind: JobKind, *, described: bool = False) -> JSON:
    """The structural schema of a kind. Parts that are alike are one object: copy it before changing it."""
    structs = StructSchemaWriter(field_keywords(kind, described=described), FIELD_DESCRIPTIONS if described else {})
    spec, status = _spec_schema(kind, structs), _status_schema(structs, described=described)
    if described:
        spec, status = (
            {"description": SPEC_DESCRIPTION, **spec},
            {"description": STATUS_DESCRIPTION, **status},
        )
    return {
        **({"description": KIND_DESCRIPTION} if described else {}),
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            # Named, so that rules can point at it.
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": spec,
            "status": status,
        },
        _VALIDATIONS_KEYWORD: cel_rules.job_rules(kind),
    }


def _spec_schema(kind: JobKind, structs: StructSchemaWriter) -> JSON:
    spec = structs.struct_schema(kind.model.__annotations__["spec"])
    if between := cel_rules.spec_rules(kind):
        spec[_VALIDATIONS_KEYWORD] = between
    properties = spec["properties"]
    properties["runPolicy"] |= {"default": {}, _VALIDATIONS_KEYWORD: cel_rules.run_policy_rules()}
    replicas = properties[kind.replicas]
    replicas["additionalProperties"]["required"] = ["template"]
    replicas |= {
        "maxProperties": cel_rules.MAX_REPLICA_TYPES,
        _VALIDATIONS_KEYWORD: cel_rules.replica_specs_rules(kind),
    }
    if "elasticPolicy" in properties:
        properties["elasticPolicy"][_VALIDATIONS_KEYWORD] = cel_rules.elastic_policy_rules()
    return spec


def _status_schema(structs: StructSchemaWriter, *, described: bool) -> JSON:
    status = structs.struct_schema(JobStatus)
    counts = status["properties"]["replicaStatuses"]["additionalProperties"]["properties"]
    # Deprecated in v1 and never written; named, so that nothing that was ever stored is dropped.
    counts["labelSelector"] = pod_schemas.definition_schema(pod_schemas.LABEL_SELECTOR, described=described)
    return status


def _deep_copy(value: JSON) -> JSON:
    found: JSON = msgspec.json.decode(msgspec.json.encode(value))
    return found


def _printer_columns(kind: JobKind) -> Iterator[JSON]:
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
