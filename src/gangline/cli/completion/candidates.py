"""Completion candidates for a shell: contexts, namespaces, kinds, jobs. On any error there are no candidates."""

import os
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from gangline.api.meta import JSON, Selector
from gangline.api.scheme import Resource
from gangline.base.errors import GanglineError
from gangline.cli.connect.server import ServerOptions, ServerTarget, find_server
from gangline.cli.resources.lookup import BUILTIN_RESOURCES, resolve
from gangline.kube.client import Client
from gangline.summary.objects import JOB_KINDS, NAMESPACES

TIMEOUT = timedelta(seconds=2)
"""A shell hangs while it waits for candidates."""

NameQuery = Callable[[Client, ServerTarget], Coroutine[Any, Any, list[str]]]


def contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The contexts of the kubeconfig."""
    from gangline.kube.config.kubeconfig import KubeconfigFile, read_kubeconfig

    flag = [context.params["kubeconfig"]] if context.params.get("kubeconfig") else []
    variable = [file for file in os.environ.get("KUBECONFIG", "").split(os.pathsep) if file]
    names: list[str] = []
    for file in flag or variable or [str(Path.home() / ".kube" / "config")]:
        try:
            names += read_kubeconfig(KubeconfigFile(Path(file), file)).contexts
        except GanglineError:
            continue
    return _completion_items(names, incomplete)


def namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The namespaces of the server."""

    async def list_names(client: Client, target: ServerTarget) -> list[str]:
        return [body["metadata"]["name"] for body in (await client.list(NAMESPACES)).items]

    return _completion_items(_query_server(context, list_names), incomplete)


def jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The training jobs in the namespace: by name, or as KIND/NAME if the word to complete has a slash."""
    kind, slash, _ = incomplete.partition("/")

    async def list_names(client: Client, target: ServerTarget) -> list[str]:
        resources = [kind_ for kind_ in JOB_KINDS if not slash or kind in (kind_.kind.lower(), kind_.plural)]
        return [f"{kind}{slash}{name}" if slash else name for name in await _object_names(client, target, resources)]

    return _completion_items(_query_server(context, list_names), incomplete)


def kinds_and_jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The kinds; after a kind, the names of its objects; KIND/NAME of jobs if the word to complete has a slash."""
    words = context.params.get("words") or ()
    if "/" in incomplete:
        return jobs(context, parameter, incomplete)
    if not words:
        return _completion_items(["jobs", *(resource.plural for resource, _ in BUILTIN_RESOURCES)], incomplete)

    async def list_names(client: Client, target: ServerTarget) -> list[str]:
        return await _object_names(client, target, await resolve(client, words[0]))

    return _completion_items(_query_server(context, list_names), incomplete)


async def _object_names(client: Client, target: ServerTarget, resources: Iterable[Resource[JSON]]) -> list[str]:
    """The names of all objects of these kinds in the namespace, without kinds that cannot be listed."""
    names: list[str] = []
    for resource in resources:
        try:
            page = await client.list(resource, Selector(target.namespace if resource.namespaced else ""))
        except GanglineError:
            continue
        names += [body["metadata"]["name"] for body in page.items]
    return names


def _completion_items(names: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(names)) if name.startswith(incomplete)]


def _query_server(context: click.Context, query: NameQuery) -> list[str]:
    """The result of the query against the server of the options typed so far; empty on any error."""
    from gangline.kube.transport.blocking import BlockingClock, BlockingTransport, run_without_loop, supports

    fields = {name: context.params[name] for name in ServerOptions._fields if context.params.get(name)}
    fields.pop("verbose", None)
    try:
        target = find_server(ServerOptions(**fields))
        if target.archive is not None:
            return _query_archive(target, target.archive, query)
        if not supports(target.connection):
            return []
        with BlockingTransport(target.connection, patience=TIMEOUT, warn=lambda text: None) as transport:
            client = Client(transport, clock=BlockingClock(), timeout=TIMEOUT)
            return run_without_loop(query(client, target))
    except GanglineError:
        return []


def _query_archive(target: ServerTarget, folder: Path, query: NameQuery) -> list[str]:
    import asyncio

    from gangline.base.tasks import unwrap_exception_group
    from gangline.cli.connect.archived_runs import open_archive

    async def open_and_query() -> list[str]:
        async with open_archive(folder) as transport:
            return await query(Client(transport), target)

    with unwrap_exception_group():
        return asyncio.run(open_and_query())
