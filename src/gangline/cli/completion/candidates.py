"""What a shell may complete: contexts, namespaces, kinds, jobs. Whatever goes wrong, nothing is offered."""

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from gangline.api.meta import Selector
from gangline.base.errors import GanglineError
from gangline.cli.flags.server_options import Place, ServerOptions, find
from gangline.cli.resources.lookup import BY_HEART, JOB_KINDS, NAMESPACES
from gangline.kube.client import Client

SECONDS = 2.0


def contexts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The contexts of the kubeconfig."""
    from gangline.kube.config.kubeconfig import File, read

    named = [context.params["kubeconfig"]] if context.params.get("kubeconfig") else []
    listed = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    found: list[str] = []
    for name in named or listed or [str(Path.home() / ".kube" / "config")]:
        try:
            found += read(File(Path(name), name)).contexts
        except GanglineError:
            continue
    return _matching(found, incomplete)


def namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The namespaces of the server."""

    async def names(client: Client, place: Place) -> list[str]:
        return [body["metadata"]["name"] for body in (await client.list(NAMESPACES)).items]

    return _matching(_asked(context, names), incomplete)


def jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The training jobs in the namespace: by name, or by KIND/NAME once a kind is begun."""
    kind, slash, _ = incomplete.partition("/")

    async def names(client: Client, place: Place) -> list[str]:
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

    return _matching(_asked(context, names), incomplete)


def kinds_and_jobs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Kinds first; after a kind, or once KIND/ is begun, objects of it."""
    written = context.params.get("words") or ()
    if "/" in incomplete:
        return jobs(context, parameter, incomplete)
    if not written:
        return _matching(["jobs", *(resource.plural for resource, _ in BY_HEART)], incomplete)

    async def names(client: Client, place: Place) -> list[str]:
        from gangline.cli.resources.lookup import resolve

        found = []
        for resource in await resolve(client, written[0]):
            try:
                page = await client.list(resource, Selector(place.namespace if resource.namespaced else ""))
            except GanglineError:
                continue
            found += [body["metadata"]["name"] for body in page.items]
        return found

    return _matching(_asked(context, names), incomplete)


def _matching(found: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(set(found)) if name.startswith(incomplete)]


def _asked(context: click.Context, names: Any) -> list[str]:
    from datetime import timedelta

    from gangline.kube.transport.blocking import BlockingClock, BlockingTransport, answered, carries

    given = {name: context.params[name] for name in ServerOptions._fields if context.params.get(name)}
    given.pop("verbose", None)
    try:
        place = find(ServerOptions(**given))
        if place.left is not None:
            return _remembered(place, place.left, names)
        if not carries(place.connection):
            return []
        patience = timedelta(seconds=SECONDS)
        with BlockingTransport(place.connection, patience=patience, warn=lambda text: None) as transport:
            found: list[str] = answered(
                names(Client(transport, clock=BlockingClock(), timeout=patience), place)
            )
            return found
    except GanglineError:
        return []


def _remembered(place: Place, left: Path, names: Any) -> list[str]:
    """From what earlier runs left."""
    import asyncio

    from gangline.base.tasks import unwrapped
    from gangline.cli.connect.archived_runs import remembered

    async def found() -> list[str]:
        async with remembered(left) as transport:
            told: list[str] = await names(Client(transport), place)
            return told

    with unwrapped():
        return asyncio.run(found())
