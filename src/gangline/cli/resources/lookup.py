"""Kinds and objects by the words of a command line: `tfjob`, `jobs`, `po`, `tfjob/linear`.

The most used kinds are built in, which saves the discovery requests; all others are looked up on the server.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.kube.paths import object_path
from gangline.kube.transport.api import Request
from gangline.kube.transport.blocking import BlockingTransport
from gangline.summary.actions import require_unfinished
from gangline.summary.objects import EVENTS, JOB_KINDS, NAMESPACES, NODES, PODS, SERVICES, ServerJob, json_resource

MAX_NAMES = 5
"""The most names of jobs that an error lists."""
JOBS_WORDS = ("jobs", "job")
"""The words for all six job kinds at once. Kubernetes' own jobs are `jobs.batch`."""


DEPLOYMENTS = json_resource("apps", "v1", "Deployment", "deployments")
BUILTIN_RESOURCES: tuple[tuple[Resource[JSON], tuple[str, ...]], ...] = (
    *((kind, ()) for kind in JOB_KINDS),
    (PODS, ("po",)),
    (SERVICES, ("svc",)),
    (EVENTS, ("ev",)),
    (NODES, ("no",)),
    (NAMESPACES, ("ns",)),
    (json_resource("", "v1", "ConfigMap", "configmaps"), ("cm",)),
    (json_resource("", "v1", "Secret", "secrets"), ()),
    (json_resource("", "v1", "ServiceAccount", "serviceaccounts"), ("sa",)),
    (json_resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"), ("pvc",)),
    (json_resource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False), ("pv",)),
    (json_resource("coordination.k8s.io", "v1", "Lease", "leases"), ()),
    (DEPLOYMENTS, ("deploy",)),
)


class ResourceArg(NamedTuple):
    """A kind as written on the command line, and the name of an object; no name means all objects of the kind."""

    kind: str
    name: str = ""


def resource_args(words: Sequence[str]) -> list[ResourceArg]:
    """The kinds and names in `KIND[,KIND] [NAME...]` or `KIND/NAME ...`. Raises `InputError`."""
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


def builtin_resource(word: str) -> Resource[JSON] | None:
    """The built-in kind with that name, plural or short name; None if there is none."""
    word = word.lower()
    for resource, short_names in BUILTIN_RESOURCES:
        singular = resource.kind.lower()
        if word in (singular, resource.plural, resource.name, f"{singular}.{resource.group}", *short_names):
            return resource
    return None


def is_builtin_kind(word: str) -> bool:
    """Whether a word names a kind that is known without asking the server."""
    return word.lower() in JOBS_WORDS or builtin_resource(word) is not None


async def resolve(client: Client, word: str) -> tuple[Resource[JSON], ...]:
    """The kinds that a word names: one, all job kinds, or a category. Raises `InputError` if the server has none."""
    if word.lower() in JOBS_WORDS:
        return JOB_KINDS
    resource = builtin_resource(word)
    if resource is not None:
        return (resource,)
    # Imported here, because few commands need discovery.
    from gangline.kube.discovery import server_resources

    name = word.lower()
    listable = [kind for kind in await server_resources(client) if "list" in kind.verbs]
    for kind in listable:
        full_name = f"{kind.resource.plural}.{kind.resource.version}.{kind.resource.group}"
        if name in (*kind.names, full_name):
            return (kind.resource,)
    # A category, as in kubectl; of each kind the preferred version, which comes first.
    category = {kind.resource.name: kind.resource for kind in reversed(listable) if name in kind.categories}
    if category:
        return tuple(reversed(category.values()))
    raise unknown_kind(word, _similar_kind_hint(name))


def unknown_kind(word: str, hint: str = "") -> InputError:
    """The error for a kind that the server does not have, in kubectl's words."""
    return InputError(f'the server doesn\'t have a resource type "{word}"{hint}')


def _similar_kind_hint(word: str) -> str:
    """A suggestion if the word resembles a job kind; empty for all other words, as in kubectl."""
    from difflib import get_close_matches

    similar = get_close_matches(word, [kind.plural for kind in JOB_KINDS], 1, 0.75)
    return f"; did you mean {similar[0]}?" if similar else ""


def parse_job_arg(word: str) -> tuple[tuple[Resource[JSON], ...], str]:
    """The candidate kinds and the name in `linear`, `tfjob/linear` or `job/linear`; no kinds if the kind is not built in.

    Raises `InputError` for a built-in kind that is no job.
    """
    kind, slash, name = word.rpartition("/")
    if not slash or kind.lower() in JOBS_WORDS:
        return JOB_KINDS, name
    resource = builtin_resource(kind)
    if resource is None:
        return (), name
    if resource not in JOB_KINDS:
        raise _not_a_job_kind(word, kind)
    return (resource,), name


def _not_a_job_kind(word: str, kind: str) -> InputError:
    names = ", ".join(resource.kind.lower() for resource in JOB_KINDS)
    return InputError(f'"{word}": "{kind}" is no kind of training job; write one of {names}')


async def find_job(client: Client, namespace: str, word: str) -> ServerJob:
    """The job with the name in `linear` or `tfjob/linear`, of a built-in kind or one of a custom operator.

    Raises `NotFound`; `InputError` if several kinds have a job of that name, or the kind is no job kind.
    """
    kinds, name = parse_job_arg(word)
    jobs, error = await _find_in_kinds(client, kinds, Key(namespace, name))
    if not jobs and len(kinds) != 1:
        # Imported here, because few commands need it.
        from gangline.why.custom import custom_kinds

        kind = "" if kinds else word.rpartition("/")[0]
        custom = await custom_kinds(client, kind)
        if kind and not custom:
            raise _not_a_job_kind(word, kind)
        jobs, error = await _find_in_kinds(client, custom, Key(namespace, name))
    if len(jobs) > 1:
        names = " or ".join(f"{job.resource.kind.lower()}/{name}" for job in jobs)
        raise InputError(f'"{name}" is the name of several jobs; write {names}')
    if not jobs and error is not None and "/" in word:
        raise error
    if not jobs:
        raise no_such_job(namespace, name, await _job_names(client, namespace))
    return jobs[0]


async def _job_names(client: Client, namespace: str) -> list[str]:
    """The names of the jobs of the built-in kinds in a namespace, as far as they may be read; newest first."""
    bodies: list[JSON] = []
    for resource in JOB_KINDS:
        with suppress(KubeError):
            bodies += (await client.list(resource, Selector(namespace))).items
    bodies.sort(key=lambda body: str(body["metadata"].get("creationTimestamp", "")), reverse=True)
    return [body["metadata"]["name"] for body in bodies]


async def find_unfinished_job(client: Client, namespace: str, word: str, remedy: str) -> ServerJob:
    """`find_job`, for a command that needs a job that has not finished. Raises `InputError` with the remedy."""
    return require_unfinished(await find_job(client, namespace, word), remedy)


async def _find_in_kinds(
    client: Client, kinds: Sequence[Resource[JSON]], key: Key
) -> tuple[list[ServerJob], NotFound | None]:
    """The jobs with that key, and the server's first error for a kind that has none."""
    jobs: list[ServerJob] = []
    first_error: NotFound | None = None
    if len(kinds) > 1 and isinstance(client.transport, BlockingTransport):
        await client.transport.pipeline([Request("GET", object_path(kind, key)) for kind in kinds])
    for resource in kinds:
        try:
            jobs.append(ServerJob(resource, await client.get(resource, key)))
        except NotFound as error:
            first_error = first_error or error
    return jobs, first_error


def no_such_job(namespace: str, name: str, others: Sequence[str] | None = None) -> NotFound:
    """The error for a name that no training job of any kind has. `others`: the jobs that there are, if that is known."""
    from gangline.kube.errors import Status

    message = f'no training job "{name}" in namespace "{namespace}"'
    if others:
        from difflib import get_close_matches

        similar = get_close_matches(name, others, 1)
        more = f" and {len(others) - MAX_NAMES} more" if len(others) > MAX_NAMES else ""
        message += f"; did you mean {similar[0]}?" if similar else f"; there is {', '.join(others[:MAX_NAMES])}{more}"
    elif others is not None:
        message += "; there is none at all: in other namespaces look with -A, start one with gangline run"
    return NotFound(Status(status="Failure", message=message, reason="NotFound", code=404))
