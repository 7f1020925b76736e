"""Training jobs that the definitions refuse, and what a person is told of each: contract.md, section 2, and section 10."""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from gangline.api.kubeflow.jaxjob import JAXJOB
from gangline.api.kubeflow.kinds import KINDS
from gangline.api.kubeflow.mpijob import MPIJOB
from gangline.api.kubeflow.paddlejob import PADDLEJOB
from gangline.api.kubeflow.pytorchjob import PYTORCHJOB
from gangline.api.kubeflow.tfjob import TFJOB
from gangline.api.kubeflow.training import MULTIKUEUE, OURS, JobKind
from gangline.api.kubeflow.xgboostjob import XGBOOSTJOB
from gangline.api.meta import JSON


def template(container: str, **more: Any) -> JSON:
    return {"spec": {"containers": [{"name": container, "image": "train:1", **more}]}}


def spec(kind: JobKind, *types: str, **more: Any) -> JSON:
    """A spec with one replica of each type, by default of each that every job of the kind may have."""
    common = {TFJOB.kind: ("Worker",), JAXJOB.kind: ("Worker",)}.get(kind.kind, kind.types)
    wanted = types or common
    replicas = {one: {"replicas": 1, "template": template(kind.container)} for one in wanted}
    return {kind.replicas: replicas, **more}


def job(kind: JobKind, said: JSON | None, name: str = "j") -> JSON:
    body: JSON = {"metadata": {"name": name}}
    return body if said is None else {**body, "spec": said}


def with_replicas(kind: JobKind, **counts: int | None) -> JSON:
    """A spec of these types with so many replicas; None: left out."""
    found = spec(kind, *counts)
    for one, count in counts.items():
        found[kind.replicas][one] |= {"replicas": count}
        if count is None:
            del found[kind.replicas][one]["replicas"]
    return found


def edited(said: JSON, *path: str | int, to: Any) -> JSON:
    """The spec with one field set."""
    found = copy.deepcopy(said)
    at: Any = found
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return found


def containers(kind: JobKind, *found: JSON) -> JSON:
    said = spec(kind)
    one = next(iter(said[kind.replicas]))
    return edited(said, kind.replicas, one, "template", "spec", "containers", to=list(found))


class Case(msgspec.Struct, frozen=True):
    """A job that is refused, and what is said of it."""

    what: str
    kind: JobKind
    said: JSON | None
    message: str
    name: str = "j"

    @property
    def title(self) -> str:
        return f"{self.kind.kind}: {self.what}".replace(" ", "_")


UNCHECKED = (
    ", <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation]"
)
BAD_NAME = (
    "metadata.name: Invalid value: \"object\": must be a DNS-1035 label: lower case letters, digits and '-', "
    "beginning with a letter and not ending with '-' (such as 'my-job-1')"
)
LONG_NAME = (
    "metadata.name: Invalid value: \"object\": too long: pods are named '<name>-<replica type>-<index>', "
    "which must fit 63 characters; use a shorter name"
)
KNOWN_MANAGERS = f'supported values: "{OURS}", "{MULTIKUEUE}"'


def ruled(where: str, message: str, kind: str = "object") -> str:
    """What a server says when a rule fails."""
    return f'{where}: Invalid value: "{kind}": {message}'


def too_small(where: str, value: int, least: int) -> str:
    return f"{where}: Invalid value: {value}: {where} in body should be greater than or equal to {least}"


def unsupported(where: str, value: str, known: str) -> str:
    return f'[{where}: Unsupported value: "{value}": supported values: {known}{UNCHECKED}'


def exactly_one(kind: JobKind, one: str) -> str:
    message = f"{one} must have exactly 1 replica: write replicas: 1, or leave it out"
    return ruled(f"spec.{kind.replicas}", message)


def elastic(kind: JobKind, policy: JSON, *types: str, **more: Any) -> JSON:
    return spec(kind, *(types or ("Worker",)), elasticPolicy=policy, **more)


def policies() -> Iterator[Case]:
    """Rules of runPolicy, which are the same in all kinds."""
    clean, restarts = '"All", "Running", "None"', '"Always", "OnFailure", "Never", "ExitCode", ""'
    for kind in KINDS:
        for value in ("me", ""):
            said = spec(kind, runPolicy={"managedBy": value})
            managed = unsupported("spec.runPolicy.managedBy", value, KNOWN_MANAGERS.partition(": ")[2])
            yield Case(f"managed by {value!r}", kind, said, managed)
        one = next(iter(spec(kind)[kind.replicas]))
        where = f"spec.{kind.replicas}.{one}.restartPolicy"
        said = edited(spec(kind), kind.replicas, one, "restartPolicy", to="Sometimes")
        yield Case("unknown restart policy", kind, said, unsupported(where, "Sometimes", restarts))
    for value in ("Some", ""):
        said = spec(TFJOB, runPolicy={"cleanPodPolicy": value})
        where = "spec.runPolicy.cleanPodPolicy"
        yield Case(f"clean pod policy {value!r}", TFJOB, said, unsupported(where, value, clean))
    said = spec(TFJOB, runPolicy={"restartScope": "Team"})
    scope = unsupported("spec.runPolicy.restartScope", "Team", '"Replica", "Job"')
    yield Case("unknown restart scope", TFJOB, said, scope)
    for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
        said = spec(TFJOB, runPolicy={field: -1})
        yield Case(f"negative {field}", TFJOB, said, too_small(f"spec.runPolicy.{field}", -1, 0))
    for field in ("minAvailable", "scheduleTimeoutSeconds"):
        said = spec(TFJOB, runPolicy={"schedulingPolicy": {field: -1}})
        where = f"spec.runPolicy.schedulingPolicy.{field}"
        yield Case(f"negative {field}", TFJOB, said, too_small(where, -1, 0))


def names() -> Iterator[Case]:
    for kind in KINDS:
        if kind is not MPIJOB:
            for name in ("1j", "a.b"):
                yield Case(f"name {name}", kind, spec(kind), BAD_NAME, name)
        longest = max(map(len, spec(kind)[kind.replicas]))
        fits = 63 - longest - len("--0") if kind is not MPIJOB else 63 - len("-launcher")
        yield Case("name one too long", kind, spec(kind), LONG_NAME, "x" * (fits + 1))
    said = with_replicas(TFJOB, Worker=11)
    yield Case("name too long for two digits", TFJOB, said, LONG_NAME, "x" * (63 - len("-worker-0")))
    said = with_replicas(TFJOB, PS=1, Evaluator=1)
    yield Case("name too long for the longest type", TFJOB, said, LONG_NAME, "x" * (63 - len("-ps-0")))


def replica_types() -> Iterator[Case]:
    listed = {
        TFJOB.kind: "Chief, Evaluator, Master, PS and Worker",
        PYTORCHJOB.kind: "Master and Worker",
        XGBOOSTJOB.kind: "Master and Worker",
        MPIJOB.kind: "Launcher and Worker",
        PADDLEJOB.kind: "Master and Worker",
        JAXJOB.kind: "Worker only",
    }
    for kind in KINDS:
        known = listed[kind.kind]
        where = f"spec.{kind.replicas}"
        said = spec(kind, *spec(kind)[kind.replicas], "Helper")
        message = f'unknown replica type "Helper": {kind.kind} has {known}'
        yield Case("unknown replica type", kind, said, ruled(where, message))
        if kind is not TFJOB:
            odd = spec(kind, *(one for one in spec(kind)[kind.replicas] if one != "Worker"), "worker")
            message = f'unknown replica type "worker": {kind.kind} has {known}'
            yield Case("odd spelling", kind, odd, ruled(where, message))
        yield Case("no map", kind, {}, f"[{where}: Required value{UNCHECKED}")
        yield Case("no spec", kind, None, f"spec: Required value: write {where}")
    six = spec(TFJOB, *TFJOB.types, "Helper")
    too_many = f"[spec.tfReplicaSpecs: Too many: 6: must have at most 5 items{UNCHECKED}"
    yield Case("six replica types", TFJOB, six, too_many)
    for kind in (TFJOB, PYTORCHJOB, PADDLEJOB, JAXJOB):
        message = f"write at least one replica type of {kind.kind}: {listed[kind.kind]}"
        yield Case("empty map", kind, {kind.replicas: {}}, ruled(f"spec.{kind.replicas}", message))
    message = (
        "a replica type is there twice, in different spellings; "
        "write it once, as one of Chief, Evaluator, Master, PS and Worker"
    )
    twice = ruled("spec.tfReplicaSpecs", message)
    yield Case("one type in two spellings", TFJOB, spec(TFJOB, "Worker", "worker"), twice)
    message = "Chief and Master are two names of one role: write only one of them"
    for types in (("Chief", "Master"), ("chief", "MASTER")):
        said = spec(TFJOB, *types)
        yield Case(" and ".join(types), TFJOB, said, ruled("spec.tfReplicaSpecs", message))
    for kind, one in ((XGBOOSTJOB, "Master"), (MPIJOB, "Launcher")):
        where = f"spec.{kind.replicas}"
        message = f"{kind.kind} needs a {one}: add {where}.{one}"
        yield Case(f"no {one}", kind, spec(kind, "Worker"), ruled(where, message))


def counts() -> Iterator[Case]:
    for kind in KINDS:
        where = f"spec.{kind.replicas}.Worker.replicas"
        others = {XGBOOSTJOB.kind: {"Master": 1}, MPIJOB.kind: {"Launcher": 1}}.get(kind.kind, {})
        least = 0 if kind is MPIJOB else 1
        said = with_replicas(kind, **others, Worker=least - 1)
        yield Case(f"{least - 1} workers", kind, said, too_small(where, least - 1, least))
    for one in ("PS", "Evaluator"):
        where = f"spec.tfReplicaSpecs.{one}.replicas"
        yield Case(f"0 of {one}", TFJOB, with_replicas(TFJOB, **{one: 0}), too_small(where, 0, 1))
    for kind, one in ((TFJOB, "Chief"), (TFJOB, "Master"), (PYTORCHJOB, "Master"), (XGBOOSTJOB, "Master")):
        said, where = with_replicas(kind, **{one: 0}), f"spec.{kind.replicas}.{one}.replicas"
        yield Case(f"0 of {one}", kind, said, f"[{too_small(where, 0, 1)}, {exactly_one(kind, one)}]")
        yield Case(f"2 of {one}", kind, with_replicas(kind, **{one: 2}), exactly_one(kind, one))
    for count in (0, 2):
        said = with_replicas(MPIJOB, Launcher=count)
        yield Case(f"{count} launchers", MPIJOB, said, exactly_one(MPIJOB, "Launcher"))
    yield Case("2 of chief", TFJOB, with_replicas(TFJOB, chief=2), exactly_one(TFJOB, "Chief"))


def templates() -> Iterator[Case]:
    for kind in KINDS:
        one = next(iter(spec(kind)[kind.replicas]))
        body, rules = f"spec.{kind.replicas}.{one}.template", f"spec.{kind.replicas}[{one}].template.spec"
        train = {"name": kind.container, "image": "train:1"}
        bare = edited(spec(kind), kind.replicas, one, to={})
        yield Case("no template", kind, bare, f"[{body}: Required value{UNCHECKED}")
        bare = edited(spec(kind), kind.replicas, one, "template", to={})
        yield Case("no pod", kind, bare, f"[{body}.spec: Required value{UNCHECKED}")
        bare = edited(spec(kind), kind.replicas, one, "template", to={"spec": {}})
        yield Case("no list of containers", kind, bare, f"[{body}.spec.containers: Required value{UNCHECKED}")
        few = f"{body}.spec.containers: Invalid value: 0: {body}.spec.containers in body should have at least 1 items"
        other = f'no container is named "{kind.container}": give the one that trains this name'
        missing = ruled(f"{rules}.containers", other, "array")
        if kind is MPIJOB:
            yield Case("no containers", kind, containers(kind), few)
        else:
            yield Case("no containers", kind, containers(kind), f"[{few}, {missing}]")
            yield Case("no default container", kind, containers(kind, {"name": "c", "image": "i"}), missing)
        for index, found in enumerate(({"name": kind.container}, {"name": kind.container, "image": ""})):
            image = f"{rules}.containers[0].image: Required value: write the image to run"
            yield Case(f"no image {index}", kind, containers(kind, found), image)
        image = f"{rules}.containers[1].image: Required value: write the image to run"
        yield Case("sidecar without image", kind, containers(kind, train, {"name": "log"}), image)
        nameless = f"[{body}.spec.containers[0].name: Required value{UNCHECKED}"
        yield Case("container without name", kind, containers(kind, {"image": "i"}), nameless)
    many = [{"name": f"c{number}", "image": "i"} for number in range(65)]
    where = "spec.tfReplicaSpecs.Worker.template.spec.containers"
    too_many = f"[{where}: Too many: 65: must have at most 64 items{UNCHECKED}"
    yield Case("65 containers", TFJOB, containers(TFJOB, *many), too_many)
    double = 'spec.tfReplicaSpecs[Worker].template.spec.containers[1]: Duplicate value: {"name":"tensorflow"}'
    same = {"name": "tensorflow", "image": "i"}
    yield Case("container name twice", TFJOB, containers(TFJOB, same, same), double)
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    where = "spec.tfReplicaSpecs[Worker].template.spec.containers[0].env[1]"
    said = containers(TFJOB, {**same, "env": env})
    yield Case("variable twice", TFJOB, said, f'{where}: Duplicate value: {{"name":"A"}}')


def frameworks() -> Iterator[Case]:
    """Rules of one kind or two."""
    for kind in (PYTORCHJOB, PADDLEJOB):
        where = f"spec.{kind.replicas}.Worker"
        message = f"elasticPolicy is about workers: add {where}, or remove spec.elasticPolicy"
        yield Case("elastic without workers", kind, elastic(kind, {}, "Master"), ruled("spec", message))
        said = elastic(kind, {"minReplicas": 3, "maxReplicas": 2})
        message = "minReplicas must not be greater than maxReplicas"
        yield Case("more at least than at most", kind, said, ruled("spec.elasticPolicy", message))
        said = elastic(kind, {"minReplicas": 0})
        yield Case("elastic down to none", kind, said, too_small("spec.elasticPolicy.minReplicas", 0, 1))
        said = elastic(kind, {"maxRestarts": -1})
        yield Case("negative restarts", kind, said, too_small("spec.elasticPolicy.maxRestarts", -1, 0))
    message = (
        "elasticPolicy.nProcPerNode is deprecated and cannot be used together with nprocPerNode: "
        "write spec.nprocPerNode only"
    )
    said = elastic(PYTORCHJOB, {"nProcPerNode": 2}, nprocPerNode="2")
    yield Case("processes per node twice", PYTORCHJOB, said, ruled("spec", message))
    said = spec(TFJOB, successPolicy="AllWorker")
    policy = unsupported("spec.successPolicy", "AllWorker", '"", "AllWorkers"')
    yield Case("unknown success policy", TFJOB, said, policy)
    said = spec(MPIJOB, slotsPerWorker=0)
    yield Case("no slots", MPIJOB, said, too_small("spec.slotsPerWorker", 0, 1))
    said = spec(MPIJOB, cleanPodPolicy="Some")
    clean = unsupported("spec.cleanPodPolicy", "Some", '"All", "Running", "None"')
    yield Case("older clean pod policy", MPIJOB, said, clean)


REFUSED = [*policies(), *names(), *replica_types(), *counts(), *templates(), *frameworks()]
