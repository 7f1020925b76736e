"""`gangline wait`: until a job has ended or something else holds; the exit code says how it came out."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from typing import TypeAlias

import click

from gangline.api.jsonpath import JSONPath, text_of
from gangline.api.meta import JSON, Key, Selector
from gangline.base.errors import InputError
from gangline.cli.exit_codes import CANCELLED, FAILED, NOT_FOUND, SUCCEEDED, UNFINISHED, verdict
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import Place, ServerOptions, converse, server_options
from gangline.cli.flags.verb import completed_by, verb
from gangline.cli.output.job_rows import conditions, finished, holds, replica_specs, state
from gangline.cli.resources.lookup import JOB_KINDS, FoundJob, find_job, known, resolve
from gangline.cli.resources.watch import changes
from gangline.kube.client import Client
from gangline.kube.errors import NotFound

Goal: TypeAlias = Callable[[JSON | None], int | None]
"""The exit code for an object as it is (None: it is gone), or None to go on waiting."""
FOREVER = timedelta(days=7)


@verb()
@click.argument("words", nargs=-1, required=True, metavar="JOB...", shell_complete=completed_by("jobs"))
@click.option(
    "--for",
    "goal",
    default="end",
    metavar="WHAT",
    help="end (the default), condition=NAME[=VALUE], delete, create, or jsonpath='{PATH}'[=VALUE].",
)
@click.option(
    "--timeout", type=DURATION, default="0", metavar="DURATION", help="Give up after so long (exit code 101)."
)
@server_options
def wait(words: tuple[str, ...], goal: str, timeout: timedelta, server: ServerOptions) -> int:
    r"""Wait for jobs to end, or for something else, and exit with the verdict.

    \b
      gangline wait linear && ./publish
      gangline wait linear --for condition=Running --timeout 2m
      gangline wait linear --for delete
      gangline wait tfjob/linear --for jsonpath='{.status.replicaStatuses.Worker.active}'=3
      gangline wait pod/linear-worker-0 --for condition=Ready

    Exit codes: 0 it holds (the job succeeded); 100 the job failed, so it never will; 101 not in time; 102 no such
    job; 103 deleted before. Of several jobs the worst counts.
    """
    wanted = goal_of(goal)
    limit = timeout if timeout.total_seconds() > 0 else FOREVER

    async def work(client: Client, place: Place) -> int:
        codes = []
        try:
            async with asyncio.timeout(limit.total_seconds()):
                for word in words:
                    codes.append(await _one(client, place, word, wanted, goal))  # noqa: PERF401 - kept on timeout
        except TimeoutError:
            click.echo(f"error: timed out waiting for {goal} on {words[len(codes)]}", err=True)
            codes.append(UNFINISHED)
        return max(codes)

    return converse(server, work, missing=NOT_FOUND, afterwards=work)


def goal_of(text: str) -> Goal:
    """What to wait for. Raises `InputError`."""
    word, _, rest = text.partition("=")
    match word:
        case "end":
            return _end
        case "delete":
            return lambda body: SUCCEEDED if body is None else None
        case "create":
            return lambda body: SUCCEEDED if body is not None else None
        case "condition" if rest:
            name, _, value = rest.partition("=")
            return _condition(name, value or "True")
        case "jsonpath" if rest:
            return _jsonpath(rest)
    raise InputError(
        f"--for \"{text}\": write end, delete, create, condition=NAME or jsonpath='{{PATH}}'=VALUE"
    )


def _end(body: JSON | None) -> int | None:
    return verdict(body) if body is None or finished(body) else None


def _condition(name: str, value: str) -> Goal:
    def met(body: JSON | None) -> int | None:
        if body is None:
            return CANCELLED
        found = next((one for one in conditions(body) if one.get("type", "").lower() == name.lower()), None)
        if found is not None and str(found.get("status")).lower() == value.lower():
            return SUCCEEDED
        return _never(body)

    return met


def _jsonpath(text: str) -> Goal:
    path, equals, value = _split(text)
    template = JSONPath.of_field(path)

    def met(body: JSON | None) -> int | None:
        if body is None:
            return CANCELLED
        found = template.first(body)
        if found is not None and (not equals or text_of(found) == value):
            return SUCCEEDED
        return _never(body)

    return met


def _split(text: str) -> tuple[str, bool, str]:
    """Path and value of `{.a}=b`; a brace may hold an equals sign of its own."""
    end = text.rfind("}") + 1
    path, sign, value = (text[:end], *text[end:].partition("=")[1:]) if end else text.partition("=")
    return path, bool(sign), value.strip("'\"")


def _never(body: JSON) -> int | None:
    """What a job that has ended without it can still come to: nothing."""
    if str(body.get("apiVersion", "")).startswith("kubeflow.org/") and finished(body):
        return FAILED if holds(body, "Failed") else UNFINISHED
    return None


async def _one(client: Client, place: Place, word: str, goal: Goal, text: str) -> int:
    try:
        found = await _found(client, place, word)
    except NotFound as error:
        if text == "delete":
            return SUCCEEDED
        if text != "create" or place.left is not None:
            raise
        return await _created(client, place, word, error)
    code = goal(found.body)
    if code is None and place.left is not None:
        click.echo(f"{found.shown} {_standstill(found.body)}", err=True)
        return UNFINISHED
    if code is None:
        code = await _until(client, found, goal)
    _tell(found.shown, text, code)
    return code


def _standstill(body: JSON) -> str:
    """What becomes of an object while nobody serves it: nothing."""
    if finished(body):
        return "ended without it"
    now = f"is {state(body)}, and" if replica_specs(body) else "is as it is, and"
    return f"{now} stays so while no server is running; start one: gangline up --detach"


def _tell(name: str, text: str, code: int) -> None:
    met = "condition met" if text != "end" else "ended"
    said = {
        SUCCEEDED: met if text != "end" else "succeeded",
        FAILED: "failed",
        CANCELLED: "was deleted",
        UNFINISHED: "ended without it",
    }
    click.echo(f"{name} {said[code]}", err=code != SUCCEEDED)


async def _found(client: Client, place: Place, word: str) -> FoundJob:
    kind, slash, name = word.rpartition("/")
    if not slash or known(kind) in JOB_KINDS or kind.lower() in ("job", "jobs"):
        return await find_job(client, place.home, word)
    (resource, *_) = await resolve(client, kind)
    key = Key(place.home if resource.namespaced else "", name)
    return FoundJob(resource, await client.get(resource, key))


async def _created(client: Client, place: Place, word: str, error: NotFound) -> int:
    kind, slash, name = word.rpartition("/")
    if not slash:
        raise InputError(f'--for create: "{word}": write KIND/NAME, such as tfjob/{word}') from error
    (resource, *_) = await resolve(client, kind)
    where = Selector(place.home if resource.namespaced else "", fields=f"metadata.name={name}")
    async with aclosing(changes(client, resource, where)) as seen:
        async for each in seen:
            if each.body is not None and not each.deleted:
                return SUCCEEDED
    return UNFINISHED


async def _until(client: Client, found: FoundJob, goal: Goal) -> int:
    key = found.key
    where = Selector(key.namespace, fields=f"metadata.name={key.name}")
    uid, there = found.body["metadata"]["uid"], False
    async with aclosing(changes(client, found.resource, where)) as seen:
        async for each in seen:
            if each.body is None:
                code = None if there else goal(None)
            elif each.body["metadata"]["uid"] != uid:
                continue
            else:
                there = True
                kinded = {**each.body, "apiVersion": found.resource.api_version}
                code = goal(kinded)
                if code is None and each.deleted:
                    code = goal(None)
            if code is not None:
                return code
    return UNFINISHED
