"""`gangline plan`: what a job in a file would create, without creating it."""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import click
import msgspec

from gangline.api.codec.documents import Document
from gangline.api.core import Service
from gangline.api.kubeflow.training import ADDRESSES, JobKind
from gangline.api.meta import JSON, Key, Selector
from gangline.base.errors import InputError
from gangline.cli.flags.server_options import Place, ServerOptions, ask, server_options
from gangline.cli.flags.verb import verb
from gangline.cli.manifests.files import EMPTY, read_files
from gangline.cli.output import formats, tables
from gangline.cli.resources.replicas import JOB_NAME
from gangline.kube.client import Client
from gangline.kube.errors import NotFound

SAME, DIFFERENT, ERROR = 0, 1, 2
MADE_BY_SERVER = ("ownerReferences",)


class Gangs(Enum):
    """Which jobs are gangs: of none it is known, those with a scheduling policy, or all."""

    NONE, ASKED, ALL = range(3)


@verb()
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path())
@click.option("-f", "--filename", "more", multiple=True, metavar="FILE", help="A file or folder; - is stdin.")
@click.option("-R", "--recursive", is_flag=True, help="Look into folders below those given.")
@click.option("-o", "--output", "form", type=click.Choice(["tree", "yaml", "json", "name"]), default="tree")
@click.option("--diff", is_flag=True, help="Compare with what is on the server.")
@click.option(
    "--fit", is_flag=True, help="Say whether the nodes have room for it now, and if not, what is missing."
)
@click.option(
    "--gang",
    is_flag=True,
    help="Plan every job as a gang: all of its pods or none. Without, jobs with a schedulingPolicy.",
)
@server_options
def plan(
    files: tuple[str, ...],
    more: tuple[str, ...],
    recursive: bool,
    form: str,
    diff: bool,
    fit: bool,
    gang: bool,
    server: ServerOptions,
) -> int:
    r"""Show what the jobs in files would create: services, pods with all that is added to them, and the rest.

    A gang has a PodGroup, for the scheduler of gangline; with --diff only if you say --gang, or on a plane of this
    machine: an operator need not use it. No server is asked, except with --diff and --fit. With --fit a FILE may also be the name of a job on the server.

    \b
      gangline plan job.yaml
      gangline plan job.yaml -o yaml | less
      gangline plan job.yaml --diff
      gangline plan job.yaml --gang
      gangline plan job.yaml --fit

    Exit codes: 0; 1 an error. With --diff: 0 all is there as planned, 1 something differs, 2 an error. With --fit: 0
    there is room, 100 there is not.
    """
    if fit and diff:
        raise InputError("--fit and --diff are two questions; ask one of them")
    if fit:
        # Imported here: the scheduler's engine takes a while to load.
        from gangline.cli.plan.fit import answer

        return answer(files + more, server, recursive=recursive, form=form)
    try:
        jobs = _documents(files + more, recursive)
        planned = [
            planned_of(job, server.namespace or "", gangs=Gangs.ALL if gang else Gangs.ASKED) for job in jobs
        ]
    except InputError as error:
        click.echo(f"error: {error}", err=True)
        return ERROR if diff else 1
    if not diff:
        _show(planned, form)
        return 0

    async def work(client: Client, place: Place) -> int:
        lines = [line for job in jobs for line in await _compared(client, job, place, gang=gang)]
        tables.put("".join(f"{line}\n" for line in lines))
        return DIFFERENT if any(not line.startswith("  ") for line in lines) else SAME

    return ask(server, work, missing=ERROR, failed=ERROR)


async def _compared(client: Client, job: tuple[Document, JobKind], place: Place, *, gang: bool) -> list[str]:
    gangs = Gangs.ALL if gang else Gangs.NONE
    head, bodies = planned_of(job, place.asked, place.home, gangs=gangs)
    where = Selector(head["metadata"]["namespace"], f"{JOB_NAME}={head['metadata']['name']}")
    services = tuple((await client.list(Service, where)).items)
    # On one machine addresses are on the services, and pods are told those.
    books = [
        each.metadata.annotations[ADDRESSES] for each in services if ADDRESSES in each.metadata.annotations
    ]
    if books:
        known = {service.metadata.name for service in services}
        new = [body for body in bodies if body["kind"] == "Service" and body["metadata"]["name"] not in known]
        services += tuple(_addressed(body, books[0]) for body in new)
        _, told = planned_of(job, place.asked, place.home, services, gangs)
        bodies = [*(body for body in bodies if body["kind"] == "Service"), *told]
    return await compared(client, head, bodies)


def _addressed(body: JSON, book: str) -> Service:
    """A service that is not there yet, with any address: without one its pods could not be planned."""
    service = msgspec.convert(body, Service)
    notes = {**service.metadata.annotations, ADDRESSES: book}
    return msgspec.structs.replace(
        service, metadata=msgspec.structs.replace(service.metadata, annotations=notes)
    )


def _documents(names: Sequence[str], recursive: bool) -> list[tuple[Document, JobKind]]:
    if not names:
        raise InputError("name a file, a folder, or - for standard input")
    from gangline.cli.manifests.lint import Finding, Mistakes, kind_of

    found, read = [], read_files(names, recursive=recursive)
    for document in read:
        facts = kind_of(document)
        if isinstance(facts, Finding):
            raise Mistakes([facts])
        if isinstance(facts, JobKind):
            found.append((document, facts))
    if not found:
        told = "holds no training job" if read else EMPTY
        raise InputError(f"{', '.join(names)}: {told}; give a file with a job")
    return found


def planned_of(
    found: tuple[Document, JobKind],
    asked: str = "",
    default: str = "default",
    services: tuple[Service, ...] = (),
    gangs: Gangs = Gangs.NONE,
    *,
    bare: bool = False,
) -> tuple[JSON, list[JSON]]:
    """A job, and the bodies of all that it would have, in the order of their creation. Raises `InputError`.

    It is in the namespace asked for, else in its own, else in the default one. With `services` it is planned for the
    machine whose addresses they carry, else for a cluster; `gangs` says which jobs are placed by the scheduler of gangline.
    `bare` leaves out the containers that an operator on one machine does not add, for want of images.
    """
    from gangline.jobs.plan.actions import Create
    from gangline.jobs.plan.plan import plan as decide
    from gangline.operator.engine import SCHEME

    document = found[0]
    framework, seen = seen_of(found, asked, default, services, gangs, bare=bare)
    metadata = seen.job.metadata
    bodies = []
    for stage in decide(framework, seen).stages:
        for action in stage:
            if not isinstance(action, Create):
                continue
            resource = SCHEME.find(action.resource.partition(".")[0])
            bodies.append({"apiVersion": resource.api_version, "kind": resource.kind, **action.body})
    written = {**document.body["metadata"], "namespace": metadata.namespace, "name": metadata.name}
    return {**document.body, "metadata": written}, bodies


def seen_of(
    found: tuple[Document, JobKind],
    asked: str = "",
    default: str = "default",
    services: tuple[Service, ...] = (),
    gangs: Gangs = Gangs.NONE,
    *,
    bare: bool = False,
) -> tuple[Any, Any]:
    """The framework of a job in a file, and what its operator would see of the job if it were new. Raises `InputError`."""
    from gangline.api.codec.codec import decode_document
    from gangline.base.clock import SystemClock
    from gangline.cli.manifests.lint import Mistakes, check_job, framework_of
    from gangline.jobs.plan.observed import Children, Observed

    document, facts = found
    wrong = check_job(document, facts)
    if wrong:
        raise Mistakes(wrong)
    job = decode_document(document, facts.model)
    metadata = msgspec.structs.replace(
        job.metadata,
        namespace=asked or job.metadata.namespace or default,
        name=job.metadata.name or f"{job.metadata.generate_name}xxxxx",
    )
    settings = _settings(gangs, local=bool(services))
    if bare:
        settings = msgspec.structs.replace(settings, pytorch_init_image="", mpi_delivery_image="")
    framework = framework_of(facts.kind, settings)
    seen = Observed.of(
        framework,
        msgspec.structs.replace(job, metadata=metadata),
        SystemClock().now(),
        Children(services=services),
        settings.site,
    )
    return framework, seen


def _settings(gangs: Gangs, *, local: bool) -> Any:
    """Of the operator for which is planned."""
    from gangline.jobs.gangs.gangline import Gangline
    from gangline.jobs.pods.addressing import Site
    from gangline.operator.settings import LOCAL, LOCAL_GANGS, OperatorSettings

    if local:
        return LOCAL_GANGS if gangs is Gangs.ALL else LOCAL
    if gangs is Gangs.NONE:
        return OperatorSettings()
    return OperatorSettings(site=Site(gangs=Gangline(), gangs_on_request=gangs is Gangs.ASKED))


def _show(planned: Sequence[tuple[JSON, list[JSON]]], form: str) -> None:
    bodies = [body for _, found in planned for body in found]
    if form == "tree":
        tables.put("".join(f"{line}\n" for job, found in planned for line in tree(job, found)))
    elif form == "name":
        tables.put("".join(f"{formats.named(body)}\n" for body in bodies))
    elif form == "yaml":
        tables.put("---\n".join(map(formats.as_yaml, bodies)))
    else:
        tables.put(formats.as_json(formats.listed(bodies)))


def tree(job: JSON, bodies: Sequence[JSON]) -> Iterator[str]:
    """The job and what is below it."""
    yield f"{formats.named(job)} in {job['metadata']['namespace']}"
    for number, body in enumerate(bodies):
        last = number == len(bodies) - 1
        yield f"{'└──' if last else '├──'} {body['kind'].lower()}/{body['metadata']['name']}{_details(body)}"
        below = "    " if last else "│   "
        for line in _parts(body):
            yield f"{below}  {line}"


def _details(body: JSON) -> str:
    spec = body.get("spec") or {}
    if body["kind"] == "Service":
        ports = ", ".join(f"{port.get('name', '')} {port['port']}" for port in spec.get("ports") or ())
        return f"  {ports}" if ports else ""
    if body["kind"] == "PodGroup":
        queue = f", queue {spec['queue']}" if spec.get("queue") else ""
        return f"  {spec['minMember']} pods at once or none{queue}"
    return f"  restart {spec['restartPolicy']}" if body["kind"] == "Pod" and spec.get("restartPolicy") else ""


def _parts(body: JSON) -> Iterator[str]:
    if body["kind"] != "Pod":
        return
    spec = body["spec"]
    for title, found in (("init ", spec.get("initContainers") or ()), ("", spec.get("containers") or ())):
        for container in found:
            wanted = (container.get("resources") or {}).get("limits") or {}
            amounts = " ".join(f"{name}={value}" for name, value in sorted(wanted.items()))
            yield f"{title}{container['name']}: {container.get('image', '')}{f'  {amounts}' if amounts else ''}"
            names = [str(variable["name"]) for variable in container.get("env") or ()]
            if names:
                yield f"  env {' '.join(names)}"


async def compared(client: Client, job: JSON, bodies: Sequence[JSON]) -> list[str]:
    """One line for each object: `+` is not there, `~` differs and where, two spaces are as planned."""
    from gangline.operator.engine import SCHEME

    lines = []
    for body in (job, *bodies):
        resource = client.plain(SCHEME.kind(body["apiVersion"], body["kind"]))
        key = Key(job["metadata"]["namespace"], body["metadata"]["name"])
        name = formats.named(body)
        try:
            there = await client.get(resource, key)
        except NotFound:
            lines.append(f"+ {name}")
            continue
        differing = list(differences(body, there))
        lines.append(f"{'~' if differing else ' '} {name}")
        lines += [f"~   {line}" for line in differing]
    return lines


def differences(wanted: Any, there: Any, path: str = "") -> Iterator[str]:
    """Where what is there is not what is wanted. What a server adds is no difference."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        for name, value in wanted.items():
            if name in MADE_BY_SERVER or (not path and name == "status"):
                continue
            yield from differences(value, there.get(name), f"{path}.{name}" if path else name)
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) <= len(there):
        for number, value in enumerate(wanted):
            called = value.get("name", number) if isinstance(value, dict) else number
            yield from differences(value, there[number], f"{path}[{called}]")
    elif wanted != there and not (wanted in ({}, [], "", None) and there is None):
        yield f"{path}: {_short(there)} -> {_short(wanted)}"


def _short(value: Any) -> str:
    return tables.fitted(msgspec.json.encode(value).decode(), 60)
