"""`gangline wait`: wait until a job has finished, or for another condition; the exit code is the verdict."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from typing import TypeAlias

import click

from gangline.api.jsonpath import JSONPath, printed_value
from gangline.api.meta import JSON, Key, Selector
from gangline.base.errors import InputError
from gangline.base.invocation import with_own_command
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import START_SERVER_HINT, ServerOptions, ServerTarget
from gangline.cli.exit_codes import CANCELLED, FAILED, NOT_FOUND, SUCCEEDED, UNFINISHED
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import server_options
from gangline.cli.resources.exit_code import job_exit_code
from gangline.cli.resources.lookup import JOBS_WORDS, builtin_resource, find_job, resolve
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.summary.job_state import conditions, has_condition, is_finished, job_state, replica_specs
from gangline.summary.objects import JOB_KINDS, ServerJob

WaitGoal: TypeAlias = Callable[[JSON | None], int | None]
"""The exit code for the state of an object (None: deleted), or None to go on waiting."""
DEFAULT_TIMEOUT = timedelta(days=7)
NOT_MET_TEXT = "ended before the condition was met"


@cli_command()
@click.argument("words", nargs=-1, required=True, metavar="JOB...", shell_complete=completed_by("jobs"))
@click.option(
    "--for",
    "goal",
    default="end",
    metavar="WHAT",
    show_default=True,
    help="What to wait for: end, condition=NAME[=VALUE], delete, create, or jsonpath='{PATH}'[=VALUE].",
)
@click.option(
    "--timeout",
    type=DURATION,
    default="0",
    metavar="DURATION",
    help="Give up after this time, such as 5m (exit code 101).  [default: a week]",
)
@server_options
def wait(words: tuple[str, ...], goal: str, timeout: timedelta, server: ServerOptions) -> int:
    r"""Wait until jobs have ended, or until a condition is met; the exit code tells how it went.

    \b
      gangline wait linear && ./publish.sh                          go on if the job succeeds
      gangline wait linear --for condition=Running --timeout 2m     until it runs, at most 2 minutes
      gangline wait linear --for delete                             until it is gone
      gangline wait tfjob/linear --for jsonpath='{.status.replicaStatuses.Worker.active}'=3
      gangline wait pod/linear-worker-0 --for condition=Ready

    Exit codes: 0 the job succeeded, or the condition is met; 100 the job failed; 101 not in time; 102 no such job;
    103 the job was deleted. With several jobs, the highest code counts.
    """
    parsed_goal = parse_goal(goal)
    limit = timeout if timeout.total_seconds() > 0 else DEFAULT_TIMEOUT

    async def work(client: Client, target: ServerTarget) -> int:
        codes = []
        try:
            async with asyncio.timeout(limit.total_seconds()):
                for word in words:
                    codes.append(await _wait_for_object(client, target, word, parsed_goal, goal))  # noqa: PERF401 - kept on timeout
        except TimeoutError:
            click.echo(f"error: timed out waiting for {goal} on {words[len(codes)]}", err=True)
            codes.append(UNFINISHED)
        return max(codes)

    return run_async(server, work, missing=NOT_FOUND, afterwards=work)


def parse_goal(text: str) -> WaitGoal:
    """The goal that a value of --for describes. Raises `InputError`."""
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
    def goal(body: JSON | None) -> int | None:
        if body is None:
            return CANCELLED
        condition = next((item for item in conditions(body) if item.get("type", "").lower() == name.lower()), None)
        if condition is not None and str(condition.get("status")).lower() == value.lower():
            return SUCCEEDED
        return _code_if_finished(body)

    return goal


def _jsonpath_goal(text: str) -> WaitGoal:
    path, equals, value = _split_path_value(text)
    template = JSONPath.of_field(path)

    def goal(body: JSON | None) -> int | None:
        if body is None:
            return CANCELLED
        result = template.first_value(body)
        if result is not None and (not equals or printed_value(result) == value):
            return SUCCEEDED
        return _code_if_finished(body)

    return goal


def _split_path_value(text: str) -> tuple[str, bool, str]:
    """Path, whether there is an equals sign, and value of `{.a}=b`. Equals signs inside braces belong to the path."""
    end = text.rfind("}") + 1
    path, sign, value = (text[:end], *text[end:].partition("=")[1:]) if end else text.partition("=")
    return path, bool(sign), value.strip("'\"")


def _code_if_finished(body: JSON) -> int | None:
    """The exit code if a job has finished without meeting the goal, which it then never will; else None."""
    if str(body.get("apiVersion", "")).startswith("kubeflow.org/") and is_finished(body):
        return FAILED if has_condition(body, "Failed") else UNFINISHED
    return None


async def _wait_for_object(client: Client, target: ServerTarget, word: str, goal: WaitGoal, text: str) -> int:
    """Wait until an object meets the goal, print the outcome, and return the exit code. `text` is the value of --for."""
    try:
        server_object = await _find_object(client, target, word)
    except NotFound as error:
        if text == "delete":
            return SUCCEEDED
        if text != "create" or target.archive is not None:
            raise
        return await _wait_for_creation(client, target, word, error)
    code = goal(server_object.body)
    if code is None and target.archive is not None:
        click.echo(f"{server_object.display_name} {_standstill_text(server_object.body)}", err=True)
        return UNFINISHED
    if code is None:
        code = await _watch_until(client, server_object, goal)
    _print_outcome(server_object.display_name, text, code)
    return code


def _standstill_text(body: JSON) -> str:
    """Why to stop waiting for an object in an archive: it does not change while no server runs."""
    if is_finished(body):
        return NOT_MET_TEXT
    state = f"is {job_state(body)}, and stays so" if replica_specs(body) else "does not change"
    return with_own_command(f"{state} while no server is running; {START_SERVER_HINT}")


def _print_outcome(name: str, text: str, code: int) -> None:
    outcomes = {
        SUCCEEDED: "condition met" if text != "end" else "succeeded",
        FAILED: "failed",
        CANCELLED: "was deleted",
        UNFINISHED: NOT_MET_TEXT,
    }
    click.echo(f"{name} {outcomes[code]}", err=code != SUCCEEDED)


async def _find_object(client: Client, target: ServerTarget, word: str) -> ServerJob:
    kind, slash, name = word.rpartition("/")
    if not slash or builtin_resource(kind) in JOB_KINDS or kind.lower() in JOBS_WORDS:
        return await find_job(client, target.object_namespace, word)
    (resource, *_) = await resolve(client, kind)
    key = Key(target.object_namespace if resource.namespaced else "", name)
    return ServerJob(resource, await client.get(resource, key))


async def _wait_for_creation(client: Client, target: ServerTarget, word: str, error: NotFound) -> int:
    kind, slash, name = word.rpartition("/")
    if not slash:
        raise InputError(f'--for create: "{word}": write KIND/NAME, such as tfjob/{word}') from error
    (resource, *_) = await resolve(client, kind)
    selector = Selector(target.object_namespace if resource.namespaced else "", fields=f"metadata.name={name}")
    async with aclosing(watch_objects(client, resource, selector)) as objects:
        async for watched in objects:
            if watched.body is not None and not watched.deleted:
                return SUCCEEDED
    return UNFINISHED


async def _watch_until(client: Client, server_object: ServerJob, goal: WaitGoal) -> int:
    """The exit code once the goal is met or can no longer be. A new object of the same name does not count."""
    key = server_object.key
    selector = Selector(key.namespace, fields=f"metadata.name={key.name}")
    uid, exists = server_object.body["metadata"]["uid"], False
    async with aclosing(watch_objects(client, server_object.resource, selector)) as objects:
        async for watched in objects:
            if watched.body is None:
                code = None if exists else goal(None)
            elif watched.body["metadata"]["uid"] != uid:
                continue
            else:
                exists = True
                body = {**watched.body, "apiVersion": server_object.resource.api_version}
                code = goal(body)
                if code is None and watched.deleted:
                    code = goal(None)
            if code is not None:
                return code
    return UNFINISHED
