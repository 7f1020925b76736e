"""The twin of goinformer, done with gangline: same flags, same JSON. Each measurement is a fresh process."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.feed import run_until
from bench.measure import Figures, cpu_seconds, resident

from gangline.api.core import ConfigMap, Pod
from gangline.api.meta import EVERYTHING, Key, ListMeta, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.pages import Page
from gangline.kube.transport.http import HttpTransport
from gangline.kube.watch import WatchEvent
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.interning import ObjectInterner


class Since:
    """A reader that finds nothing in a list, so that everything since a version comes through the watch."""

    def __init__(self, client: Client, version: str) -> None:
        self._client, self._version = client, version

    async def get(self, kind: Any, key: Key) -> Any:
        return await self._client.get(kind, key)

    async def pages(self, kind: Any, where: Selector = EVERYTHING, *, limit: int = 0) -> AsyncIterator[Page[Any]]:
        yield Page(metadata=ListMeta(resource_version=self._version))

    def watch(
        self,
        kind: Any,
        where: Selector = EVERYTHING,
        *,
        since: str,
        timeout: timedelta | None = None,
        idle: timedelta = timedelta(minutes=3),
    ) -> AsyncIterator[WatchEvent[Any]]:
        return self._client.watch(kind, where, since=since, timeout=timeout, idle=idle)


async def sync(client: Client, asked: argparse.Namespace) -> Figures:
    before = resident()
    informer = Informer(client, Pod, Selector(namespace=asked.namespace), clock=SystemClock(), trim=_trim(asked))
    began = time.perf_counter()
    await run_until(informer)
    took = time.perf_counter() - began
    return {
        "seconds": took,
        "objects": len(informer.cache),
        "rss": resident() - before,
        "peak": resident("VmHWM"),
    }


def _trim(asked: argparse.Namespace) -> ObjectInterner | None:
    return ObjectInterner() if asked.content == "sharing" else None


async def events(client: Client, asked: argparse.Namespace) -> Figures:
    done = asyncio.Event()
    told = 0

    def tell(_: Delta[Pod]) -> None:
        nonlocal told
        told += 1
        if told == asked.count:
            done.set()

    where = Selector(namespace=asked.namespace)
    informer: Informer[Pod] = Informer(Since(client, asked.since), Pod, where, clock=SystemClock(), trim=_trim(asked))
    began = time.perf_counter()
    with informer.subscribe(tell):
        await run_until(informer, done)
    return _rate(asked.count, began)


async def get(client: Client, asked: argparse.Namespace) -> Figures:
    key = Key(asked.namespace, "one")
    return await _requests(lambda _: client.get(ConfigMap, key), asked)


async def create(client: Client, asked: argparse.Namespace) -> Figures:
    def one(number: int) -> Awaitable[ConfigMap]:
        body = {"metadata": {"name": f"{asked.prefix}-{number}"}, "data": {"key": "value"}}
        return client.create(ConfigMap, body, namespace=asked.namespace)

    return await _requests(one, asked)


async def _requests(one: Callable[[int], Awaitable[object]], asked: argparse.Namespace) -> Figures:
    await one(0)  # connects
    numbers = iter(range(1, asked.count + 1))

    async def work() -> None:
        for number in numbers:
            await one(number)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(asked.inflight):
            group.create_task(work())
    return _rate(asked.count, began)


def _rate(count: int, began: float) -> Figures:
    took = time.perf_counter() - began
    return {"seconds": took, "per_second": count / took}


async def run(asked: argparse.Namespace) -> Figures:
    connection = load_connection(kubeconfig=asked.kubeconfig, environ={}, home=Path.home())
    async with HttpTransport(connection) as transport, asyncio.timeout(120):
        began = cpu_seconds()
        found = await {"sync": sync, "events": events, "get": get, "create": create}[asked.do](Client(transport), asked)
    return {**found, "cpu_seconds": cpu_seconds() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {
        "kubeconfig": "",
        "do": "sync",
        "content": "",
        "namespace": "bench",
        "since": "",
    }.items():
        parser.add_argument(f"-{name}", default=default)
    parser.add_argument("-prefix", default="py")
    parser.add_argument("-count", type=int, default=1000)
    parser.add_argument("-inflight", type=int, default=1)
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
