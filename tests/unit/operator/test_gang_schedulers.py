"""Which gang schedulers an operator uses, and its error when one is not installed."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from aiohttp import web

from gangline.base.errors import InputError
from gangline.jobs.gangs.kubernetes import KubernetesWorkloads
from gangline.jobs.gangs.podgroup import pod_group_resource
from gangline.jobs.site import Site
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.http import HttpTransport
from gangline.operator.engine import scheme_of
from gangline.operator.gang_schedulers import (
    check_installed,
    check_with_retry,
    site_from_flag,
    with_served_versions,
)
from gangline.testing.clock import FakeClock
from support.servers.http import http_server


@pytest.mark.parametrize(
    ("text", "name", "groups"),
    [
        ("volcano", "volcano", "podgroups.scheduling.volcano.sh"),
        ("Volcano", "volcano", "podgroups.scheduling.volcano.sh"),
        ("gangline", "gangline", "podgroups.scheduling.gangline.dev"),
        ("Kubernetes", "kubernetes", "podgroups.scheduling.k8s.io"),
        ("my-scheduler", "my-scheduler", "podgroups.scheduling.x-k8s.io"),
    ],
)
def test_a_gang_scheduler_is_known_by_its_name(text: str, name: str, groups: str) -> None:
    scheduler = site_from_flag(text).gang_scheduler
    assert scheduler is not None
    assert (scheduler.name, pod_group_resource(scheduler)) == (name, groups)


@pytest.mark.parametrize("text", ["", " ", "none", "None"])
def test_without_a_name_there_is_no_gang_scheduler(text: str) -> None:
    assert site_from_flag(text) == Site()


def test_others_may_be_asked_for() -> None:
    site = site_from_flag("gangline, volcano,batch")
    assert [gangs.name for gangs in site.gang_schedulers] == ["gangline", "volcano", "batch"]
    nobody = site_from_flag("none,volcano")
    assert nobody.gang_scheduler is None
    assert [gangs.name for gangs in nobody.gang_schedulers] == ["volcano"]


@pytest.mark.parametrize("text", ["volcano,", ",", "volcano,Volcano", "volcano,none"])
def test_a_list_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--gang-scheduler-name"):
        site_from_flag(text)


@asynccontextmanager
async def serving_kinds(kinds: Mapping[str, tuple[str, ...]]) -> AsyncIterator[Client]:
    """A client of a server that serves these plurals, by group and version."""

    async def answer(request: web.Request) -> web.Response:
        plurals = kinds.get(request.path.removeprefix("/apis/"))
        if plurals is None:
            return web.Response(status=404)
        listed = [{"name": plural, "kind": "Any", "namespaced": True, "verbs": ["get"]} for plural in plurals]
        return web.json_response({"kind": "APIResourceList", "resources": listed})

    async with http_server(answer) as url, HttpTransport(Connection(server=url)) as transport:
        yield Client(transport)


NATIVE = ("priorityclasses", "workloads", "podgroups")


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
async def test_k49_kubernetes_own_is_used_in_the_version_that_is_served(version: str) -> None:
    async with serving_kinds({f"scheduling.k8s.io/{version}": NATIVE}) as client:
        site = await with_served_versions(client, site_from_flag("kubernetes"))
        await check_installed(client, site)
    assert site.gang_scheduler is not None
    assert {kind.version for kind in site.gang_scheduler.kinds} == {version}
    scheme = scheme_of((), site.gang_schedulers)
    assert scheme.find("podgroups.scheduling.k8s.io").version == version


async def test_of_several_versions_the_newest_is_used_also_on_request() -> None:
    served = {"scheduling.k8s.io/v1beta1": NATIVE, "scheduling.k8s.io/v1alpha3": NATIVE}
    async with serving_kinds(served) as client:
        site = await with_served_versions(client, site_from_flag("none,kubernetes"))
    (scheduler,) = site.gang_schedulers
    assert isinstance(scheduler, KubernetesWorkloads)
    assert scheduler.kinds[0].version == "v1beta1"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "kubernetes",
            "the server has no workloads.scheduling.k8s.io, which kubernetes needs: it takes Kubernetes 1.36",
        ),
        (
            "gangline",
            "the server has no podgroups.scheduling.gangline.dev, which gangline needs: gangline crds | kubectl",
        ),
        (
            "volcano",
            "the server has no podgroups.scheduling.volcano.sh, which volcano needs: install Volcano",
        ),
        (
            "batch",
            "the server has no podgroups.scheduling.x-k8s.io, which batch needs: install scheduler-plugins",
        ),
        ("none,volcano", "the server has no podgroups.scheduling.volcano.sh"),
    ],
)
async def test_what_is_not_installed_is_refused_in_one_line(text: str, told: str) -> None:
    # 1.35 has Workloads of another shape, and no PodGroups.
    async with serving_kinds({"scheduling.k8s.io/v1alpha1": ("workloads",)}) as client:
        site = await with_served_versions(client, site_from_flag(text))
        with pytest.raises(InputError) as refused:
            await check_installed(client, site)
    assert str(refused.value).startswith(f"--gang-scheduler-name: {told}")
    assert "\n" not in str(refused.value)


class Meanwhile(FakeClock):
    """A clock whose sleep installs something."""

    def __init__(self, install: Callable[[], None]) -> None:
        super().__init__()
        self._install = install

    async def sleep(self, duration: timedelta) -> None:
        self._install()


async def test_definitions_that_are_just_being_installed_are_looked_for_once_more() -> None:
    """The definitions of jobs come first: an operator that waited for them must not fail because PodGroups come later."""
    kinds: dict[str, tuple[str, ...]] = {}
    clock = Meanwhile(lambda: kinds.update({"scheduling.gangline.dev/v1alpha1": ("podgroups", "queues")}))
    async with serving_kinds(kinds) as client:
        await check_with_retry(client, site_from_flag("gangline"), clock)
        with pytest.raises(InputError, match="volcano"):
            await check_with_retry(client, site_from_flag("volcano"), clock)


async def test_nothing_is_asked_where_nothing_is_needed() -> None:
    async with serving_kinds({}) as client:
        await check_installed(client, await with_served_versions(client, Site()))
