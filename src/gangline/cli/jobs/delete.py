"""`gangline delete`: jobs by name, objects of any kind, or what files hold."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import click

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import FIELD_MANAGER, ServerOptions, ServerTarget
from gangline.cli.errors import error_line
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import server_options_all
from gangline.cli.output.formats import DRY_RUN_SUFFIXES
from gangline.cli.resources.lookup import (
    JOBS_WORDS,
    builtin_resource,
    find_job,
    resolve,
    resource_args,
    resource_name,
)
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.options import DeletionPropagation, WriteOptions
from gangline.kube.transport.blocking import BlockingClock

POLL_INTERVAL = timedelta(milliseconds=200)


class DeleteTarget(NamedTuple):
    """One object to delete."""

    resource: Resource[JSON]
    key: Key
    uid: str = ""


class DeleteFlags(NamedTuple):
    """How to delete."""

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
@click.option("-f", "--filename", "files", multiple=True, metavar="FILE", help="Delete what files hold; - is stdin.")
@click.option("-R", "--recursive", is_flag=True, help="Look into folders below those given.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="All of a kind with these labels.")
@click.option("--all", "all_of_kind", is_flag=True, help="All of a kind in the namespace.")
@click.option("--grace-period", type=int, metavar="SECONDS", help="How long pods may take to end.")
@click.option("--now", is_flag=True, help="The same as --grace-period 1.")
@click.option("--force", is_flag=True, help="The same as --grace-period 0.")
@click.option(
    "--cascade",
    type=click.Choice(["background", "foreground", "orphan"]),
    default="background",
    show_default=True,
    help="What becomes of an object's own objects, such as a job's pods.",
)
@click.option("--wait/--no-wait", default=True, help="Whether to wait until it is gone.")
@click.option("--timeout", type=DURATION, default="0", metavar="DURATION", help="How long to wait; 0 is for ever.")
@click.option(
    "--dry-run",
    type=click.Choice(["none", "client", "server"]),
    default="none",
    help="Only say what would go.",
)
@click.option("--ignore-not-found", is_flag=True, help="Exit 0 when there is nothing to delete.")
@click.option("-o", "--output", type=click.Choice(["", "name"]), default="", help="name: only names.")
@server_options_all
def delete(words: tuple[str, ...], files: tuple[str, ...], recursive: bool, server: ServerOptions, **given: Any) -> int:
    r"""Delete jobs, with all that belongs to them; or objects of any kind.

    A bare word is a job of any kind.

    \b
      gangline delete linear
      gangline delete tfjob/linear pytorchjob/bert
      gangline delete pods -l training.kubeflow.org/job-name=linear
      gangline delete jobs --all
      gangline delete -f job.yaml

    Exit codes: 0, or 1 when something was not there.
    """
    options = _delete_flags(given)
    if bool(words) == bool(files):
        raise InputError("say what to delete: a job, KIND/NAME, or -f FILE")

    async def work(client: Client, place: ServerTarget) -> int:
        if files:
            doomed = [one async for one in _file_targets(client, place, files, recursive)]
        else:
            doomed = [one async for one in delete_targets(client, place, words, options)]
        return await delete_all(client, doomed, options)

    return run_blocking(server, work)


def _delete_flags(given: dict[str, Any]) -> DeleteFlags:
    seconds = 0 if given["force"] else 1 if given["now"] else given["grace_period"]
    return DeleteFlags(
        propagation=DeletionPropagation(given["cascade"].capitalize()),
        grace=timedelta(seconds=seconds) if seconds is not None and seconds >= 0 else None,
        wait=given["wait"],
        timeout=given["timeout"],
        dry_run=given["dry_run"],
        ignore_not_found=given["ignore_not_found"] or given["all_of_kind"] or bool(given["selector"]),
        selector=given["selector"],
        all_of_kind=given["all_of_kind"],
        name_only=given["output"] == "name",
    )


async def delete_targets(
    client: Client, place: ServerTarget, words: Sequence[str], options: DeleteFlags
) -> AsyncIterator[DeleteTarget]:
    """What the words of the command line mean. Raises `NotFound` and `InputError`."""
    first = words[0].lower()
    is_kind = "/" not in first and (first in JOBS_WORDS or builtin_resource(first) is not None)
    every = options.all_of_kind or bool(options.selector)
    if not is_kind and not every and len(words) > 1 and "/" not in first:
        is_kind = await _is_kind(client, place, words[0])
    if not is_kind and not every:
        async for one in _named_targets(client, place, words):
            yield one
        return
    if not every and len(words) == 1:
        raise InputError("resource(s) were provided, but no name was specified; name one, or pass --all or -l")
    for target in resource_args(words):
        for resource in await resolve(client, target.kind):
            if not target.name:
                where = Selector(place.namespace if resource.namespaced else "", options.selector)
                async for one in _selected_targets(client, resource, where, several=first in JOBS_WORDS):
                    yield one
            elif target.kind.lower() not in JOBS_WORDS:
                yield DeleteTarget(resource, Key(place.object_namespace if resource.namespaced else "", target.name))
        if target.name and target.kind.lower() in JOBS_WORDS:
            job = await find_job(client, place.object_namespace, target.name)
            yield DeleteTarget(job.resource, job.key)


async def _is_kind(client: Client, place: ServerTarget, word: str) -> bool:
    """Whether the first of several words is a kind that only the server knows, as `queue`. A job of that name comes first."""
    try:
        await find_job(client, place.object_namespace, word)
    except NotFound:
        try:
            await resolve(client, word)
        except InputError:
            return False
        return True
    return False


async def _named_targets(client: Client, place: ServerTarget, words: Sequence[str]) -> AsyncIterator[DeleteTarget]:
    for word in words:
        kind, slash, name = word.rpartition("/")
        if not slash or kind.lower() in JOBS_WORDS:
            job = await find_job(client, place.object_namespace, word)
            yield DeleteTarget(job.resource, job.key, job.body["metadata"]["uid"])
        else:
            (resource, *_) = await resolve(client, kind)
            yield DeleteTarget(resource, Key(place.object_namespace if resource.namespaced else "", name))


async def _selected_targets(
    client: Client, resource: Resource[JSON], where: Selector, *, several: bool
) -> AsyncIterator[DeleteTarget]:
    try:
        async for body in client.iterate(resource, where):
            metadata = body["metadata"]
            yield DeleteTarget(resource, Key(metadata.get("namespace", ""), metadata["name"]), metadata["uid"])
    except NotFound:
        if not several:
            raise


async def _file_targets(
    client: Client, place: ServerTarget, files: Sequence[str], recursive: bool
) -> AsyncIterator[DeleteTarget]:
    from gangline.cli.manifests.files import ResourceFinder, read_files, resolve_manifest

    catalogue = ResourceFinder(client)
    for document in read_files(files, recursive=recursive):
        resource, key, _ = await resolve_manifest(catalogue, document, place)
        yield DeleteTarget(resource, key)


async def delete_all(client: Client, doomed: Sequence[DeleteTarget], options: DeleteFlags) -> int:
    """Delete, tell, and wait. Gives the exit code."""
    writer = client.with_options(WriteOptions(FIELD_MANAGER, dry_run=options.dry_run == "server"))
    failed, gone = False, []
    for one in doomed:
        try:
            if options.dry_run != "client":
                await writer.delete(
                    one.resource,
                    one.key,
                    uid=one.uid or None,
                    propagation=options.propagation,
                    grace=options.grace,
                )
        except (NotFound, Conflict) as error:
            failed = failed or not (options.ignore_not_found and isinstance(error, NotFound))
            if not (options.ignore_not_found and isinstance(error, NotFound)):
                click.echo(error_line(error), err=True)
            continue
        click.echo(_deleted_message(one, options))
        gone.append(one)
    if not doomed:
        click.echo("No resources found", err=True)
    if options.wait and options.dry_run == "none":
        failed = not await _wait_until_deleted(client, gone, options.timeout, BlockingClock()) or failed
    return 1 if failed else 0


def _deleted_message(one: DeleteTarget, options: DeleteFlags) -> str:
    if options.name_only:
        return resource_name(one.resource, one.key.name)
    group = f".{one.resource.group}" if one.resource.group else ""
    where = f" from {one.key.namespace} namespace" if one.key.namespace else ""
    how = DRY_RUN_SUFFIXES[options.dry_run]
    word = "force deleted" if options.grace == timedelta() else "deleted"
    return f'{one.resource.kind.lower()}{group} "{one.key.name}" {word}{where}{how}'


async def _wait_until_deleted(client: Client, gone: Sequence[DeleteTarget], timeout: timedelta, clock: Clock) -> bool:
    """Whether all are gone in time. A new one of the same name does not count."""
    end = clock.monotonic() + timeout.total_seconds() if timeout else None
    for one in gone:
        while await _still_exists(client, one):
            if end is not None and clock.monotonic() > end:
                click.echo(
                    f"error: timed out waiting for {resource_name(one.resource, one.key.name)} to go",
                    err=True,
                )
                return False
            await clock.sleep(POLL_INTERVAL)
    return True


async def _still_exists(client: Client, one: DeleteTarget) -> bool:
    try:
        body = await client.get(one.resource, one.key)
    except NotFound:
        return False
    metadata = body["metadata"]
    # Without a uid: one that is not on its way out came after ours.
    return bool(metadata.get("deletionTimestamp")) and (not one.uid or metadata["uid"] == one.uid)
