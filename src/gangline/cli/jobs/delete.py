"""`gangline delete`: jobs by name, objects of any kind, or the objects in files."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import click

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.options import choice_option
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import FIELD_MANAGER, ServerOptions, ServerTarget
from gangline.cli.errors import error_line
from gangline.cli.exit_codes import ERROR, SUCCEEDED
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.file_options import recursive_option
from gangline.cli.flags.server_options import server_options_all
from gangline.cli.output.formats import DRY_RUN_SUFFIXES
from gangline.cli.resources.lookup import JOBS_WORDS, find_job, is_builtin_kind, resolve, resource_args
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.options import DeletionPropagation, WriteOptions
from gangline.kube.transport.blocking import BlockingClock
from gangline.summary.objects import object_key, resource_name

POLL_INTERVAL = timedelta(milliseconds=200)


class DeleteTarget(NamedTuple):
    """An object to delete; with a uid, only that very object and no later one of the same name."""

    resource: Resource[JSON]
    key: Key
    uid: str = ""


class DeleteFlags(NamedTuple):
    """The flags of `delete`."""

    propagation: DeletionPropagation
    grace: timedelta | None
    wait: bool
    timeout: timedelta
    dry_run: str
    ignore_not_found: bool
    selector: str
    all_of_kind: bool
    name_only: bool


@cli_command()
@click.argument(
    "words", nargs=-1, metavar="[JOB... | KIND NAME... | KIND/NAME...]", shell_complete=completed_by("jobs")
)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Delete the objects in a file or folder; - is standard input; may be repeated.",
)
@recursive_option
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="LABELS",
    help="Delete the objects of KIND with these labels, such as app=a,tier!=b.",
)
@click.option("--all", "all_of_kind", is_flag=True, help="Delete all objects of KIND in the namespace.")
@click.option(
    "--grace-period",
    type=int,
    metavar="SECONDS",
    help="How long pods may take to end.  [default: what each pod asks for]",
)
@click.option("--now", is_flag=True, help="End pods within a second: the same as --grace-period 1.")
@click.option("--force", is_flag=True, help="Kill pods at once: the same as --grace-period 0.")
@choice_option(
    "--cascade",
    ["background", "foreground", "orphan"],
    "Delete a job's pods and services after the job, before it, or leave them (orphan).",
)
@click.option("--wait/--no-wait", default=True, help="Return when the objects are gone, or at once.  [default: wait]")
@click.option(
    "--timeout", type=DURATION, default="0", metavar="DURATION", help="How long to wait for that.  [default: no limit]"
)
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    show_default=True,
    help="client, server: only print what would be deleted.",
)
@click.option("--ignore-not-found", is_flag=True, help="Treat an object that does not exist as deleted.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["", "name"]),
    default="",
    metavar="[name]",
    help="name: print only names, for scripts.",
)
@server_options_all
def delete(
    words: tuple[str, ...], files: tuple[str, ...], recursive: bool, server: ServerOptions, **params: Any
) -> int:
    r"""Delete jobs with their pods and services, or objects of any kind.

    \b
      gangline delete linear                        the job "linear", of whatever kind it is
      gangline delete tfjob/linear pytorchjob/bert
      gangline delete jobs --all                    all jobs of the namespace
      gangline delete pods -l training.kubeflow.org/job-name=linear
      gangline delete -f job.yaml                   what a file has created

    Exit codes: 0 deleted; 1 an error, such as an object that does not exist.
    """
    flags = _delete_flags(params)
    if words and files:
        raise InputError(f"{words[0]} and -f {files[0]}: give names or files, not both; leave one of them out")
    if not words and not files:
        raise InputError("what is to be deleted? write gangline delete JOB, KIND/NAME, or -f FILE")

    async def work(client: Client, target: ServerTarget) -> int:
        if files:
            items = [item async for item in _file_targets(client, target, files, recursive)]
        else:
            items = [item async for item in delete_targets(client, target, words, flags)]
        return await delete_all(client, items, flags)

    return run_blocking(server, work)


def _delete_flags(params: dict[str, Any]) -> DeleteFlags:
    seconds = 0 if params["force"] else 1 if params["now"] else params["grace_period"]
    return DeleteFlags(
        propagation=DeletionPropagation(params["cascade"].capitalize()),
        grace=timedelta(seconds=seconds) if seconds is not None and seconds >= 0 else None,
        wait=params["wait"],
        timeout=params["timeout"],
        dry_run=params["dry_run"],
        ignore_not_found=params["ignore_not_found"] or params["all_of_kind"] or bool(params["selector"]),
        selector=params["selector"],
        all_of_kind=params["all_of_kind"],
        name_only=params["output"] == "name",
    )


async def delete_targets(
    client: Client, target: ServerTarget, words: Sequence[str], flags: DeleteFlags
) -> AsyncIterator[DeleteTarget]:
    """The objects that the words of the command line name. Raises `NotFound` and `InputError`."""
    first = words[0].lower()
    is_kind = "/" not in first and is_builtin_kind(first)
    all_selected = flags.all_of_kind or bool(flags.selector)
    if not is_kind and not all_selected and len(words) > 1 and "/" not in first:
        is_kind = await _is_server_kind(client, target, words[0])
    if not is_kind and not all_selected:
        async for item in _named_targets(client, target, words):
            yield item
        return
    if not all_selected and len(words) == 1:
        raise InputError("resource(s) were provided, but no name was specified; name one, or pass --all or -l")
    for arg in resource_args(words):
        for resource in await resolve(client, arg.kind):
            if not arg.name:
                selector = Selector(target.namespace if resource.namespaced else "", flags.selector)
                async for item in _selected_targets(client, resource, selector, several=first in JOBS_WORDS):
                    yield item
            elif arg.kind.lower() not in JOBS_WORDS:
                yield DeleteTarget(resource, Key(target.object_namespace if resource.namespaced else "", arg.name))
        if arg.name and arg.kind.lower() in JOBS_WORDS:
            job = await find_job(client, target.object_namespace, arg.name)
            yield DeleteTarget(job.resource, job.key)


async def _is_server_kind(client: Client, target: ServerTarget, word: str) -> bool:
    """Whether the first of several words is a kind that only the server knows, such as `queue`, and not a job's name."""
    try:
        await find_job(client, target.object_namespace, word)
    except NotFound:
        try:
            await resolve(client, word)
        except InputError:
            return False
        return True
    return False


async def _named_targets(client: Client, target: ServerTarget, words: Sequence[str]) -> AsyncIterator[DeleteTarget]:
    """Jobs by name, and objects by KIND/NAME."""
    for word in words:
        kind, slash, name = word.rpartition("/")
        if not slash or kind.lower() in JOBS_WORDS:
            job = await find_job(client, target.object_namespace, word)
            yield DeleteTarget(job.resource, job.key, job.body["metadata"]["uid"])
        else:
            (resource, *_) = await resolve(client, kind)
            yield DeleteTarget(resource, Key(target.object_namespace if resource.namespaced else "", name))


async def _selected_targets(
    client: Client, resource: Resource[JSON], selector: Selector, *, several: bool
) -> AsyncIterator[DeleteTarget]:
    """The objects that a selector matches. With `several`, a kind that the server does not have has none."""
    try:
        async for body in client.iterate(resource, selector):
            yield DeleteTarget(resource, object_key(body), body["metadata"]["uid"])
    except NotFound:
        if not several:
            raise


async def _file_targets(
    client: Client, target: ServerTarget, files: Sequence[str], recursive: bool
) -> AsyncIterator[DeleteTarget]:
    from gangline.cli.manifests.files import ResourceFinder, read_files, resolve_manifest

    finder = ResourceFinder(client)
    for document in read_files(files, recursive=recursive):
        resource, key, _ = await resolve_manifest(finder, document, target)
        yield DeleteTarget(resource, key)


async def delete_all(client: Client, items: Sequence[DeleteTarget], flags: DeleteFlags) -> int:
    """Delete the objects, print a line for each, and wait until they are gone. Returns the exit code."""
    writer = client.with_options(WriteOptions(FIELD_MANAGER, dry_run=flags.dry_run == "server"))
    failed, deleted = False, []
    for item in items:
        try:
            if flags.dry_run != "client":
                await writer.delete(
                    item.resource, item.key, uid=item.uid or None, propagation=flags.propagation, grace=flags.grace
                )
        except (NotFound, Conflict) as error:
            if not (flags.ignore_not_found and isinstance(error, NotFound)):
                failed = True
                click.echo(error_line(error), err=True)
            continue
        click.echo(_deleted_message(item, flags))
        deleted.append(item)
    if not items:
        click.echo("No resources found", err=True)
    if flags.wait and flags.dry_run == "none":
        failed = not await _wait_until_deleted(client, deleted, flags.timeout, BlockingClock()) or failed
    return ERROR if failed else SUCCEEDED


def _deleted_message(item: DeleteTarget, flags: DeleteFlags) -> str:
    if flags.name_only:
        return resource_name(item.resource, item.key.name)
    group = f".{item.resource.group}" if item.resource.group else ""
    where = f" from {item.key.namespace} namespace" if item.key.namespace else ""
    suffix = DRY_RUN_SUFFIXES[flags.dry_run]
    verb = "force deleted" if flags.grace == timedelta() else "deleted"
    return f'{item.resource.kind.lower()}{group} "{item.key.name}" {verb}{where}{suffix}'


async def _wait_until_deleted(client: Client, items: Sequence[DeleteTarget], timeout: timedelta, clock: Clock) -> bool:
    """Wait until no object exists any more; False on timeout. A new object of the same name does not count."""
    deadline = clock.monotonic() + timeout.total_seconds() if timeout else None
    for item in items:
        while await _still_exists(client, item):
            if deadline is not None and clock.monotonic() > deadline:
                name = resource_name(item.resource, item.key.name)
                click.echo(f"error: timed out waiting for {name} to be deleted", err=True)
                return False
            await clock.sleep(POLL_INTERVAL)
    return True


async def _still_exists(client: Client, item: DeleteTarget) -> bool:
    try:
        body = await client.get(item.resource, item.key)
    except NotFound:
        return False
    metadata = body["metadata"]
    # An object that is not being deleted was created after ours was deleted.
    return bool(metadata.get("deletionTimestamp")) and (not item.uid or metadata["uid"] == item.uid)
