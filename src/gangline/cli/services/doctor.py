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
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.errors import error_line
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import server_options
from gangline.cli.output import formats, tables
from gangline.cli.output.job_rows import parse_timestamp
from gangline.cli.resources.lookup import JOB_KINDS, PODS
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, KubeError, NotFound
from gangline.kube.transport.api import Request, response_error
from gangline.operator.conflicting_operators import GANGLINE_ROLE, KUBEFLOW_ROLE, ROLE_LABEL
from gangline.operator.definitions import CRDS, INSTALL_COMMAND

RESULT_OK, RESULT_WARNING, RESULT_ERROR = "ok", "warning", "error"
MAX_CLOCK_SKEW = timedelta(seconds=5)
OPERATOR_SELECTOR = f"{ROLE_LABEL} in ({KUBEFLOW_ROLE},{GANGLINE_ROLE})"
LEASES: Resource[JSON] = Resource("coordination.k8s.io", "v1", "Lease", "leases", dict[str, Any])
ACCESS_REVIEWS: Resource[JSON] = Resource(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    dict[str, Any],
    namespaced=False,
)
REQUIRED_RESOURCES = (
    *(("kubeflow.org", kind.plural, "") for kind in JOB_KINDS),
    ("", "pods", ""),
    ("", "pods", "log"),
    ("", "events", ""),
)
REQUIRED_VERBS = {
    "pods": ("get", "list", "watch", "delete"),
    "pods/log": ("get",),
    "events": ("list",),
}
REQUIRED_JOB_VERBS = ("get", "list", "watch", "create", "patch", "delete")


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at."""

    check: str
    result: str
    found: str
    remedy: str = ""


@cli_command()
@click.option("-o", "--output", "form", type=click.Choice(["", "json"]), default="", help="json: for programs.")
@server_options
def doctor(form: str, server: ServerOptions) -> int:
    r"""Look whether everything is in place: server, definitions, rights, operator, clocks.

    \b
      gangline doctor
      gangline doctor --context prod -n team-a

    Exit codes: 0 all is well, or nearly; 1 jobs cannot run as it is.
    """

    async def work(client: Client, place: ServerTarget) -> int:
        results = [result async for result in run_checks(client, place)]
        if form == "json":
            tables.write_stdout(formats.as_json(msgspec.to_builtins(results)))
        else:
            _print_results(results)
        return 1 if any(result.result == RESULT_ERROR for result in results) else 0

    return run_blocking(server, work, alive=True)


def _print_results(results: Sequence[CheckResult]) -> None:
    rows = [[result.result, result.check, result.found] for result in results]
    tables.write_stdout(tables.render(("RESULT", "CHECK", "FOUND"), rows))
    for result in results:
        if result.remedy:
            click.echo(f"{result.check}: {result.remedy}", err=True)


async def run_checks(client: Client, place: ServerTarget) -> AsyncIterator[CheckResult]:
    """Everything, in an order in which one thing explains the next. Raises when there is no server at all."""
    async for result in _check_server(client, place):
        yield result
    yield await _check_crds(client)
    async for result in _check_permissions(client, place):
        yield result
    yield await _check_operator(client, place)


async def _check_server(client: Client, place: ServerTarget) -> AsyncIterator[CheckResult]:
    began = SystemClock().now()
    response = await client.transport.send(Request("GET", "/version"))
    ended = SystemClock().now()
    error = response_error(response)
    if error is not None:
        raise error
    version = msgspec.json.decode(response.body).get("gitVersion", "unknown")
    took = round((ended - began).total_seconds() * 1000)
    where = "plane of this machine" if place.plane_folder is not None else f"context {place.connection.context}"
    yield CheckResult("server", RESULT_OK, f"{place.connection.server} ({where}), Kubernetes {version}, {took} ms")
    skew = clock_skew(response.headers.get("date", ""), began, ended)
    if skew is None:
        yield CheckResult("clocks", RESULT_WARNING, "the server does not say what time it is")
    elif skew > MAX_CLOCK_SKEW:
        told = f"the server's clock differs from this one by {round(skew.total_seconds())} s"
        yield CheckResult("clocks", RESULT_WARNING, told, "let both follow a time server: ages and deadlines are off")
    else:
        yield CheckResult("clocks", RESULT_OK, "the server's clock agrees with this one")


def clock_skew(date: str, began: datetime, ended: datetime) -> timedelta | None:
    """By how much a server's clock is off, at least; None if it does not say. It tells whole seconds."""
    try:
        told = parsedate_to_datetime(date)
    except ValueError:
        return None
    early, late = told, told + timedelta(seconds=1)
    return max(early - ended, began - late, timedelta())


async def _check_crds(client: Client) -> CheckResult:
    from gangline.api.kubeflow.kinds import TRAINING_KINDS
    from gangline.schema.crds.job_crds import crd

    missing, old = [], []
    try:
        for kind in TRAINING_KINDS:
            ours = crd(kind)
            try:
                there = await client.get(CRDS, Key("", ours["metadata"]["name"]))
            except NotFound:
                missing.append(kind.kind)
                continue
            if not _is_current_crd(ours, there):
                old.append(kind.kind)
    except Forbidden:
        return CheckResult("definitions", RESULT_WARNING, "you may not look at definitions (CRDs)")
    if missing:
        return CheckResult(
            "definitions", RESULT_ERROR, f"the server does not know {', '.join(missing)}", INSTALL_COMMAND
        )
    if old:
        return CheckResult(
            "definitions",
            RESULT_WARNING,
            f"of another version than this gangline: {', '.join(old)}",
            INSTALL_COMMAND,
        )
    return CheckResult("definitions", RESULT_OK, f"all {len(TRAINING_KINDS)} kinds, as this gangline has them")


def _is_current_crd(ours: JSON, there: JSON) -> bool:
    """Whether the schema of our version is the one that is served."""
    served = {version["name"]: version.get("schema") for version in there["spec"]["versions"]}
    return all(served.get(version["name"]) == version["schema"] for version in ours["spec"]["versions"])


async def _check_permissions(client: Client, place: ServerTarget) -> AsyncIterator[CheckResult]:
    lacking: list[str] = []
    for group, plural, part in REQUIRED_RESOURCES:
        name = f"{plural}/{part}" if part else plural
        for deed in REQUIRED_VERBS.get(name, REQUIRED_JOB_VERBS):
            asked = {
                "namespace": place.object_namespace,
                "verb": deed,
                "group": group,
                "resource": plural,
                "subresource": part,
            }
            body = {"spec": {"resourceAttributes": asked}}
            try:
                answer = await client.create(ACCESS_REVIEWS, body)
            except KubeError as error:
                yield CheckResult("rights", RESULT_WARNING, f"cannot be asked for: {error_line(error)}")
                return
            if not (answer.get("status") or {}).get("allowed"):
                lacking.append(f"{deed} {name}")
    if lacking:
        told = f"in namespace {place.object_namespace} you may not {', '.join(lacking)}"
        yield CheckResult("rights", RESULT_WARNING, told, "ask whoever runs the cluster for a role with these verbs")
    else:
        yield CheckResult("rights", RESULT_OK, f"you may do all with jobs in namespace {place.object_namespace}")


async def _check_operator(client: Client, place: ServerTarget) -> CheckResult:
    if place.plane_folder is not None:
        return CheckResult("operator", RESULT_OK, "part of the plane of this machine")
    now = SystemClock().now()
    try:
        leases = (await client.list(LEASES)).items
        alive = [lease for lease in leases if _is_operator_lease(lease) and is_lease_held(lease, now)]
        if alive:
            holder = alive[0]["spec"].get("holderIdentity", "")
            return CheckResult("operator", RESULT_OK, f"alive: {holder} holds {alive[0]['metadata']['name']}")
        pods = (await client.list(PODS, Selector(labels=OPERATOR_SELECTOR))).items
    except Forbidden:
        return CheckResult("operator", RESULT_WARNING, "you may not look for it (leases, pods in all namespaces)")
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    if running:
        metadata = running[0]["metadata"]
        return CheckResult("operator", RESULT_OK, f"its pod runs: {metadata['namespace']}/{metadata['name']}")
    return CheckResult(
        "operator",
        RESULT_ERROR,
        "no sign of one: no lease is held, no pod of it runs",
        "gangline operator, or install it",
    )


def _is_operator_lease(lease: JSON) -> bool:
    name = lease["metadata"]["name"]
    return "training-operator" in name or "gangline" in name


def is_lease_held(lease: JSON, now: datetime) -> bool:
    """Whether somebody has renewed a lease in time."""
    spec = lease.get("spec") or {}
    renewed, seconds = parse_timestamp(spec.get("renewTime")), spec.get("leaseDurationSeconds") or 0
    return bool(spec.get("holderIdentity")) and renewed is not None and now - renewed <= timedelta(seconds=2 * seconds)
