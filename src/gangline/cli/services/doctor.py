"""`gangline doctor`: checks whether jobs can run on this machine and on a server. Reads only."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import click
import msgspec

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import SystemClock
from gangline.base.errors import GanglineError
from gangline.base.invocation import own_command_line
from gangline.cli.connect.run_work import run_blocking_at
from gangline.cli.connect.server import NoServer, ServerOptions, ServerTarget, find_server
from gangline.cli.errors import error_line, error_with_server
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import server_options
from gangline.cli.output import formats, tables
from gangline.cli.services.check_result import RESULT_ERROR, RESULT_OK, RESULT_WARNING, CheckResult, results_text
from gangline.cli.services.machine_checks import machine_results, observe_machine
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, KubeError, NotFound
from gangline.kube.transport.api import Request, response_error
from gangline.operator.conflicting_operators import GANGLINE_ROLE, KUBEFLOW_ROLE, ROLE_LABEL
from gangline.operator.definitions import CRDS, INSTALL_COMMAND
from gangline.scheduler.settings import LEASE_NAME as SCHEDULER_LEASE
from gangline.summary.job_rows import parse_timestamp
from gangline.summary.objects import JOB_KINDS, PODS

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
REQUIRED_VERBS = {"pods": ("get", "list", "watch", "delete"), "pods/log": ("get",), "events": ("list",)}
REQUIRED_JOB_VERBS = ("get", "list", "watch", "create", "patch", "delete")
NO_SERVER_RESULT = CheckResult(
    "server",
    RESULT_OK,
    "none runs, and gangline run needs none; to start one that stays: gangline up --detach",
)
UNREACHABLE_REMEDY = "choose another cluster with --context, or this machine with --context gangline"


@cli_command()
@click.option(
    "-o", "--output", "form", type=click.Choice(["", "json"]), default="", metavar="[json]", help="json: for programs."
)
@server_options
def doctor(form: str, server: ServerOptions) -> int:
    r"""Check whether jobs can run: this machine, and the cluster or control plane that commands talk to.

    \b
      gangline doctor                           this machine, and a cluster if one is configured
      gangline doctor --context prod -n team-a  only that cluster
      gangline doctor -o json                   for programs

    Of this machine: Python and its packages, memory, disk, ports, limits, GPUs, podman or docker, kubectl and the
    contexts of your kubeconfig. Of a server: its version, the definitions (CRDs) of the job kinds, your permissions,
    the operator, the clocks. Nothing is changed; every problem is printed with what to type.

    Exit codes: 0 jobs can run (there may be warnings); 1 they cannot.
    """
    names_server = any(server.kubeconfig_flags.values())
    results = [] if names_server else machine_results(observe_machine())
    results += _server_results(server)
    if form == "json":
        tables.write_stdout(formats.as_json(msgspec.to_builtins(results)))
    else:
        tables.write_stdout(results_text(results, colour=tables.stdout_uses_colour()))
        click.echo(conclusion(results), err=True)
    return 1 if any(result.result == RESULT_ERROR for result in results) else 0


def conclusion(results: Sequence[CheckResult], first_job: Sequence[str] = ("demo",)) -> str:
    """What the results mean, in one line, with a command that runs a job."""
    errors = sum(result.result == RESULT_ERROR for result in results)
    if errors:
        return f"jobs cannot run before {'this error is' if errors == 1 else f'these {errors} errors are'} mended"
    return f"jobs can run; try: {own_command_line(*first_job)}"


def _server_results(server: ServerOptions) -> list[CheckResult]:
    try:
        target = find_server(server)
    except NoServer:
        return [NO_SERVER_RESULT]
    except GanglineError as error:
        return [CheckResult("server", RESULT_ERROR, str(error))]
    if target.archive is not None:
        return [NO_SERVER_RESULT]
    results: list[CheckResult] = []

    async def work(client: Client, target: ServerTarget) -> None:
        try:
            async for result in run_checks(client, target):
                results.append(result)  # noqa: PERF401 - those before an error are kept
        except KubeError as error:
            text = error_with_server(error, target.connection).removeprefix("error: ")
            results.append(CheckResult("server", RESULT_ERROR, text, UNREACHABLE_REMEDY))

    run_blocking_at(target, server, work)
    return results


async def run_checks(client: Client, target: ServerTarget) -> AsyncIterator[CheckResult]:
    """Run all checks, in an order in which each explains failures of the next. Raises if there is no server."""
    async for result in _check_server(client, target):
        yield result
    yield await _check_crds(client)
    async for result in _check_permissions(client, target):
        yield result
    yield await _check_operator(client, target)


async def _check_server(client: Client, target: ServerTarget) -> AsyncIterator[CheckResult]:
    sent = SystemClock().now()
    response = await client.transport.send(Request("GET", "/version"))
    received = SystemClock().now()
    error = response_error(response)
    if error is not None:
        raise error
    version = msgspec.json.decode(response.body).get("gitVersion", "unknown")
    latency = round((received - sent).total_seconds() * 1000)
    where = "plane of this machine" if target.plane_folder is not None else f"context {target.connection.context}"
    yield CheckResult("server", RESULT_OK, f"{target.connection.server} ({where}), Kubernetes {version}, {latency} ms")
    skew = clock_skew(response.headers.get("date", ""), sent, received)
    if skew is None:
        yield CheckResult("clocks", RESULT_WARNING, "the server sends no Date header")
    elif skew > MAX_CLOCK_SKEW:
        difference = f"the server's clock differs from this one by {round(skew.total_seconds())} s"
        yield CheckResult(
            "clocks", RESULT_WARNING, difference, "let both follow a time server: ages and deadlines are off"
        )
    else:
        yield CheckResult("clocks", RESULT_OK, "the server's clock agrees with this one")


def clock_skew(date: str, sent: datetime, received: datetime) -> timedelta | None:
    """The minimal skew of the server's clock, from the Date header of a response; None if it has none.

    The header has a resolution of one second.
    """
    try:
        earliest = parsedate_to_datetime(date)
    except ValueError:
        return None
    latest = earliest + timedelta(seconds=1)
    return max(earliest - received, sent - latest, timedelta())


async def _check_crds(client: Client) -> CheckResult:
    from gangline.api.kubeflow.kinds import TRAINING_KINDS
    from gangline.schema.crds.job_crds import crd

    missing, outdated = [], []
    try:
        for kind in TRAINING_KINDS:
            expected = crd(kind)
            try:
                served = await client.get(CRDS, Key("", expected["metadata"]["name"]))
            except NotFound:
                missing.append(kind.kind)
                continue
            if not _is_current_crd(expected, served):
                outdated.append(kind.kind)
    except Forbidden:
        return CheckResult("definitions", RESULT_WARNING, "you may not read definitions (CRDs)")
    if missing:
        return CheckResult(
            "definitions", RESULT_ERROR, f"the server does not know {', '.join(missing)}", INSTALL_COMMAND
        )
    if outdated:
        return CheckResult(
            "definitions",
            RESULT_WARNING,
            f"of another version than this gangline: {', '.join(outdated)}",
            INSTALL_COMMAND,
        )
    return CheckResult("definitions", RESULT_OK, f"all {len(TRAINING_KINDS)} kinds, as this gangline has them")


def _is_current_crd(expected: JSON, served: JSON) -> bool:
    """Whether the server serves the schemas of this version of gangline."""
    schemas = {version["name"]: version.get("schema") for version in served["spec"]["versions"]}
    return all(schemas.get(version["name"]) == version["schema"] for version in expected["spec"]["versions"])


async def _check_permissions(client: Client, target: ServerTarget) -> AsyncIterator[CheckResult]:
    denied: dict[str, list[str]] = {}
    for group, plural, subresource in REQUIRED_RESOURCES:
        name = f"{plural}/{subresource}" if subresource else plural
        for verb in REQUIRED_VERBS.get(name, REQUIRED_JOB_VERBS):
            attributes = {
                "namespace": target.object_namespace,
                "verb": verb,
                "group": group,
                "resource": plural,
                "subresource": subresource,
            }
            body = {"spec": {"resourceAttributes": attributes}}
            try:
                review = await client.create(ACCESS_REVIEWS, body)
            except KubeError as error:
                yield CheckResult("rights", RESULT_WARNING, f"cannot be checked: {error_line(error)}")
                return
            if not (review.get("status") or {}).get("allowed"):
                denied.setdefault(name, []).append(verb)
    if denied:
        problem = f"in namespace {target.object_namespace} you may not {_denied_phrase(denied)}"
        grant = f"kubectl create rolebinding NAME --clusterrole edit --user YOU -n {target.object_namespace}"
        remedy = f"an administrator allows it: {grant}; kubectl auth whoami shows who you are"
        yield CheckResult("rights", RESULT_WARNING, problem, remedy)
    else:
        yield CheckResult(
            "rights", RESULT_OK, f"you have all permissions for jobs in namespace {target.object_namespace}"
        )


def _denied_phrase(denied: Mapping[str, Sequence[str]]) -> str:
    """`get, list tfjobs, mpijobs; list events`: resources that lack the same verbs are listed together."""
    resources: dict[tuple[str, ...], list[str]] = {}
    for name, verbs in denied.items():
        resources.setdefault(tuple(verbs), []).append(name)
    return "; ".join(f"{', '.join(verbs)} {', '.join(names)}" for verbs, names in resources.items())


async def _check_operator(client: Client, target: ServerTarget) -> CheckResult:
    if target.plane_folder is not None:
        return CheckResult("operator", RESULT_OK, "part of the plane of this machine")
    now = SystemClock().now()
    try:
        leases: Sequence[JSON] = (await client.list(LEASES)).items
        pods: Sequence[JSON] = (await client.list(PODS, Selector(labels=OPERATOR_SELECTOR))).items
    except Forbidden:
        # An operator of this namespace alone may be installed in it.
        leases = await _list_readable(client, LEASES, Selector(target.object_namespace))
        pods = await _list_readable(client, PODS, Selector(target.object_namespace, OPERATOR_SELECTOR))
        if not leases and not pods:
            return CheckResult("operator", RESULT_WARNING, "you may not read leases and pods in all namespaces")
    held = [lease for lease in leases if _is_operator_lease(lease) and is_lease_held(lease, now)]
    if held:
        holder = held[0]["spec"].get("holderIdentity", "")
        return CheckResult("operator", RESULT_OK, f"alive: {holder} holds {held[0]['metadata']['name']}")
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    if running:
        metadata = running[0]["metadata"]
        return CheckResult("operator", RESULT_OK, f"its pod runs: {metadata['namespace']}/{metadata['name']}")
    return CheckResult(
        "operator",
        RESULT_ERROR,
        "no sign of one: no lease is held, no pod of it runs",
        "gangline install",
    )


async def _list_readable(client: Client, kind: Resource[JSON], selector: Selector) -> Sequence[JSON]:
    try:
        return (await client.list(kind, selector)).items
    except Forbidden:
        return ()


def _is_operator_lease(lease: JSON) -> bool:
    name = lease["metadata"]["name"]
    return name != SCHEDULER_LEASE and ("training-operator" in name or "gangline" in name)


def is_lease_held(lease: JSON, now: datetime) -> bool:
    """Whether the lease has a holder that renewed it within twice its duration."""
    spec = lease.get("spec") or {}
    renewed, seconds = parse_timestamp(spec.get("renewTime")), spec.get("leaseDurationSeconds") or 0
    return bool(spec.get("holderIdentity")) and renewed is not None and now - renewed <= timedelta(seconds=2 * seconds)
