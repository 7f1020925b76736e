"""Rules of jobs beyond the types of their fields, as CEL that every API server evaluates.

A rule is placed as deep in the schema as possible. The server tolerates a failed rule if an update does not change the
value at the place of the rule. So a job that was stored before a rule existed can still be updated elsewhere. Rules at
the root would also judge every write of the status; these compare with the old object.

Each message says what to write instead.
"""

from gangline.api.kubeflow.kinds import MPIJOB, MPIJOB_V2, PADDLEJOB, PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON

# Bounds without which the server cannot estimate what a rule costs at most.
MAX_REPLICA_TYPES = 5
MAX_CONTAINERS = 64
_MAX_NAME_LENGTH = 63
_DNS_1035_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_ELASTIC_KINDS = (PYTORCHJOB, PADDLEJOB)
_MPI_KINDS = (MPIJOB, MPIJOB_V2)


def _rule(rule: str, message: str, **more: str | bool) -> JSON:
    return {"rule": rule, "message": message, **more}


def is_case_insensitive(kind: JobKind) -> bool:
    """Whether replica types may be written in any case. v1 accepts `worker` for `Worker` in TFJobs only."""
    return kind is TFJOB


def job_rules(kind: JobKind) -> list[JSON]:
    """Rules of the whole object, which can read its name. Of a stored job they judge only what gets worse."""
    # v1 accepts any name for an MPIJob, which has no services.
    label = [] if kind is MPIJOB else [_name_rule()]
    return [*label, _spec_required_rule(kind), _name_length_rule(kind)]


def _name_rule() -> JSON:
    rule = f"oldSelf.hasValue() || self.metadata.name.matches('{_DNS_1035_PATTERN}')"
    message = (
        "must be a DNS-1035 label: lower case letters, digits and '-', beginning with a letter "
        "and not ending with '-' (such as 'my-job-1')"
    )
    return _rule(rule, message, fieldPath=".metadata.name", optionalOldSelf=True)


def _spec_required_rule(kind: JobKind) -> JSON:
    """A rule in place of `required`, which would also block updates of finalizers on old objects without a spec."""
    rule = "has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))"
    message = f"write spec.{kind.replicas}"
    return _rule(rule, message, reason="FieldValueRequired", fieldPath=".spec", optionalOldSelf=True)


def _name_length_rule(kind: JobKind) -> JSON:
    """The longest name of a pod must fit into a DNS label."""
    specs = f"self.spec.{kind.replicas}"
    replicas, before = f"{specs}[t].replicas", f"oldSelf.?spec.?{kind.replicas}[?t].?replicas.orValue(0)"
    tail = f"size(t) + size(string({replicas} - 1)) + 2"
    if kind in _MPI_KINDS:  # Replicas have no default, and the launcher no index.
        replicas = f"{specs}[t].?replicas.orValue(1)"
        before = f"oldSelf.?spec.?{kind.replicas}[?t].optMap(r, r.?replicas.orValue(1)).orValue(0)"
        tail = f"(t == 'Launcher' ? 9 : 8 + size(string({replicas} - 1)))"
    fits = f"size(self.metadata.name) + {tail} <= {_MAX_NAME_LENGTH}"
    rule = f"!has(self.spec) || !has({specs}) || {specs}.all(t, {fits} || {before} >= {replicas})"
    message = (
        "too long: pods are named '<name>-<replica type>-<index>', "
        f"which must fit {_MAX_NAME_LENGTH} characters; use a shorter name"
    )
    return _rule(rule, message, fieldPath=".metadata.name", optionalOldSelf=True)


def run_policy_rules() -> list[JSON]:
    """Rules that compare the run policy with the old one. It is always present, because it has a default."""
    queue = "has({0}.schedulingPolicy) && has({0}.schedulingPolicy.queue)"
    return [
        _rule(
            "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            "managedBy is immutable: it can be set only when the job is created; create a new job instead",
            fieldPath=".managedBy",
        ),
        _rule(
            f"!({queue.format('oldSelf')}) || "
            f"({queue.format('self')} && self.schedulingPolicy.queue == oldSelf.schedulingPolicy.queue)",
            "spec.runPolicy.schedulingPolicy.queue is immutable: once set it can be neither changed nor removed; create a new job instead",
            fieldPath=".schedulingPolicy.queue",
        ),
    ]


def spec_rules(kind: JobKind) -> list[JSON]:
    """Rules that concern several fields of the spec."""
    rules: list[JSON] = [_same_api_rule(kind)] if kind in _MPI_KINDS else []
    if kind in _ELASTIC_KINDS:
        rules.append(
            _rule(
                f"!has(self.elasticPolicy) || 'Worker' in self.{kind.replicas}",
                f"elasticPolicy is about workers: add spec.{kind.replicas}.Worker, or remove spec.elasticPolicy",
            )
        )
    if kind is PYTORCHJOB:
        rules.append(
            _rule(
                "!has(self.nprocPerNode) || !has(self.elasticPolicy) || !has(self.elasticPolicy.nProcPerNode)",
                "elasticPolicy.nProcPerNode is deprecated and cannot be used together with nprocPerNode: write spec.nprocPerNode only",
            )
        )
    return rules


def _same_api_rule(kind: JobKind) -> JSON:
    """An MPIJob stays in the API in which it was written: its pods were made by the rules of that one."""
    other = MPIJOB.model.API_VERSION if kind is MPIJOB_V2 else MPIJOB_V2.model.API_VERSION
    return _rule(
        "has(self.mpiImplementation) == has(oldSelf.mpiImplementation)",
        f"this job was written in {other}: change it through that version, or create a new job",
    )


def replica_specs_rules(kind: JobKind) -> list[JSON]:
    """Rules of the map of replica types."""
    type_names = _joined_names(kind.types)
    rules = [
        _rule("size(self) > 0", f"write at least one replica type of {kind.kind}: {type_names}"),
        _known_types_rule(kind),
    ]
    if is_case_insensitive(kind):
        rules.append(
            _rule(
                "self.all(t, self.exists_one(u, t.lowerAscii() == u.lowerAscii()))",
                f"a replica type is there twice, in different spellings; write it once, as one of {type_names}",
            )
        )
    if kind is TFJOB:
        rules.append(
            _rule(
                "!self.exists(t, t.lowerAscii() == 'chief') || !self.exists(t, t.lowerAscii() == 'master')",
                "Chief and Master are two names of one role: write only one of them",
            )
        )
    if needed := kind.needed:
        rules.append(_rule(f"'{needed}' in self", f"{kind.kind} needs a {needed}: add spec.{kind.replicas}.{needed}"))
    rules += [_single_replica_rule(kind, replica_type) for replica_type in kind.single]
    if kind is MPIJOB_V2:
        rules.append(
            _rule(
                "!('Worker' in self) || self.Worker.?replicas.orValue(0) >= 1",
                "Worker must have at least 1 replica: write replicas: 1, or leave Worker out",
            )
        )
    return rules


def _known_types_rule(kind: JobKind) -> JSON:
    if is_case_insensitive(kind):
        quoted_types = ", ".join(f"'{replica_type.lower()}'" for replica_type in kind.types)
        unknown = f"!(t.lowerAscii() in [{quoted_types}])"
    else:
        unknown = f"!(t in [{', '.join(map(repr, kind.types))}])"
    type_names = _joined_names(kind.types)
    expression = f"'unknown replica type \"' + self.filter(t, {unknown})[0] + '\": {kind.kind} has {type_names}'"
    return {
        "rule": f"!self.exists(t, {unknown})",
        "message": f"unknown replica type: {kind.kind} has {type_names}",
        "messageExpression": expression,
    }


def _single_replica_rule(kind: JobKind, replica_type: str) -> JSON:
    message = f"{replica_type} must have exactly 1 replica: write replicas: 1, or leave it out"
    if is_case_insensitive(kind):
        return _rule(f"self.all(t, t.lowerAscii() != '{replica_type.lower()}' || self[t].replicas == 1)", message)
    replicas = f"self.{replica_type}.?replicas.orValue(1)" if kind in _MPI_KINDS else f"self.{replica_type}.replicas"
    return _rule(f"!('{replica_type}' in self) || {replicas} == 1", message)


def _joined_names(types: tuple[str, ...]) -> str:
    *most, last = types
    return f"{', '.join(most)} and {last}" if most else f"{last} only"


def containers_rules(kind: JobKind) -> list[JSON]:
    """Rules of a template's list of containers."""
    if kind in _MPI_KINDS:  # The first container is used, whatever its name.
        return []
    message = f'no container is named "{kind.container}": give the one that trains this name'
    return [_rule(f"self.exists(c, c.name == '{kind.container}')", message)]


def container_rules() -> list[JSON]:
    """Rules of one container of a template."""
    return [
        _rule(
            "has(self.image) && self.image != ''",
            "write the image to run",
            reason="FieldValueRequired",
            fieldPath=".image",
        )
    ]


def elastic_policy_rules() -> list[JSON]:
    """Rules of the elastic policy."""
    return [
        _rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas must not be greater than maxReplicas",
        )
    ]
