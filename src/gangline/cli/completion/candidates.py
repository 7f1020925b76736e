"""What a shell may complete: contexts, namespaces, kinds, jobs. Whatever goes wrong, nothing is offered."""

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from gangline.api.meta import Selector
from gangline.base.errors import GanglineError
from gangline.cli.flags.server_options import ServerOptions, ServerTarget, find_server
from gangline.cli.resources.lookup import BUILTIN_RESOURCES, JOB_KINDS, NAMESPACES
from gangline.kube.client import Client

TIMEOUT_SECONDS = 2.0


def contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The contexts of the kubeconfig."""
    from gangline.kube.config.kubeconfig import KubeconfigFile, read_kubeconfig

    named = [context.params["kubeconfig"]] if context.params.get("kubeconfig") else []
    listed = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    found: list[str] = []
    for name in named or listed or [str(Path.home() / ".kube" / "config")]:
        try:
            found += read_kubeconfig(KubeconfigFile(Path(name), name)).contexts
        except GanglineError:
            continue
    return _completion_items(found, incomplete)


def namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The namespaces of the server."""

    async def names(client: Client, place: ServerTarget) -> list[str]:
        return [body["metadata"]["name"] for body in (await client.list(NAMESPACES)).items]

    return _completion_items(_query_server(context, names), incomplete)


def jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The training jobs in the namespace: by name, or by KIND/NAME once a kind is begun."""
    kind, slash, _ = incomplete.partition("/")

    async def names(client: Client, place: ServerTarget) -> list[str]:
        found = []
        for resource in JOB_KINDS:
            if slash and kind not in (resource.kind.lower(), resource.plural):
                continue
            try:
                page = await client.list(resource, Selector(place.namespace))
            except GanglineError:
                continue
            found += [f"{kind}/" * bool(slash) + body["metadata"]["name"] for body in page.items]
        return found

    return _completion_items(_query_server(context, names), incomplete)


def kinds_and_jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kinds first; after a kind, or once KIND/ is begun, objects of it."""
    written = context.params.get("words") or ()
    if "/" in incomplete:
        return jobs(context, parameter, incomplete)
    if not written:
        return _completion_items(["jobs", *(resource.plural for resource, _ in BUILTIN_RESOURCES)], incomplete)

    async def names(client: Client, place: ServerTarget) -> list[str]:
        from gangline.cli.resources.lookup import resolve

        found = []
        for resource in await resolve(client, written[0]):
            try:
                page = await client.list(resource, Selector(place.namespace if resource.namespaced else ""))
            except GanglineError:
                continue
            found += [body["metadata"]["name"] for body in page.items]
        return found

    return _completion_items(_query_server(context, names), incomplete)


def _completion_items(found: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(found)) if name.startswith(incomplete)]


def _query_server(context: click.Context, names: Any) -> list[str]:
    from datetime import timedelta

    from gangline.kube.transport.blocking import BlockingClock, BlockingTransport, run_without_loop, supports

    given = {name: context.params[name] for name in ServerOptions._fields if context.params.get(name)}
    given.pop("verbose", None)
    try:
        place = find_server(ServerOptions(**given))
        if place.archive is not None:
            return _query_archive(place, place.archive, names)
        if not supports(place.connection):
            return []
        patience = timedelta(seconds=TIMEOUT_SECONDS)
        with BlockingTransport(place.connection, patience=patience, warn=lambda text: None) as transport:
            found: list[str] = run_without_loop(
                names(Client(transport, clock=BlockingClock(), timeout=patience), place)
            )
            return found
    except GanglineError:
        return []


def _query_archive(place: ServerTarget, left: Path, names: Any) -> list[str]:
    """From what earlier runs left."""
    import asyncio

    from gangline.base.tasks import unwrap_exception_group
    from gangline.cli.connect.archived_runs import open_archive

    async def found() -> list[str]:
        async with open_archive(left) as transport:
            told: list[str] = await names(Client(transport), place)
            return told

    with unwrap_exception_group():
        return asyncio.run(found())
