"""`gangline apply` (alias `submit`) and `gangline create`: objects from files."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import click

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.base.options import choice_option, option_group
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import FIELD_MANAGER, ServerOptions, ServerTarget
from gangline.cli.exit_codes import ERROR, SUCCEEDED
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.file_options import file_options
from gangline.cli.flags.server_options import server_options
from gangline.cli.manifests.files import NO_OBJECTS, ResourceFinder, read_files, resolve_manifest
from gangline.cli.manifests.ignored_fields import print_ignored_fields
from gangline.cli.manifests.server_errors import rejection_text
from gangline.cli.output import formats, tables
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.summary.objects import resource_name, resource_version


class ApplyFlags(NamedTuple):
    """The flags of `apply` and `create`."""

    dry_run: str
    output_format: formats.OutputFormat
    validation: FieldValidation
    field_manager: str
    force: bool = False


WriteObject = Callable[[Client, Resource[JSON], Key, JSON, ApplyFlags], Awaitable[tuple[JSON, str]]]
"""Writes an object; returns it as the server has it then, and what was done: created, configured, unchanged."""

_file_options = option_group(
    file_options("[FILE...]"),
    click.option(
        "--dry-run",
        type=click.Choice(["none", "client", "server"]),
        default="none",
        show_default=True,
        help="client: only print what would be sent; server: let the server check it without storing it.",
    ),
    click.option(
        "-o",
        "--output",
        "form",
        default="",
        metavar="FORM",
        help="Print the objects in this form: name, json, yaml or jsonpath=TEMPLATE.",
    ),
    choice_option(
        "--validate",
        ["strict", "warn", "ignore"],
        "What to do about fields that the server does not know: refuse, warn, or ignore them.",
    ),
    click.option(
        "--field-manager",
        "manager",
        default=FIELD_MANAGER,
        show_default=True,
        help="Name under which the server records who set the fields.",
    ),
)


@cli_command()
@_file_options
@click.option("--force-conflicts", "force", is_flag=True, help="Also change fields that another tool has set.")
@click.option("--server-side", is_flag=True, hidden=True, help="Accepted as in kubectl; apply is always server-side.")
@server_options
def apply(files: tuple[str, ...], more: tuple[str, ...], recursive: bool, server: ServerOptions, **params: Any) -> int:
    r"""Create or update the jobs and other objects in files.

    \b
      gangline apply -f job.yaml
      gangline submit job.yaml                      the same
      gangline apply -R -f jobs/ --dry-run server   let the server check a folder, change nothing
      kustomize build . | gangline apply -f -       from standard input

    Objects that exist are updated (server-side apply). An error names the file and the line.

    Exit codes: 0 done; 1 an object was refused.
    """
    params.pop("server_side")
    return _write_files(files + more, recursive, server, _apply_flags(params), _apply_object)


@cli_command()
@_file_options
@server_options
def create(files: tuple[str, ...], more: tuple[str, ...], recursive: bool, server: ServerOptions, **params: Any) -> int:
    r"""Create the jobs and other objects in files; one that exists already is an error.

    \b
      gangline create -f job.yaml

    To update objects that exist, use `gangline apply`. A job with metadata.generateName gets a new name each time.

    Exit codes: 0 done; 1 an object was refused.
    """
    return _write_files(files + more, recursive, server, _apply_flags(params), _create_object)


def _apply_flags(params: dict[str, Any]) -> ApplyFlags:
    return ApplyFlags(
        dry_run=params["dry_run"],
        output_format=formats.parse_format(params["form"]),
        validation=FieldValidation(params["validate"].capitalize()),
        field_manager=params["manager"],
        force=params.get("force", False),
    )


def _write_files(
    files: Sequence[str], recursive: bool, server: ServerOptions, flags: ApplyFlags, write: WriteObject
) -> int:
    if not files:
        raise InputError("name a file: -f FILE, or -f - for standard input")
    documents = read_files(files, recursive=recursive)
    if not documents:
        raise InputError(f"{', '.join(files)}: {NO_OBJECTS}; give a file with a job")

    async def work(client: Client, target: ServerTarget) -> int:
        dry_run = flags.dry_run == "server"
        writer = client.with_options(
            WriteOptions(flags.field_manager, dry_run=dry_run, field_validation=flags.validation)
        )
        failed, objects, finder = False, [], ResourceFinder(client)
        for document in documents:
            try:
                resource, key, body = await resolve_manifest(finder, document, target)
                objects.append(await _write_document(writer, resource, key, body, flags, write))
                print_ignored_fields([document])
            except (ApiError, InputError) as error:
                click.echo(rejection_text(document, error), err=True)
                failed = True
        if not flags.output_format.is_table and flags.output_format.name != formats.NAME and objects:
            tables.write_stdout(formats.format_objects(objects, flags.output_format, single=len(documents) == 1))
        return ERROR if failed else SUCCEEDED

    return run_blocking(server, work)


async def _write_document(
    client: Client, resource: Resource[JSON], key: Key, body: JSON, flags: ApplyFlags, write: WriteObject
) -> JSON:
    """Write one object and print a line about it, unless objects are printed at the end. Returns the object."""
    manifest = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    if flags.dry_run == "client":
        result, action = manifest, "created"
    else:
        result, action = await write(client, resource, key, manifest, flags)
    name = resource_name(resource, result["metadata"].get("name", key.name))
    if flags.output_format.name == formats.NAME:
        click.echo(name)
    elif flags.output_format.is_table:
        click.echo(f"{name} {action}{formats.DRY_RUN_SUFFIXES[flags.dry_run]}")
    return {"apiVersion": resource.api_version, "kind": resource.kind, **result}


async def _apply_object(
    client: Client, resource: Resource[JSON], key: Key, body: JSON, flags: ApplyFlags
) -> tuple[JSON, str]:
    if not key.name:
        raise InputError("metadata.name: is missing; generateName works with create only")
    try:
        before: JSON | None = await client.get(resource, key)
    except NotFound:
        before = None
    result = await client.apply(resource, body, owner=flags.field_manager, force=flags.force)
    if before is None:
        return result, "created"
    return result, "unchanged" if resource_version(before) == resource_version(result) else "configured"


async def _create_object(
    client: Client, resource: Resource[JSON], key: Key, body: JSON, flags: ApplyFlags
) -> tuple[JSON, str]:
    return await client.create(resource, body, namespace=key.namespace), "created"
