"""Training jobs that the definitions reject, and the message for each: contract.md, section 2, and section 10."""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from gangline.api.kubeflow.kinds import JAXJOB, MPIJOB, PADDLEJOB, PYTORCHJOB, TFJOB, TRAINING_KINDS, XGBOOSTJOB
from gangline.api.kubeflow.training import MULTIKUEUE_MANAGER, OUR_MANAGER, JobKind
from gangline.api.meta import JSON


def pod_template(container: str, **more: Any) -> JSON:
    return {"spec": {"containers": [{"name": container, "image": "train:1", **more}]}}


def job_spec(kind: JobKind, *types: str, **more: Any) -> JSON:
    """A spec with one replica of each type, by default of each that every job of the kind may have."""
    common = {TFJOB.kind: ("Worker",), JAXJOB.kind: ("Worker",)}.get(kind.kind, kind.types)
    wanted = types or common
    replicas = {one: {"replicas": 1, "template": pod_template(kind.container)} for one in wanted}
    return {kind.replicas: replicas, **more}


def job_body(kind: JobKind, said: JSON | None, name: str = "j") -> JSON:
    body: JSON = {"metadata": {"name": name}}
    return body if said is None else {**body, "spec": said}


def spec_with_replicas(kind: JobKind, **counts: int | None) -> JSON:
    """A spec with these numbers of replicas by type; None leaves `replicas` out."""
    found = job_spec(kind, *counts)
    for one, count in counts.items():
        found[kind.replicas][one] |= {"replicas": count}
        if count is None:
            del found[kind.replicas][one]["replicas"]
    return found


def with_field(said: JSON, *path: str | int, to: Any) -> JSON:
    """The spec with one field set."""
    found = copy.deepcopy(said)
    at: Any = found
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return found


def spec_with_containers(kind: JobKind, *found: JSON) -> JSON:
    said = job_spec(kind)
    one = next(iter(said[kind.replicas]))
    return with_field(said, kind.replicas, one, "template", "spec", "containers", to=list(found))


class InvalidJob(msgspec.Struct, frozen=True):
    """A job that is rejected, and the message."""

    mistake: str
    kind: JobKind
    spec: JSON | None
    message: str
    name: str = "j"

    @property
    def title(self) -> str:
        return f"{self.kind.kind}: {self.mistake}".replace(" ", "_")


UNCHECKED_SUFFIX = (
    ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation]"
)
BAD_NAME_MESSAGE = (
    "metadata.name: Invalid value: \"object\": must be a DNS-1035 label: lower case letters, digits and '-', "
    "beginning with a letter and not ending with '-' (such as 'my-job-1')"
)
LONG_NAME_MESSAGE = (
    "metadata.name: Invalid value: \"object\": too long: pods are named '<name>-<replica type>-<index>', "
    "which must fit 63 characters; use a shorter name"
)
KNOWN_MANAGERS = f'supported values: "{OUR_MANAGER}", "{MULTIKUEUE_MANAGER}"'


def rule_message(where: str, message: str, kind: str = "object") -> str:
    """The message of a server when a rule fails."""
    return f'{where}: Invalid value: "{kind}": {message}'


def minimum_message(where: str, value: int, least: int) -> str:
    return f"{where}: Invalid value: {value}: {where} in body should be greater than or equal to {least}"


def unsupported_message(where: str, value: str, known: str) -> str:
    return f'[{where}: Unsupported value: "{value}": supported values: {known}{UNCHECKED_SUFFIX}'


def exactly_one_message(kind: JobKind, one: str) -> str:
    message = f"{one} must have exactly 1 replica: write replicas: 1, or leave it out"
    return rule_message(f"spec.{kind.replicas}", message)


def elastic_spec(kind: JobKind, policy: JSON, *types: str, **more: Any) -> JSON:
    return job_spec(kind, *(types or ("Worker",)), elasticPolicy=policy, **more)


def run_policy_cases() -> Iterator[InvalidJob]:
    """Rules of runPolicy, which are the same in all kinds."""
    clean, restarts = '"All", "Running", "None"', '"Always", "OnFailure", "Never", "ExitCode", ""'
    for kind in TRAINING_KINDS:
        for value in ("me", ""):
            said = job_spec(kind, runPolicy={"managedBy": value})
            managed = unsupported_message("spec.runPolicy.managedBy", value, KNOWN_MANAGERS.partition(": ")[2])
            yield InvalidJob(f"managed by {value!r}", kind, said, managed)
        one = next(iter(job_spec(kind)[kind.replicas]))
        where = f"spec.{kind.replicas}.{one}.restartPolicy"
        said = with_field(job_spec(kind), kind.replicas, one, "restartPolicy", to="Sometimes")
        yield InvalidJob("unknown restart policy", kind, said, unsupported_message(where, "Sometimes", restarts))
    for value in ("Some", ""):
        said = job_spec(TFJOB, runPolicy={"cleanPodPolicy": value})
        where = "spec.runPolicy.cleanPodPolicy"
        yield InvalidJob(f"clean pod policy {value!r}", TFJOB, said, unsupported_message(where, value, clean))
    said = job_spec(TFJOB, runPolicy={"restartScope": "Team"})
    scope = unsupported_message("spec.runPolicy.restartScope", "Team", '"Replica", "Job"')
    yield InvalidJob("unknown restart scope", TFJOB, said, scope)
    for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
        said = job_spec(TFJOB, runPolicy={field: -1})
        yield InvalidJob(f"negative {field}", TFJOB, said, minimum_message(f"spec.runPolicy.{field}", -1, 0))
    for field in ("minAvailable", "scheduleTimeoutSeconds"):
        said = job_spec(TFJOB, runPolicy={"schedulingPolicy": {field: -1}})
        where = f"spec.runPolicy.schedulingPolicy.{field}"
        yield InvalidJob(f"negative {field}", TFJOB, said, minimum_message(where, -1, 0))


def name_cases() -> Iterator[InvalidJob]:
    for kind in TRAINING_KINDS:
        if kind is not MPIJOB:
            for name in ("1j", "a.b"):
                yield InvalidJob(f"name {name}", kind, job_spec(kind), BAD_NAME_MESSAGE, name)
        longest = max(map(len, job_spec(kind)[kind.replicas]))
        fits = 63 - longest - len("--0") if kind is not MPIJOB else 63 - len("-launcher")
        yield InvalidJob("name one too long", kind, job_spec(kind), LONG_NAME_MESSAGE, "x" * (fits + 1))
    said = spec_with_replicas(TFJOB, Worker=11)
    yield InvalidJob("name too long for two digits", TFJOB, said, LONG_NAME_MESSAGE, "x" * (63 - len("-worker-0")))
    said = spec_with_replicas(TFJOB, PS=1, Evaluator=1)
    yield InvalidJob("name too long for the longest type", TFJOB, said, LONG_NAME_MESSAGE, "x" * (63 - len("-ps-0")))


def replica_type_cases() -> Iterator[InvalidJob]:
    listed = {
        TFJOB.kind: "Chief, Evaluator, Master, PS and Worker",
        PYTORCHJOB.kind: "Master and Worker",
        XGBOOSTJOB.kind: "Master and Worker",
        MPIJOB.kind: "Launcher and Worker",
        PADDLEJOB.kind: "Master and Worker",
        JAXJOB.kind: "Worker only",
    }
    for kind in TRAINING_KINDS:
        known = listed[kind.kind]
        where = f"spec.{kind.replicas}"
        said = job_spec(kind, *job_spec(kind)[kind.replicas], "Helper")
        message = f'unknown replica type "Helper": {kind.kind} has {known}'
        yield InvalidJob("unknown replica type", kind, said, rule_message(where, message))
        if kind is not TFJOB:
            odd = job_spec(kind, *(one for one in job_spec(kind)[kind.replicas] if one != "Worker"), "worker")
            message = f'unknown replica type "worker": {kind.kind} has {known}'
            yield InvalidJob("odd spelling", kind, odd, rule_message(where, message))
        yield InvalidJob("no map", kind, {}, f"[{where}: Required value{UNCHECKED_SUFFIX}")
        yield InvalidJob("no spec", kind, None, f"spec: Required value: write {where}")
    six = job_spec(TFJOB, *TFJOB.types, "Helper")
    too_many = f"[spec.tfReplicaSpecs: Too many: 6: must have at most 5 items{UNCHECKED_SUFFIX}"
    yield InvalidJob("six replica types", TFJOB, six, too_many)
    for kind in (TFJOB, PYTORCHJOB, PADDLEJOB, JAXJOB):
        message = f"write at least one replica type of {kind.kind}: {listed[kind.kind]}"
        yield InvalidJob("empty map", kind, {kind.replicas: {}}, rule_message(f"spec.{kind.replicas}", message))
    message = (
        "a replica type is there twice, in different spellings; "
        "write it once, as one of Chief, Evaluator, Master, PS and Worker"
    )
    twice = rule_message("spec.tfReplicaSpecs", message)
    yield InvalidJob("one type in two spellings", TFJOB, job_spec(TFJOB, "Worker", "worker"), twice)
    message = "Chief and Master are two names of one role: write only one of them"
    for types in (("Chief", "Master"), ("chief", "MASTER")):
        said = job_spec(TFJOB, *types)
        yield InvalidJob(" and ".join(types), TFJOB, said, rule_message("spec.tfReplicaSpecs", message))
    for kind, one in ((XGBOOSTJOB, "Master"), (MPIJOB, "Launcher")):
        where = f"spec.{kind.replicas}"
        message = f"{kind.kind} needs a {one}: add {where}.{one}"
        yield InvalidJob(f"no {one}", kind, job_spec(kind, "Worker"), rule_message(where, message))


def count_cases() -> Iterator[InvalidJob]:
    for kind in TRAINING_KINDS:
        where = f"spec.{kind.replicas}.Worker.replicas"
        others = {XGBOOSTJOB.kind: {"Master": 1}, MPIJOB.kind: {"Launcher": 1}}.get(kind.kind, {})
        least = 0 if kind is MPIJOB else 1
        said = spec_with_replicas(kind, **others, Worker=least - 1)
        yield InvalidJob(f"{least - 1} workers", kind, said, minimum_message(where, least - 1, least))
    for one in ("PS", "Evaluator"):
        where = f"spec.tfReplicaSpecs.{one}.replicas"
        yield InvalidJob(f"0 of {one}", TFJOB, spec_with_replicas(TFJOB, **{one: 0}), minimum_message(where, 0, 1))
    for kind, one in ((TFJOB, "Chief"), (TFJOB, "Master"), (PYTORCHJOB, "Master"), (XGBOOSTJOB, "Master")):
        said, where = spec_with_replicas(kind, **{one: 0}), f"spec.{kind.replicas}.{one}.replicas"
        yield InvalidJob(
            f"0 of {one}", kind, said, f"[{minimum_message(where, 0, 1)}, {exactly_one_message(kind, one)}]"
        )
        yield InvalidJob(f"2 of {one}", kind, spec_with_replicas(kind, **{one: 2}), exactly_one_message(kind, one))
    for count in (0, 2):
        said = spec_with_replicas(MPIJOB, Launcher=count)
        yield InvalidJob(f"{count} launchers", MPIJOB, said, exactly_one_message(MPIJOB, "Launcher"))
    yield InvalidJob("2 of chief", TFJOB, spec_with_replicas(TFJOB, chief=2), exactly_one_message(TFJOB, "Chief"))


def template_cases() -> Iterator[InvalidJob]:
    for kind in TRAINING_KINDS:
        one = next(iter(job_spec(kind)[kind.replicas]))
        body, rules = f"spec.{kind.replicas}.{one}.template", f"spec.{kind.replicas}[{one}].template.spec"
        train = {"name": kind.container, "image": "train:1"}
        bare = with_field(job_spec(kind), kind.replicas, one, to={})
        yield InvalidJob("no template", kind, bare, f"[{body}: Required value{UNCHECKED_SUFFIX}")
        bare = with_field(job_spec(kind), kind.replicas, one, "template", to={})
        yield InvalidJob("no pod", kind, bare, f"[{body}.spec: Required value{UNCHECKED_SUFFIX}")
        bare = with_field(job_spec(kind), kind.replicas, one, "template", to={"spec": {}})
        yield InvalidJob(
            "no list of containers", kind, bare, f"[{body}.spec.containers: Required value{UNCHECKED_SUFFIX}"
        )
        few = f"{body}.spec.containers: Invalid value: 0: {body}.spec.containers in body should have at least 1 items"
        other = f'no container is named "{kind.container}": give the one that trains this name'
        missing = rule_message(f"{rules}.containers", other, "array")
        if kind is MPIJOB:
            yield InvalidJob("no containers", kind, spec_with_containers(kind), few)
        else:
            yield InvalidJob("no containers", kind, spec_with_containers(kind), f"[{few}, {missing}]")
            yield InvalidJob(
                "no default container", kind, spec_with_containers(kind, {"name": "c", "image": "i"}), missing
            )
        for index, found in enumerate(({"name": kind.container}, {"name": kind.container, "image": ""})):
            image = f"{rules}.containers[0].image: Required value: write the image to run"
            yield InvalidJob(f"no image {index}", kind, spec_with_containers(kind, found), image)
        image = f"{rules}.containers[1].image: Required value: write the image to run"
        yield InvalidJob("sidecar without image", kind, spec_with_containers(kind, train, {"name": "log"}), image)
        nameless = f"[{body}.spec.containers[0].name: Required value{UNCHECKED_SUFFIX}"
        yield InvalidJob("container without name", kind, spec_with_containers(kind, {"image": "i"}), nameless)
    many = [{"name": f"c{number}", "image": "i"} for number in range(65)]
    where = "spec.tfReplicaSpecs.Worker.template.spec.containers"
    too_many = f"[{where}: Too many: 65: must have at most 64 items{UNCHECKED_SUFFIX}"
    yield InvalidJob("65 containers", TFJOB, spec_with_containers(TFJOB, *many), too_many)
    double = 'spec.tfReplicaSpecs[Worker].template.spec.containers[1]: Duplicate value: {"name":"tensorflow"}'
    same = {"name": "tensorflow", "image": "i"}
    yield InvalidJob("container name twice", TFJOB, spec_with_containers(TFJOB, same, same), double)
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    where = "spec.tfReplicaSpecs[Worker].template.spec.containers[0].env[1]"
    said = spec_with_containers(TFJOB, {**same, "env": env})
    yield InvalidJob("variable twice", TFJOB, said, f'{where}: Duplicate value: {{"name":"A"}}')


def framework_cases() -> Iterator[InvalidJob]:
    """Rules of one kind or two."""
    for kind in (PYTORCHJOB, PADDLEJOB):
        where = f"spec.{kind.replicas}.Worker"
        message = f"elasticPolicy is about workers: add {where}, or remove spec.elasticPolicy"
        yield InvalidJob(
            "elastic without workers", kind, elastic_spec(kind, {}, "Master"), rule_message("spec", message)
        )
        said = elastic_spec(kind, {"minReplicas": 3, "maxReplicas": 2})
        message = "minReplicas must not be greater than maxReplicas"
        yield InvalidJob("more at least than at most", kind, said, rule_message("spec.elasticPolicy", message))
        said = elastic_spec(kind, {"minReplicas": 0})
        yield InvalidJob("elastic down to none", kind, said, minimum_message("spec.elasticPolicy.minReplicas", 0, 1))
        said = elastic_spec(kind, {"maxRestarts": -1})
        yield InvalidJob("negative restarts", kind, said, minimum_message("spec.elasticPolicy.maxRestarts", -1, 0))
    message = (
        "elasticPolicy.nProcPerNode is deprecated and cannot be used together with nprocPerNode: "
        "write spec.nprocPerNode only"
    )
    said = elastic_spec(PYTORCHJOB, {"nProcPerNode": 2}, nprocPerNode="2")
    yield InvalidJob("processes per node twice", PYTORCHJOB, said, rule_message("spec", message))
    said = job_spec(TFJOB, successPolicy="AllWorker")
    policy = unsupported_message("spec.successPolicy", "AllWorker", '"", "AllWorkers"')
    yield InvalidJob("unknown success policy", TFJOB, said, policy)
    said = job_spec(MPIJOB, slotsPerWorker=0)
    yield InvalidJob("no slots", MPIJOB, said, minimum_message("spec.slotsPerWorker", 0, 1))
    said = job_spec(MPIJOB, cleanPodPolicy="Some")
    clean = unsupported_message("spec.cleanPodPolicy", "Some", '"All", "Running", "None"')
    yield InvalidJob("older clean pod policy", MPIJOB, said, clean)


INVALID_JOBS = [
    *run_policy_cases(),
    *name_cases(),
    *replica_type_cases(),
    *count_cases(),
    *template_cases(),
    *framework_cases(),
]
