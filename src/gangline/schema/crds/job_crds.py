"""The custom resource definitions of the six job kinds: schemas of our structs, with pod templates of Kubernetes.

No webhook is needed: all validation is in the schema, as bounds or CEL rules.
"""

from collections.abc import Iterator

from gangline.api.kubeflow.kinds import MPIJOB, MPIJOB_V2, TRAINING_KINDS
from gangline.api.kubeflow.training import TRAINING_JOBS_CATEGORY, JobKind, JobStatus
from gangline.api.meta import JSON
from gangline.schema.crds import cel_rules, pod_schemas
from gangline.schema.crds.descriptions import FIELD_DESCRIPTIONS, KIND_DESCRIPTION, SPEC_DESCRIPTION, STATUS_DESCRIPTION
from gangline.schema.crds.fields import field_keywords
from gangline.schema.crds.struct_schemas import StructSchemaWriter, crd_document, crd_version

_VALIDATIONS_KEYWORD = "x-kubernetes-validations"


def crds(*, described: bool = False) -> tuple[JSON, ...]:
    """The definitions of all kinds. See `crd`."""
    return tuple(crd(kind, described=described) for kind in TRAINING_KINDS)


def crd(kind: JobKind, *, described: bool = False) -> JSON:
    """The definition of one kind, for any API server from 1.30 on.

    It is small enough for `kubectl apply`, unless `described`: descriptions are most of the size, and such a definition
    needs `kubectl apply --server-side`.
    """
    versions = [
        crd_version(
            one.resource.version,
            list(_printer_columns(one)),
            crd_schema(one, described=described),
            _subresources(one),
            storage=index == 0,
        )
        for index, one in enumerate(_apis(kind))
    ]
    return crd_document(kind.resource, {"categories": [TRAINING_JOBS_CATEGORY]}, versions)


def _apis(kind: JobKind) -> tuple[JobKind, ...]:
    """All APIs of a kind, as which its objects are stored first: they share a definition (ADR 0033)."""
    return (MPIJOB, MPIJOB_V2) if kind in (MPIJOB, MPIJOB_V2) else (kind,)


def crd_schema(kind: JobKind, *, described: bool = False) -> JSON:
    """The structural schema of a kind. Equal parts are one object: copy it before changing it."""
    structs = StructSchemaWriter(field_keywords(kind, described=described), FIELD_DESCRIPTIONS if described else {})
    spec, status = _spec_schema(kind, structs), _status_schema(structs, described=described)
    if described:
        spec, status = ({"description": SPEC_DESCRIPTION, **spec}, {"description": STATUS_DESCRIPTION, **status})
    return {
        **({"description": KIND_DESCRIPTION} if described else {}),
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            # Named, so that rules can refer to it.
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
    # Deprecated in v1 and never written; named, so that a stored value is not pruned.
    counts["labelSelector"] = pod_schemas.definition_schema(pod_schemas.LABEL_SELECTOR, described=described)
    return status


def _printer_columns(kind: JobKind) -> Iterator[JSON]:
    state = {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}
    age = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    yield from (age, state) if kind in (MPIJOB, MPIJOB_V2) else (state, age)
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
