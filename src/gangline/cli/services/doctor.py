"""`gangline doctor`: whether everything is in place for jobs to run. Reads only."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import click
import msgspec

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import SystemClock
from gangline.cli.flags.server_options import Place, ServerOptions, ask, sentence, server_options
from gangline.cli.flags.verb import verb
from gangline.cli.output import formats, tables
from gangline.cli.output.job_rows import moment
from gangline.cli.resources.lookup import JOB_KINDS, PODS
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, KubeError, NotFound
from gangline.kube.transport.api import Request, refusal
from gangline.operator.conflicting_operators import GANGLINE, KUBEFLOW, ROLE
from gangline.operator.definitions import CRDS, REMEDY

WELL, DOUBT, WRONG = "ok", "warning", "error"
SKEW = timedelta(seconds=5)
OPERATORS = f"{ROLE} in ({KUBEFLOW},{GANGLINE})"
LEASES: Resource[JSON] = Resource("coordination.k8s.io", "v1", "Lease", "leases", dict[str, Any])
REVIEWS: Resource[JSON] = Resource(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    dict[str, Any],
    namespaced=False,
)
NEEDED = (
    *(("kubeflow.org", kind.plural, "") for kind in JOB_KINDS),
    ("", "pods", ""),
    ("", "pods", "log"),
    ("", "events", ""),
)
VERBS = {
    "pods": ("get", "list", "watch", "delete"),
    "pods/log": ("get",),
    "events": ("list",),
}
JOB_VERBS = ("get", "list", "watch", "create", "patch", "delete")


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at."""

    check: str
    result: str
    found: str
    remedy: str = ""


@verb()
@click.option(
    "-o", "--output", "form", type=click.Choice(["", "json"]), default="", help="json: for programs."
)
@server_options
def doctor(form: str, server: ServerOptions) -> int:
    r"""Look whether everything is in place: server, definitions, rights, operator, clocks.

    \b
      gangline doctor
      gangline doctor --context prod -n team-a

    Exit codes: 0 all is well, or nearly; 1 jobs cannot run as it is.
    """

    async def work(client: Client, place: Place) -> int:
        results = [result async for result in examine(client, place)]
        if form == "json":
            tables.put(formats.as_json(msgspec.to_builtins(results)))
        else:
            _tell(results)
        return 1 if any(result.result == WRONG for result in results) else 0

    return ask(server, work, alive=True)


def _tell(results: Sequence[Result]) -> None:
    rows = [[result.result, result.check, result.found] for result in results]
    tables.put(tables.render(("RESULT", "CHECK", "FOUND"), rows))
    for result in results:
        if result.remedy:
            click.echo(f"{result.check}: {result.remedy}", err=True)


async def examine(client: Client, place: Place) -> AsyncIterator[Result]:
    """Everything, in an order in which one thing explains the next. Raises when there is no server at all."""
    async for result in _server(client, place):
        yield result
    yield await _definitions(client)
    async for result in _rights(client, place):
        yield result
    yield await _operator(client, place)


async def _server(client: Client, place: Place) -> AsyncIterator[Result]:
    began = SystemClock().now()
    response = await client.transport.send(Request("GET", "/version"))
    ended = SystemClock().now()
    error = refusal(response)
    if error is not None:
        raise error
    version = msgspec.json.decode(response.body).get("gitVersion", "unknown")
    took = round((ended - began).total_seconds() * 1000)
    where = "plane of this machine" if place.local is not None else f"context {place.connection.context}"
    yield Result("server", WELL, f"{place.connection.server} ({where}), Kubernetes {version}, {took} ms")
    skew = skew_of(response.headers.get("date", ""), began, ended)
    if skew is None:
        yield Result("clocks", DOUBT, "the server does not say what time it is")
    elif skew > SKEW:
        told = f"the server's clock differs from this one by {round(skew.total_seconds())} s"
        yield Result("clocks", DOUBT, told, "let both follow a time server: ages and deadlines are off")
    else:
        yield Result("clocks", WELL, "the server's clock agrees with this one")


def skew_of(date: str, began: datetime, ended: datetime) -> timedelta | None:
    """By how much a server's clock is off, at least; None if it does not say. It tells whole seconds."""
    try:
        told = parsedate_to_datetime(date)
    except ValueError:
        return None
    early, late = told, told + timedelta(seconds=1)
    return max(early - ended, began - late, timedelta())


async def _definitions(client: Client) -> Result:
    from gangline.api.kubeflow.kinds import KINDS
    from gangline.schema.crds.job_crds import crd

    missing, old = [], []
    try:
        for kind in KINDS:
            ours = crd(kind)
            try:
                there = await client.get(CRDS, Key("", ours["metadata"]["name"]))
            except NotFound:
                missing.append(kind.kind)
                continue
            if not _current(ours, there):
                old.append(kind.kind)
    except Forbidden:
        return Result("definitions", DOUBT, "you may not look at definitions (CRDs)")
    if missing:
        return Result("definitions", WRONG, f"the server does not know {', '.join(missing)}", REMEDY)
    if old:
        return Result(
            "definitions", DOUBT, f"of another version than this gangline: {', '.join(old)}", REMEDY
        )
    return Result("definitions", WELL, f"all {len(KINDS)} kinds, as this gangline has them")


def _current(ours: JSON, there: JSON) -> bool:
    """Whether the schema of our version is the one that is served."""
    served = {version["name"]: version.get("schema") for version in there["spec"]["versions"]}
    return all(served.get(version["name"]) == version["schema"] for version in ours["spec"]["versions"])


async def _rights(client: Client, place: Place) -> AsyncIterator[Result]:
    lacking: list[str] = []
    for group, plural, part in NEEDED:
        name = f"{plural}/{part}" if part else plural
        for deed in VERBS.get(name, JOB_VERBS):
            asked = {
                "namespace": place.home,
                "verb": deed,
                "group": group,
                "resource": plural,
                "subresource": part,
            }
            body = {"spec": {"resourceAttributes": asked}}
            try:
                answer = await client.create(REVIEWS, body)
            except KubeError as error:
                yield Result("rights", DOUBT, f"cannot be asked for: {sentence(error)}")
                return
            if not (answer.get("status") or {}).get("allowed"):
                lacking.append(f"{deed} {name}")
    if lacking:
        told = f"in namespace {place.home} you may not {', '.join(lacking)}"
        yield Result("rights", DOUBT, told, "ask whoever runs the cluster for a role with these verbs")
    else:
        yield Result("rights", WELL, f"you may do all with jobs in namespace {place.home}")


async def _operator(client: Client, place: Place) -> Result:
    if place.local is not None:
        return Result("operator", WELL, "part of the plane of this machine")
    now = SystemClock().now()
    try:
        leases = (await client.list(LEASES)).items
        alive = [lease for lease in leases if _ours(lease) and held(lease, now)]
        if alive:
            holder = alive[0]["spec"].get("holderIdentity", "")
            return Result("operator", WELL, f"alive: {holder} holds {alive[0]['metadata']['name']}")
        pods = (await client.list(PODS, Selector(labels=OPERATORS))).items
    except Forbidden:
        return Result("operator", DOUBT, "you may not look for it (leases, pods in all namespaces)")
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    if running:
        metadata = running[0]["metadata"]
        return Result("operator", WELL, f"its pod runs: {metadata['namespace']}/{metadata['name']}")
    return Result(
        "operator",
        WRONG,
        "no sign of one: no lease is held, no pod of it runs",
        "gangline operator, or install it",
    )


def _ours(lease: JSON) -> bool:
    name = lease["metadata"]["name"]
    return "training-operator" in name or "gangline" in name


def held(lease: JSON, now: datetime) -> bool:
    """Whether somebody has renewed a lease in time."""
    spec = lease.get("spec") or {}
    renewed, seconds = moment(spec.get("renewTime")), spec.get("leaseDurationSeconds") or 0
    return (
        bool(spec.get("holderIdentity"))
        and renewed is not None
        and now - renewed <= timedelta(seconds=2 * seconds)
    )
