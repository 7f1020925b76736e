"""Installs and upgrades: observes the server, plans, applies, waits, and ends with the verdict of `doctor`."""

from collections.abc import Sequence
from difflib import unified_diff
from typing import NamedTuple

from gangline import __version__
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError, InputError
from gangline.base.invocation import own_command_line
from gangline.cli.connect.server import ServerTarget
from gangline.cli.exit_codes import ERROR, SUCCEEDED
from gangline.cli.install.cluster_objects import ClusterObjects
from gangline.cli.install.flag_values import merged, settled, values_text
from gangline.cli.install.plan import (
    CRD_KIND,
    ChangeAction,
    InstallPlan,
    ObjectChange,
    comparable,
    helm_release,
    install_plan,
    overlap_problem,
)
from gangline.cli.install.record import (
    InstallationRecord,
    ObjectRef,
    merged_objects,
    object_ref,
    record_body,
    version_problem,
)
from gangline.cli.install.request import (
    InstallObjects,
    InstallRequest,
    install_values,
    is_namespaced,
    objects_to_install,
)
from gangline.cli.install.screen import InstallScreen
from gangline.cli.install.waiting import Waiter
from gangline.cli.output import formats, tables
from gangline.cli.resources.lookup import DEPLOYMENTS
from gangline.cli.services.check_result import RESULT_ERROR, results_text
from gangline.cli.services.doctor import conclusion, run_checks
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, NotFound
from gangline.operator.conflicting_operators import OperatorIdentity, find_conflicts
from gangline.operator.settings import KUBEFLOW_LEASE
from gangline.summary.objects import NAMESPACES

OPERATOR_SELECTOR = "app.kubernetes.io/part-of=gangline,app.kubernetes.io/component=operator"
"""The Deployments of our operator, whichever tool installed them."""


class OtherOperator(GanglineError):
    """Another operator serves the jobs of this cluster."""


class Installer:
    """Installs one request on one server."""

    def __init__(self, client: Client, request: InstallRequest, screen: InstallScreen, clock: Clock) -> None:
        self.client, self.request, self.screen, self.clock = client, request, screen, clock
        self.objects = ClusterObjects(client, force=request.force)
        self.waiter = Waiter(self.objects, screen, clock, request.timeout)

    async def namespace_exists(self) -> bool:
        """Whether the namespace exists. One that the user may not read is taken for existing."""
        try:
            await self.client.get(NAMESPACES, Key("", self.request.namespace))
        except NotFound:
            return False
        except Forbidden:
            return True
        return True

    async def wanted_objects(self, record: InstallationRecord | None) -> InstallObjects:
        """The objects to install; with the namespace if it is ours, and extra objects in it unless they name another."""
        owns_namespace = record is not None and any(ref.kind == "Namespace" for ref in record.objects)
        creates_namespace = owns_namespace or not await self.namespace_exists()
        wanted = objects_to_install(self.request, creates_namespace=creates_namespace)
        return wanted._replace(objects=[await self._placed(body) for body in wanted.objects])

    async def _placed(self, body: JSON) -> JSON:
        ref = object_ref(body)
        if ref.namespace or not (await self.objects.resource(ref)).namespaced:
            return body
        return {**body, "metadata": {**body["metadata"], "namespace": self.request.namespace}}

    async def check_other_operators(self, wanted: InstallObjects) -> None:
        """Raise `OtherOperator` if one serves the same jobs."""
        from gangline.api.kubeflow.kinds import TRAINING_KINDS

        values = install_values(self.request.values)
        lease = Key(self.request.namespace, values.leader_election.lease_name or KUBEFLOW_LEASE)
        me = OperatorIdentity(Key(self.request.namespace, ""), "gangline-operator", lease)
        own = [object_ref(body).key for body in wanted.deployments]
        deployments = await self.objects.list_readable(DEPLOYMENTS, Selector(labels=OPERATOR_SELECTOR))
        if problem := overlap_problem(deployments, values.watch_namespaces, own):
            raise OtherOperator(problem)
        for namespace in values.watch_namespaces or ("",):
            try:
                conflicts = await find_conflicts(self.client, TRAINING_KINDS, namespace, me, self.clock.now())
            except Forbidden:
                # The operator looks itself, as soon as it may.
                continue
            for conflict in conflicts:
                raise OtherOperator(
                    f"another operator serves these jobs: {conflict.description}; to move them from the Kubeflow"
                    " operator to gangline: gangline handover; from another gangline: gangline uninstall --namespace"
                    " NAMESPACE first"
                )

    async def wait_for_deletions(self) -> None:
        """Return when the namespace and the definitions of an earlier installation are not just being deleted."""
        bodies = objects_to_install(self.request, creates_namespace=True)
        refs = [object_ref(body) for body in (*bodies.objects, *bodies.crds)]
        await self.waiter.wait_for_deletions([ref for ref in refs if ref.kind in ("Namespace", CRD_KIND)])

    async def plan(self, wanted: InstallObjects, record: InstallationRecord | None) -> InstallPlan:
        """What is to be changed. Changes nothing. Raises if a right is missing or an object belongs to others."""
        bodies = (*wanted.crds, *wanted.objects)
        needs_cluster = not is_namespaced(self.request.values)
        return install_plan(await self.objects.observe(bodies, needs_cluster=needs_cluster), record)

    async def apply(self, plan: InstallPlan, record: InstallationRecord | None) -> None:
        """Carry a plan out: CRDs first, then all others, then delete what is no longer part of it.

        The record comes before the objects, so that an installation that was interrupted can be removed.
        """
        earlier = record.objects if record else ()
        recorded = False
        crds = [change for change in plan.changes if change.ref.kind == CRD_KIND]
        others = [change for change in plan.changes if change not in crds]
        await self._apply_changes(crds)
        await self.waiter.wait_for_crds(
            [change.ref for change in crds if change.action in (ChangeAction.CREATED, ChangeAction.CONFIGURED)]
        )
        for change in others:
            if change.ref.kind != "Namespace" and not recorded:
                await self._write_record(merged_objects(earlier, plan.refs))
                recorded = True
            await self._apply_changes([change])
        for ref in plan.stale:
            await self._prune(ref)
        await self._write_record(plan.refs)

    async def _apply_changes(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            if change.action in (ChangeAction.CREATED, ChangeAction.CONFIGURED):
                await self.objects.apply(change.body)
            self.screen.show_change(change.ref, change.action)

    async def _prune(self, ref: ObjectRef) -> None:
        """Delete an object of the last installation, unless it is somebody else's by now."""
        body = await self.objects.read(ref)
        if body is None or helm_release(body):
            return
        if await self.objects.delete(ref, uid=body["metadata"]["uid"]):
            self.screen.show_change(ref, ChangeAction.DELETED)

    async def _write_record(self, objects: Sequence[ObjectRef]) -> None:
        record = InstallationRecord(__version__, self.request.values, tuple(objects))
        await self.objects.apply(record_body(record, self.request.namespace))

    async def wait(self, wanted: InstallObjects) -> None:
        """Return when all Deployments are ready."""
        await self.waiter.wait_for_rollouts([object_ref(body) for body in wanted.deployments])


class InstallMode(NamedTuple):
    """What may be there before: `install` expects nothing, or the same again; `upgrade` an installation."""

    is_upgrade: bool = False
    resets_values: bool = False


async def install(
    client: Client,
    target: ServerTarget,
    request: InstallRequest,
    mode: InstallMode,
    screen: InstallScreen,
    clock: Clock,
) -> int:
    """Install or upgrade, and print the verdict of `doctor`. Returns the exit code."""
    installer = Installer(client, request, screen, clock)
    if not request.dry_run:
        await installer.wait_for_deletions()
    record = await installer.objects.read_record(request.namespace)
    request = installer.request = effective_request(request, record, mode)
    wanted = await installer.wanted_objects(record)
    await installer.check_other_operators(wanted)
    plan = await installer.plan(wanted, record)
    if request.dry_run:
        print_plan(plan, with_diff=mode.is_upgrade)
        return SUCCEEDED
    with screen:
        await installer.apply(plan, record)
        if request.wait:
            await installer.wait(wanted)
    where = f"in namespace {request.namespace}"
    if plan.is_empty:
        screen.say(f"gangline {__version__} is installed {where}; nothing had to be changed")
    else:
        screen.say(f"gangline {__version__} is installed {where}")
    if request.values.get("replicaCount") == 0:
        remedy = own_command_line("upgrade", "--namespace", request.namespace, "--set", "replicaCount=2")
        screen.say(f"the operator has no replicas, so jobs do not run; to start it: {remedy}")
        return SUCCEEDED
    return await print_verdict(client, target, request) if request.wait else SUCCEEDED


def effective_request(request: InstallRequest, record: InstallationRecord | None, mode: InstallMode) -> InstallRequest:
    """The request with the values of the last installation below those of the flags. Raises `InputError`."""
    if record is None:
        if mode.is_upgrade:
            raise InputError(
                f"nothing is installed in namespace {request.namespace}; write gangline install, or name the namespace"
                " with --namespace"
            )
        return request._replace(values=settled(request.values))
    problem = version_problem(record.version, __version__)
    if problem:
        raise InputError(problem)
    if mode.is_upgrade:
        values = request.values if mode.resets_values else merged(record.values, request.values)
        return request._replace(values=settled(values))
    if record.version != __version__:
        raise InputError(
            f"gangline {record.version} is installed in namespace {request.namespace}; to make it {__version__}:"
            f" gangline upgrade --namespace {request.namespace}"
        )
    if install_values(record.values) != install_values(request.values):
        raise InputError(
            f"gangline is installed in namespace {request.namespace} with other values"
            f" ({values_text(record.values)}); to change some: gangline upgrade --namespace {request.namespace}"
            " --set NAME=VALUE"
        )
    return request._replace(values=record.values)


def print_plan(plan: InstallPlan, *, with_diff: bool) -> None:
    """What would change, one object in a line; with the differences of those that change."""
    for change in plan.changes:
        tables.write_stdout(f"{change.ref.display_name} {change.action} (server dry run)\n")
        if with_diff and change.action is ChangeAction.CONFIGURED:
            tables.write_stdout("".join(diff_lines(change)))
    for ref in plan.stale:
        tables.write_stdout(f"{ref.display_name} {ChangeAction.DELETED} (server dry run)\n")


def diff_lines(change: ObjectChange) -> list[str]:
    """How an object would change, as a unified diff of its YAML."""
    before = formats.as_yaml(comparable(change.existing)) if change.existing else ""
    after = formats.as_yaml(comparable(change.result or change.body))
    return list(unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), "before", "after", n=2))


async def print_verdict(client: Client, target: ServerTarget, request: InstallRequest) -> int:
    """Print what `doctor` says of the server. Returns 1 if jobs cannot run."""
    namespaces = request.values.get("watchNamespaces") or (target.object_namespace,)
    results = [result async for result in run_checks(client, target._replace(namespace=namespaces[0]))]
    tables.write_stdout(results_text(results, colour=tables.stdout_uses_colour()))
    tables.write_stdout(f"{conclusion(results, first_job_command(target, namespaces[0]))}\n")
    return ERROR if any(result.result == RESULT_ERROR for result in results) else SUCCEEDED


def first_job_command(target: ServerTarget, namespace: str) -> list[str]:
    """A command that runs a job on the server: one for this machine alone, such as the demo, would not try it."""
    context = target.connection.context
    place = ["--context", context] if context else []
    if namespace != target.object_namespace:
        place += ["--namespace", namespace]
    return ["run", *place, "--image", "IMAGE", "--", "python", "train.py"]


def yaml_text(bodies: Sequence[JSON]) -> str:
    """Objects as a file that kubectl applies."""
    return "".join(f"---\n{formats.as_yaml(body)}" for body in bodies)
