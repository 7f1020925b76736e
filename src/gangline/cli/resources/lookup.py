"""What a person means by `tfjob`, `jobs`, `po`, `tfjob/linear`: kinds and objects on a server.

The kinds that people look at most are known by heart, which saves asking the server what it serves. All others are
found by asking.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.paths import object_path
from gangline.kube.transport.api import Request
from gangline.kube.transport.blocking import BlockingTransport

GROUP = "kubeflow.org"
JOBS_WORDS = ("jobs", "job")
"""All six kinds at once. Kubernetes' own jobs are `jobs.batch`."""


def _resource(group: str, version: str, kind: str, plural: str, *, namespaced: bool = True) -> Resource[JSON]:
    return Resource(group, version, kind, plural, dict[str, Any], namespaced=namespaced)


JOB_KINDS: tuple[Resource[JSON], ...] = tuple(
    _resource(GROUP, "v1", kind, f"{kind.lower()}s")
    for kind in ("TFJob", "PyTorchJob", "XGBoostJob", "MPIJob", "PaddleJob", "JAXJob")
)
"""The same as `gangline.api.kubeflow.kinds.KINDS` (a test says so), without their types, which take long to import."""

PODS = _resource("", "v1", "Pod", "pods")
SERVICES = _resource("", "v1", "Service", "services")
EVENTS = _resource("", "v1", "Event", "events")
NODES = _resource("", "v1", "Node", "nodes", namespaced=False)
NAMESPACES = _resource("", "v1", "Namespace", "namespaces", namespaced=False)

BUILTIN_RESOURCES: tuple[tuple[Resource[JSON], tuple[str, ...]], ...] = (
    *((kind, ()) for kind in JOB_KINDS),
    (PODS, ("po",)),
    (SERVICES, ("svc",)),
    (EVENTS, ("ev",)),
    (NODES, ("no",)),
    (NAMESPACES, ("ns",)),
    (_resource("", "v1", "ConfigMap", "configmaps"), ("cm",)),
    (_resource("", "v1", "Secret", "secrets"), ()),
    (_resource("", "v1", "ServiceAccount", "serviceaccounts"), ("sa",)),
    (_resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"), ("pvc",)),
    (_resource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False), ("pv",)),
    (_resource("coordination.k8s.io", "v1", "Lease", "leases"), ()),
    (_resource("apps", "v1", "Deployment", "deployments"), ("deploy",)),
)


class ResourceArg(NamedTuple):
    """A kind as it was written, and the name of an object of it; no name means all."""

    kind: str
    name: str = ""


def resource_args(words: Sequence[str]) -> list[ResourceArg]:
    """What the words of a command name: `KIND[,KIND] [NAME...]` or `KIND/NAME ...`. Raises `InputError`."""
    if any("/" in word for word in words):
        return [_slash_arg(word) for word in words]
    first, *names = words
    kinds = [kind for kind in first.split(",") if kind]
    if not kinds:
        raise InputError(f'"{first}": name a kind, such as jobs or pods')
    return [ResourceArg(kind, name) for kind in kinds for name in (names or [""])]


def _slash_arg(word: str) -> ResourceArg:
    kind, slash, name = word.partition("/")
    if not kind or not slash or not name or "/" in name:
        raise InputError(f'"{word}": write KIND/NAME, such as tfjob/linear, for each of them')
    return ResourceArg(kind, name)


def builtin_resource(text: str) -> Resource[JSON] | None:
    """The kind that a person means, if it is one of those known by heart."""
    wanted = text.lower()
    for resource, short in BUILTIN_RESOURCES:
        singular = resource.kind.lower()
        names = (singular, resource.plural, resource.name, f"{singular}.{resource.group}", *short)
        if wanted in names:
            return resource
    return None


async def resolve(client: Client, text: str) -> tuple[Resource[JSON], ...]:
    """The kinds that a person means. Raises `InputError` when the server has none of that name."""
    if text.lower() in JOBS_WORDS:
        return JOB_KINDS
    found = builtin_resource(text)
    if found is not None:
        return (found,)
    # Imported here, because few need it.
    from gangline.kube.discovery import server_resources

    wanted = text.lower()
    listed = [kind for kind in await server_resources(client) if "list" in kind.verbs]
    for kind in listed:
        full = f"{kind.resource.plural}.{kind.resource.version}.{kind.resource.group}"
        if wanted in (*kind.names, full):
            return (kind.resource,)
    # A category, as kubectl has it; of each kind the preferred version, which comes first.
    together = {kind.resource.name: kind.resource for kind in reversed(listed) if wanted in kind.categories}
    if together:
        return tuple(reversed(together.values()))
    raise InputError(f'the server doesn\'t have a resource type "{text}"{_similar_kind_hint(wanted)}')


def _similar_kind_hint(word: str) -> str:
    """The kind of job that may be meant. Of other kinds it is said as kubectl does."""
    from difflib import get_close_matches

    close = get_close_matches(word, [kind.plural for kind in JOB_KINDS], 1, 0.75)
    return f"; did you mean {close[0]}?" if close else ""


class ServerJob(NamedTuple):
    """A job as the server has it."""

    resource: Resource[JSON]
    body: JSON

    @property
    def key(self) -> Key:
        metadata = self.body["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])

    @property
    def display_name(self) -> str:
        """As kubectl names it: `tfjob.kubeflow.org/linear`."""
        return resource_name(self.resource, self.key.name)


def resource_name(resource: Resource[Any], name: str) -> str:
    """`pod/x`, `tfjob.kubeflow.org/x`."""
    kind = resource.kind.lower()
    return f"{kind}.{resource.group}/{name}" if resource.group else f"{kind}/{name}"


def parse_job_arg(word: str) -> tuple[tuple[Resource[JSON], ...], str]:
    """The kinds to look in, and the name, of `linear`, `tfjob/linear` or `job/linear`: none if only a server knows.

    Raises `InputError` for kinds that are known to be no jobs.
    """
    kind, slash, name = word.rpartition("/")
    if not slash or kind.lower() in JOBS_WORDS:
        return JOB_KINDS, name
    found = builtin_resource(kind)
    if found is None:
        return (), name
    if found not in JOB_KINDS:
        raise _not_a_job_kind(word, kind)
    return (found,), name


def _not_a_job_kind(word: str, kind: str) -> InputError:
    names = ", ".join(resource.kind.lower() for resource in JOB_KINDS)
    return InputError(f'"{word}": "{kind}" is no kind of training job; write one of {names}')


async def find_job(client: Client, namespace: str, word: str) -> ServerJob:
    """The job that a person means. Raises `NotFound`, or `InputError` when several kinds have one of that name."""
    kinds, name = parse_job_arg(word)
    found, missing = await _find_in_kinds(client, kinds, Key(namespace, name))
    if not found and len(kinds) != 1:
        # Imported here, because few need it.
        from gangline.why.custom import custom_kinds

        kind = "" if kinds else word.rpartition("/")[0]
        custom = await custom_kinds(client, kind)
        if kind and not custom:
            raise _not_a_job_kind(word, kind)
        found, missing = await _find_in_kinds(client, custom, Key(namespace, name))
    if len(found) > 1:
        names = " or ".join(f"{job.resource.kind.lower()}/{name}" for job in found)
        raise InputError(f'"{name}" is the name of several jobs; write {names}')
    if not found:
        raise missing if missing is not None and "/" in word else _no_such_job(namespace, name)
    return found[0]


async def _find_in_kinds(
    client: Client, kinds: Sequence[Resource[JSON]], key: Key
) -> tuple[list[ServerJob], NotFound | None]:
    """The jobs of a name, and what the server said where there is none."""
    found: list[ServerJob] = []
    missing: NotFound | None = None
    if len(kinds) > 1 and isinstance(client.transport, BlockingTransport):
        await client.transport.pipeline([Request("GET", object_path(kind, key)) for kind in kinds])
    for resource in kinds:
        try:
            found.append(ServerJob(resource, await client.get(resource, key)))
        except NotFound as error:
            missing = missing or error
    return found, missing


def _no_such_job(namespace: str, name: str) -> NotFound:
    from gangline.kube.errors import Status

    told = f'no training job "{name}" in namespace "{namespace}"'
    return NotFound(Status(status="Failure", message=told, reason="NotFound", code=404))
