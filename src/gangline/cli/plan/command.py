"""`gangline plan`: what a job in a file would create, without creating it."""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import click
import msgspec

from gangline.api.codec.documents import Document
from gangline.api.core import Service
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, JobKind
from gangline.api.meta import JSON, Key, Selector
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import server_options
from gangline.cli.manifests.files import NO_OBJECTS, read_files
from gangline.cli.output import formats, tables
from gangline.cli.resources.replicas import JOB_NAME
from gangline.kube.client import Client
from gangline.kube.errors import NotFound

EXIT_SAME, EXIT_DIFFERENT, EXIT_ERROR = 0, 1, 2
SERVER_FIELDS = ("ownerReferences",)


class GangMode(Enum):
    """Which jobs are gangs: of none it is known, those with a scheduling policy, or all."""

    NONE, REQUESTED, ALL = range(3)


@cli_command()
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path())
@click.option("-f", "--filename", "more", multiple=True, metavar="FILE", help="A file or folder; - is stdin.")
@click.option("-R", "--recursive", is_flag=True, help="Look into folders below those given.")
@click.option("-o", "--output", "form", type=click.Choice(["tree", "yaml", "json", "name"]), default="tree")
@click.option("--diff", is_flag=True, help="Compare with what is on the server.")
@click.option("--fit", is_flag=True, help="Say whether the nodes have room for it now, and if not, what is missing.")
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
        from gangline.cli.plan.fit import print_fit

        return print_fit(files + more, server, recursive=recursive, form=form)
    try:
        jobs = _read_job_documents(files + more, recursive)
        planned = [
            planned_objects(job, server.namespace or "", gangs=GangMode.ALL if gang else GangMode.REQUESTED)
            for job in jobs
        ]
    except InputError as error:
        click.echo(f"error: {error}", err=True)
        return EXIT_ERROR if diff else 1
    if not diff:
        _print_plan(planned, form)
        return 0

    async def work(client: Client, place: ServerTarget) -> int:
        lines = [line for job in jobs for line in await _diff_job(client, job, place, gang=gang)]
        tables.write_stdout("".join(f"{line}\n" for line in lines))
        return EXIT_DIFFERENT if any(not line.startswith("  ") for line in lines) else EXIT_SAME

    return run_blocking(server, work, missing=EXIT_ERROR, failed=EXIT_ERROR)


async def _diff_job(client: Client, job: tuple[Document, JobKind], place: ServerTarget, *, gang: bool) -> list[str]:
    gangs = GangMode.ALL if gang else GangMode.NONE
    head, bodies = planned_objects(job, place.flag_namespace, place.object_namespace, gangs=gangs)
    where = Selector(head["metadata"]["namespace"], f"{JOB_NAME}={head['metadata']['name']}")
    services = tuple((await client.list(Service, where)).items)
    # On one machine addresses are on the services, and pods are told those.
    books = [
        each.metadata.annotations[ADDRESSES_ANNOTATION]
        for each in services
        if ADDRESSES_ANNOTATION in each.metadata.annotations
    ]
    if books:
        known = {service.metadata.name for service in services}
        new = [body for body in bodies if body["kind"] == "Service" and body["metadata"]["name"] not in known]
        services += tuple(_with_address_book(body, books[0]) for body in new)
        _, told = planned_objects(job, place.flag_namespace, place.object_namespace, services, gangs)
        bodies = [*(body for body in bodies if body["kind"] == "Service"), *told]
    return await diff_lines(client, head, bodies)


def _with_address_book(body: JSON, book: str) -> Service:
    """A service that is not there yet, with any address: without one its pods could not be planned."""
    service = msgspec.convert(body, Service)
    notes = {**service.metadata.annotations, ADDRESSES_ANNOTATION: book}
    return msgspec.structs.replace(service, metadata=msgspec.structs.replace(service.metadata, annotations=notes))


def _read_job_documents(names: Sequence[str], recursive: bool) -> list[tuple[Document, JobKind]]:
    if not names:
        raise InputError("name a file, a folder, or - for standard input")
    from gangline.cli.manifests.lint import Finding, LintError, kind_of

    found, read = [], read_files(names, recursive=recursive)
    for document in read:
        facts = kind_of(document)
        if isinstance(facts, Finding):
            raise LintError([facts])
        if isinstance(facts, JobKind):
            found.append((document, facts))
    if not found:
        told = "holds no training job" if read else NO_OBJECTS
        raise InputError(f"{', '.join(names)}: {told}; give a file with a job")
    return found


def planned_objects(
    found: tuple[Document, JobKind],
    asked: str = "",
    default: str = "default",
    services: tuple[Service, ...] = (),
    gangs: GangMode = GangMode.NONE,
    *,
    bare: bool = False,
) -> tuple[JSON, list[JSON]]:
    """A job, and the bodies of all that it would have, in the order of their creation. Raises `InputError`.

    It is in the namespace asked for, else in its own, else in the default one. With `services` it is planned for the
    machine whose addresses they carry, else for a cluster; `gangs` says which jobs are placed by the scheduler of gangline.
    `bare` leaves out the containers that an operator on one machine does not add, for want of images.
    """
    from gangline.jobs.plan.actions import Create
    from gangline.jobs.plan.plan import reconcile_plan as decide
    from gangline.operator.engine import OPERATOR_SCHEME

    document = found[0]
    framework, seen = observed_job(found, asked, default, services, gangs, bare=bare)
    metadata = seen.job.metadata
    bodies = []
    for stage in decide(framework, seen).stages:
        for action in stage:
            if not isinstance(action, Create):
                continue
            resource = OPERATOR_SCHEME.find(action.resource.partition(".")[0])
            bodies.append({"apiVersion": resource.api_version, "kind": resource.kind, **action.body})
    written = {**document.body["metadata"], "namespace": metadata.namespace, "name": metadata.name}
    return {**document.body, "metadata": written}, bodies


def observed_job(
    found: tuple[Document, JobKind],
    asked: str = "",
    default: str = "default",
    services: tuple[Service, ...] = (),
    gangs: GangMode = GangMode.NONE,
    *,
    bare: bool = False,
) -> tuple[Any, Any]:
    """The framework of a job in a file, and what its operator would see of the job if it were new. Raises `InputError`."""
    from gangline.api.codec.codec import decode_document
    from gangline.base.clock import SystemClock
    from gangline.cli.manifests.lint import LintError, check_job, framework_of
    from gangline.jobs.plan.observed import JobChildren, ObservedJob

    document, facts = found
    wrong = check_job(document, facts)
    if wrong:
        raise LintError(wrong)
    job = decode_document(document, facts.model)
    metadata = msgspec.structs.replace(
        job.metadata,
        namespace=asked or job.metadata.namespace or default,
        name=job.metadata.name or f"{job.metadata.generate_name}xxxxx",
    )
    settings = _operator_settings(gangs, local=bool(services))
    if bare:
        settings = msgspec.structs.replace(settings, pytorch_init_image="", mpi_delivery_image="")
    framework = framework_of(facts.kind, settings)
    seen = ObservedJob.of(
        framework,
        msgspec.structs.replace(job, metadata=metadata),
        SystemClock().now(),
        JobChildren(services=services),
        settings.site,
    )
    return framework, seen


def _operator_settings(gangs: GangMode, *, local: bool) -> Any:
    """Of the operator for which is planned."""
    from gangline.jobs.gangs.gangline import GanglineScheduler
    from gangline.jobs.pods.addressing import Site
    from gangline.operator.settings import LOCAL_GANG_SETTINGS, LOCAL_SETTINGS, OperatorSettings

    if local:
        return LOCAL_GANG_SETTINGS if gangs is GangMode.ALL else LOCAL_SETTINGS
    if gangs is GangMode.NONE:
        return OperatorSettings()
    return OperatorSettings(site=Site(gang_scheduler=GanglineScheduler(), gangs_on_request=gangs is GangMode.REQUESTED))


def _print_plan(planned: Sequence[tuple[JSON, list[JSON]]], form: str) -> None:
    bodies = [body for _, found in planned for body in found]
    if form == "tree":
        tables.write_stdout("".join(f"{line}\n" for job, found in planned for line in tree_lines(job, found)))
    elif form == "name":
        tables.write_stdout("".join(f"{formats.object_name(body)}\n" for body in bodies))
    elif form == "yaml":
        tables.write_stdout("---\n".join(map(formats.as_yaml, bodies)))
    else:
        tables.write_stdout(formats.as_json(formats.list_object(bodies)))


def tree_lines(job: JSON, bodies: Sequence[JSON]) -> Iterator[str]:
    """The job and what is below it."""
    yield f"{formats.object_name(job)} in {job['metadata']['namespace']}"
    for number, body in enumerate(bodies):
        last = number == len(bodies) - 1
        yield f"{'└──' if last else '├──'} {body['kind'].lower()}/{body['metadata']['name']}{_object_details(body)}"
        below = "    " if last else "│   "
        for line in _container_lines(body):
            yield f"{below}  {line}"


def _object_details(body: JSON) -> str:
    spec = body.get("spec") or {}
    if body["kind"] == "Service":
        ports = ", ".join(f"{port.get('name', '')} {port['port']}" for port in spec.get("ports") or ())
        return f"  {ports}" if ports else ""
    if body["kind"] == "PodGroup":
        queue = f", queue {spec['queue']}" if spec.get("queue") else ""
        return f"  {spec['minMember']} pods at once or none{queue}"
    return f"  restart {spec['restartPolicy']}" if body["kind"] == "Pod" and spec.get("restartPolicy") else ""


def _container_lines(body: JSON) -> Iterator[str]:
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


async def diff_lines(client: Client, job: JSON, bodies: Sequence[JSON]) -> list[str]:
    """One line for each object: `+` is not there, `~` differs and where, two spaces are as planned."""
    from gangline.operator.engine import OPERATOR_SCHEME

    lines = []
    for body in (job, *bodies):
        resource = client.unstructured(OPERATOR_SCHEME.kind(body["apiVersion"], body["kind"]))
        key = Key(job["metadata"]["namespace"], body["metadata"]["name"])
        name = formats.object_name(body)
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
            if name in SERVER_FIELDS or (not path and name == "status"):
                continue
            yield from differences(value, there.get(name), f"{path}.{name}" if path else name)
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) <= len(there):
        for number, value in enumerate(wanted):
            called = value.get("name", number) if isinstance(value, dict) else number
            yield from differences(value, there[number], f"{path}[{called}]")
    elif wanted != there and not (wanted in ({}, [], "", None) and there is None):
        yield f"{path}: {_json_excerpt(there)} -> {_json_excerpt(wanted)}"


def _json_excerpt(value: Any) -> str:
    return tables.clipped_text(msgspec.json.encode(value).decode(), 60)
