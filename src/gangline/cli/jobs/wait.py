"""`gangline wait`: until a job has ended or something else holds; the exit code says how it came out."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from typing import TypeAlias

import click

from gangline.api.jsonpath import JSONPath, printed_value
from gangline.api.meta import JSON, Key, Selector
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import CANCELLED, FAILED, NOT_FOUND, SUCCEEDED, UNFINISHED, job_exit_code
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.job_rows import conditions, has_condition, is_finished, job_state, replica_specs
from gangline.cli.resources.lookup import JOB_KINDS, ServerJob, builtin_resource, find_job, resolve
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.kube.errors import NotFound

WaitGoal: TypeAlias = Callable[[JSON | None], int | None]
"""The exit code for an object as it is (None: it is gone), or None to go on waiting."""
DEFAULT_TIMEOUT = timedelta(days=7)


@cli_command()
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
    wanted = parse_goal(goal)
    limit = timeout if timeout.total_seconds() > 0 else DEFAULT_TIMEOUT

    async def work(client: Client, place: ServerTarget) -> int:
        codes = []
        try:
            async with asyncio.timeout(limit.total_seconds()):
                for word in words:
                    codes.append(await _wait_for_object(client, place, word, wanted, goal))  # noqa: PERF401 - kept on timeout
        except TimeoutError:
            click.echo(f"error: timed out waiting for {goal} on {words[len(codes)]}", err=True)
            codes.append(UNFINISHED)
        return max(codes)

    return run_async(server, work, missing=NOT_FOUND, afterwards=work)


def parse_goal(text: str) -> WaitGoal:
    """What to wait for. Raises `InputError`."""
    word, _, rest = text.partition("=")
    match word:
        case "end":
            return _end_goal
        case "delete":
            return lambda body: SUCCEEDED if body is None else None
        case "create":
            return lambda body: SUCCEEDED if body is not None else None
        case "condition" if rest:
            name, _, value = rest.partition("=")
            return _condition_goal(name, value or "True")
        case "jsonpath" if rest:
            return _jsonpath_goal(rest)
    raise InputError(f"--for \"{text}\": write end, delete, create, condition=NAME or jsonpath='{{PATH}}'=VALUE")


def _end_goal(body: JSON | None) -> int | None:
    return job_exit_code(body) if body is None or is_finished(body) else None


def _condition_goal(name: str, value: str) -> WaitGoal:
    def met(body: JSON | None) -> int | None:
        if body is None:
            return CANCELLED
        found = next((one for one in conditions(body) if one.get("type", "").lower() == name.lower()), None)
        if found is not None and str(found.get("status")).lower() == value.lower():
            return SUCCEEDED
        return _code_if_finished(body)

    return met


def _jsonpath_goal(text: str) -> WaitGoal:
    path, equals, value = _split_path_value(text)
    template = JSONPath.of_field(path)

    def met(body: JSON | None) -> int | None:
        if body is None:
            return CANCELLED
        found = template.first_value(body)
        if found is not None and (not equals or printed_value(found) == value):
            return SUCCEEDED
        return _code_if_finished(body)

    return met


def _split_path_value(text: str) -> tuple[str, bool, str]:
    """Path and value of `{.a}=b`; a brace may hold an equals sign of its own."""
    end = text.rfind("}") + 1
    path, sign, value = (text[:end], *text[end:].partition("=")[1:]) if end else text.partition("=")
    return path, bool(sign), value.strip("'\"")


def _code_if_finished(body: JSON) -> int | None:
    """What a job that has ended without it can still come to: nothing."""
    if str(body.get("apiVersion", "")).startswith("kubeflow.org/") and is_finished(body):
        return FAILED if has_condition(body, "Failed") else UNFINISHED
    return None


async def _wait_for_object(client: Client, place: ServerTarget, word: str, goal: WaitGoal, text: str) -> int:
    try:
        found = await _find_object(client, place, word)
    except NotFound as error:
        if text == "delete":
            return SUCCEEDED
        if text != "create" or place.archive is not None:
            raise
        return await _wait_for_creation(client, place, word, error)
    code = goal(found.body)
    if code is None and place.archive is not None:
        click.echo(f"{found.display_name} {_standstill_text(found.body)}", err=True)
        return UNFINISHED
    if code is None:
        code = await _watch_until(client, found, goal)
    _print_outcome(found.display_name, text, code)
    return code


def _standstill_text(body: JSON) -> str:
    """What becomes of an object while nobody serves it: nothing."""
    if is_finished(body):
        return "ended without it"
    now = f"is {job_state(body)}, and" if replica_specs(body) else "is as it is, and"
    return f"{now} stays so while no server is running; start one: gangline up --detach"


def _print_outcome(name: str, text: str, code: int) -> None:
    met = "condition met" if text != "end" else "ended"
    said = {
        SUCCEEDED: met if text != "end" else "succeeded",
        FAILED: "failed",
        CANCELLED: "was deleted",
        UNFINISHED: "ended without it",
    }
    click.echo(f"{name} {said[code]}", err=code != SUCCEEDED)


async def _find_object(client: Client, place: ServerTarget, word: str) -> ServerJob:
    kind, slash, name = word.rpartition("/")
    if not slash or builtin_resource(kind) in JOB_KINDS or kind.lower() in ("job", "jobs"):
        return await find_job(client, place.object_namespace, word)
    (resource, *_) = await resolve(client, kind)
    key = Key(place.object_namespace if resource.namespaced else "", name)
    return ServerJob(resource, await client.get(resource, key))


async def _wait_for_creation(client: Client, place: ServerTarget, word: str, error: NotFound) -> int:
    kind, slash, name = word.rpartition("/")
    if not slash:
        raise InputError(f'--for create: "{word}": write KIND/NAME, such as tfjob/{word}') from error
    (resource, *_) = await resolve(client, kind)
    where = Selector(place.object_namespace if resource.namespaced else "", fields=f"metadata.name={name}")
    async with aclosing(watch_objects(client, resource, where)) as seen:
        async for each in seen:
            if each.body is not None and not each.deleted:
                return SUCCEEDED
    return UNFINISHED


async def _watch_until(client: Client, found: ServerJob, goal: WaitGoal) -> int:
    key = found.key
    where = Selector(key.namespace, fields=f"metadata.name={key.name}")
    uid, there = found.body["metadata"]["uid"], False
    async with aclosing(watch_objects(client, found.resource, where)) as seen:
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
