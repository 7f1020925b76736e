"""`gangline apply` (also `submit`) and `gangline create`: objects from files."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import FIELD_MANAGER, ServerOptions, ServerTarget
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import server_options
from gangline.cli.manifests.files import NO_OBJECTS, ResourceFinder, read_files, resolve_manifest
from gangline.cli.manifests.server_errors import rejection_text
from gangline.cli.output import formats, tables
from gangline.cli.resources.lookup import resource_name, resource_version
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.options import FieldValidation, WriteOptions


class ApplyFlags(NamedTuple):
    """How to write."""

    dry_run: str
    output_format: formats.OutputFormat
    validation: FieldValidation
    field_manager: str
    force: bool = False


_FILE_OPTIONS = (
    click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path()),
    click.option("-f", "--filename", "more", multiple=True, metavar="FILE", help="A file or folder; - is stdin."),
    click.option("-R", "--recursive", is_flag=True, help="Look into folders below those given."),
    click.option(
        "--dry-run",
        type=click.Choice(["none", "client", "server"]),
        default="none",
        help="client: send nothing; server: all checks, nothing kept.",
    ),
    click.option("-o", "--output", "form", default="", metavar="FORM", help="name, json, yaml, jsonpath=…"),
    click.option(
        "--validate",
        type=click.Choice(["strict", "warn", "ignore"]),
        default="strict",
        show_default=True,
        help="What becomes of fields that the server does not know.",
    ),
    click.option("--field-manager", "manager", default=FIELD_MANAGER, show_default=True, help="Who owns the fields."),
)


def _file_options(command: Any) -> Any:
    for option in reversed(_FILE_OPTIONS):
        command = option(command)
    return command


@cli_command()
@_file_options
@click.option("--force-conflicts", "force", is_flag=True, help="Take fields that somebody else owns.")
@click.option("--server-side", is_flag=True, hidden=True, help="Always so.")
@server_options
def apply(files: tuple[str, ...], more: tuple[str, ...], recursive: bool, server: ServerOptions, **given: Any) -> int:
    r"""Make objects as files say, or change those that are there (server-side apply).

    What is wrong with a file is told with its line.

    \b
      gangline apply -f job.yaml
      gangline submit job.yaml                      the same
      gangline apply -R -f jobs/ --dry-run server
      kustomize build . | gangline apply -f -

    Exit codes: 0, or 1 when something was refused.
    """
    given.pop("server_side")
    return _write_files(files + more, recursive, server, _apply_flags(given), _apply_object)


@cli_command()
@_file_options
@server_options
def create(files: tuple[str, ...], more: tuple[str, ...], recursive: bool, server: ServerOptions, **given: Any) -> int:
    r"""Create what files hold. What is there already is an error; generateName works.

    \b
      gangline create -f job.yaml

    Exit codes: 0, or 1 when something was refused.
    """
    return _write_files(files + more, recursive, server, _apply_flags(given), _create_object)


def _apply_flags(given: dict[str, Any]) -> ApplyFlags:
    return ApplyFlags(
        dry_run=given["dry_run"],
        output_format=formats.parse_format(given["form"]),
        validation=FieldValidation(given["validate"].capitalize()),
        field_manager=given["manager"],
        force=given.get("force", False),
    )


def _write_files(files: Sequence[str], recursive: bool, server: ServerOptions, options: ApplyFlags, write: Any) -> int:
    if not files:
        raise InputError("name a file: -f FILE, or -f - for standard input")
    found = read_files(files, recursive=recursive)
    if not found:
        raise InputError(f"{', '.join(files)}: {NO_OBJECTS}; give a file with a job")

    async def work(client: Client, place: ServerTarget) -> int:
        dry = options.dry_run == "server"
        writer = client.with_options(
            WriteOptions(options.field_manager, dry_run=dry, field_validation=options.validation)
        )
        failed, done, catalogue = False, [], ResourceFinder(client)
        for document in found:
            try:
                resource, key, body = await resolve_manifest(catalogue, document, place)
                done.append(await _write_document(writer, resource, key, body, options, write))
            except (ApiError, InputError) as error:
                click.echo(rejection_text(document, error), err=True)
                failed = True
        if not options.output_format.is_table and options.output_format.name != formats.NAME and done:
            tables.write_stdout(formats.format_objects(done, options.output_format, single=len(found) == 1))
        return 1 if failed else 0

    return run_blocking(server, work)


async def _write_document(
    client: Client, resource: Resource[JSON], key: Key, body: JSON, options: ApplyFlags, write: Any
) -> JSON:
    typed = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    if options.dry_run == "client":
        done, what = typed, "created"
    else:
        done, what = await write(client, resource, key, typed, options)
    name = resource_name(resource, done["metadata"].get("name", key.name))
    if options.output_format.name == formats.NAME:
        click.echo(name)
    elif options.output_format.is_table:
        click.echo(f"{name} {what}{formats.DRY_RUN_SUFFIXES[options.dry_run]}")
    return {"apiVersion": resource.api_version, "kind": resource.kind, **done}


async def _apply_object(
    client: Client, resource: Resource[JSON], key: Key, body: JSON, options: ApplyFlags
) -> tuple[JSON, str]:
    if not key.name:
        raise InputError("metadata.name: is missing; generateName works with create only")
    try:
        before: JSON | None = await client.get(resource, key)
    except NotFound:
        before = None
    done = await client.apply(resource, body, owner=options.field_manager, force=options.force)
    if before is None:
        return done, "created"
    return done, "unchanged" if resource_version(before) == resource_version(done) else "configured"


async def _create_object(
    client: Client, resource: Resource[JSON], key: Key, body: JSON, options: ApplyFlags
) -> tuple[JSON, str]:
    return await client.create(resource, body, namespace=key.namespace), "created"
