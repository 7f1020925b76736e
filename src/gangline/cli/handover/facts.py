"""What there is of the Kubeflow operator in a cluster, and what a handover changes, in words. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.base.invocation import with_own_command
from gangline.cli.handover.record import HandoverRecord, StoppedDeployment
from gangline.cli.handover.rehearsal import Rehearsal
from gangline.cli.install.flag_values import values_text
from gangline.cli.install.plan import InstallPlan, portable
from gangline.cli.install.screen import names_text
from gangline.operator.conflicting_operators import Deployment, is_kubeflow_operator

JOB_GROUP = "kubeflow.org"
HOOK_SUFFIX = ".training-operator.kubeflow.org"
MAX_JOBS = 20
"""The most jobs that a rehearsal names."""


class KubeflowObjects(NamedTuple):
    """The objects of the Kubeflow operator that a handover changes, as the server has them."""

    deployments: Sequence[JSON] = ()
    webhooks: Sequence[JSON] = ()
    crds: Sequence[JSON] = ()

    @property
    def is_running(self) -> bool:
        return any(replicas(body) for body in self.deployments)

    def record(self) -> HandoverRecord:
        """What is to be put back later."""
        stopped = [
            StoppedDeployment(body["metadata"]["namespace"], body["metadata"]["name"], replicas(body))
            for body in self.deployments
        ]
        return HandoverRecord(tuple(stopped), tuple(portable(body) for body in (*self.webhooks, *self.crds)))


def replicas(deployment: JSON) -> int:
    count: int = deployment["spec"].get("replicas", 1)
    return count


def kubeflow_deployments(bodies: Iterable[JSON]) -> list[JSON]:
    """The Deployments that run the Kubeflow operator, or did so before they were scaled to 0."""
    return [body for body in bodies if is_kubeflow_operator(msgspec.convert(body, Deployment))]


def kubeflow_webhooks(bodies: Iterable[JSON], namespaces: Iterable[str]) -> list[JSON]:
    """The webhook configurations of the Kubeflow operator: by name, or all of it about jobs and served by its namespace."""
    among = set(namespaces)
    return [body for body in bodies if body["metadata"]["name"].endswith(HOOK_SUFFIX) or _serves_jobs(body, among)]


def _serves_jobs(configuration: JSON, namespaces: set[str]) -> bool:
    hooks: Sequence[Mapping[str, Any]] = configuration.get("webhooks") or ()
    groups = {group for hook in hooks for rule in hook.get("rules") or () for group in rule.get("apiGroups") or ()}
    services = {(hook["clientConfig"].get("service") or {}).get("namespace", "") for hook in hooks}
    return bool(hooks) and groups == {JOB_GROUP} and services <= namespaces


def rehearsal_lines(kubeflow: KubeflowObjects, carried: JSON, plan: InstallPlan, rehearsal: Rehearsal) -> list[str]:
    """What a handover would do, one thing in a line."""
    lines = ["stop   " + line for line in _deployment_lines(kubeflow.deployments)]
    lines += [f"remove {body['kind'].lower()}/{body['metadata']['name']}" for body in kubeflow.webhooks]
    if kubeflow.crds:
        lines.append(f"update {len(kubeflow.crds)} definitions (CRDs); the jobs in them stay")
    count = sum(change.action == "created" for change in plan.changes)
    lines.append(f"start  gangline: {count} new objects")
    if carried:
        lines.append(f"       with {values_text(carried)}, as these jobs need it")
    lines.append(
        with_own_command(
            "keep   what is removed or changed, in configmaps beside our operator: gangline handover --back"
        )
    )
    jobs, changed = rehearsal.effects, rehearsal.changed
    lines.append(f"jobs   {len(jobs)} with {len(rehearsal.pods)} pods; {len(jobs) - len(changed)} go on as they are")
    lines += [f"       {effect.kind} {effect.key} {effect.text}" for effect in changed[:MAX_JOBS]]
    lines += [f"       and {len(changed) - MAX_JOBS} more that change"] if len(changed) > MAX_JOBS else []
    if rehearsal.unreadable:
        lines.append(f"       cannot be read and are left alone: {names_text(rehearsal.unreadable)}")
    return lines


def _deployment_lines(deployments: Sequence[JSON]) -> list[str]:
    return [
        f"deployment {body['metadata']['namespace']}/{body['metadata']['name']} ({replicas(body)} replicas)"
        for body in deployments
        if replicas(body)
    ]


def back_lines(record: HandoverRecord, jobs: int) -> list[str]:
    """What the way back would do, one thing in a line."""
    crds = sum(body["kind"] == "CustomResourceDefinition" for body in record.objects)
    hooks = [body for body in record.objects if body["kind"] != "CustomResourceDefinition"]
    return [
        with_own_command("stop   our operator; its other objects stay until gangline uninstall"),
        f"update {crds} definitions (CRDs) to those that were there before",
        *(f"create {body['kind'].lower()}/{body['metadata']['name']}" for body in hooks),
        *(f"start  deployment {item.namespace}/{item.name} ({item.replicas} replicas)" for item in record.deployments),
        f"jobs   {jobs} go on; status fields that only gangline has (phase, restarts, firstFailure) are lost",
    ]


def unfinished_text(error: str) -> str:
    """That our operator did not start after the other one was stopped, and the two ways on."""
    return with_own_command(
        f"{error}; no operator serves the jobs now, and their pods run on: mend it and write the same command again, or go"
        " back: gangline handover --back --yes"
    )


def back_text(record: HandoverRecord, namespace: str) -> str:
    """Who serves the jobs after the way back, and what is left of ours."""
    rest = with_own_command(f"to remove what is left of ours: gangline uninstall --namespace {namespace}")
    if any(item.replicas for item in record.deployments):
        return f"the Kubeflow operator serves the jobs again; {rest}"
    stopped = [f"kubectl -n {item.namespace} scale deployment {item.name} --replicas=1" for item in record.deployments]
    start = f"start it: {stopped[0]}" if stopped else "install it"
    return f"no operator serves the jobs: the Kubeflow operator did not run before the handover; {start}; {rest}"
