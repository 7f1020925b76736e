"""What several rules share: evidence of a container's end, and the command to type after a change."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.meta import Key
from gangline.node.settings import LOCAL_IMAGE
from gangline.why.diagnosis.case import JobFacts, JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.failures import ReplicaFailure
from gangline.why.diagnosis.report import RuleInput, RuleMatch
from gangline.why.diagnosis.wording import count_phrase, exit_code_meaning, signal_name, time_of_day

TAIL_LINES = 5
MAX_LINE_LENGTH = 300
"""At most this many characters of a log line are shown."""


def primary_failures(scene: RuleInput) -> Iterator[tuple[int, ReplicaFailure, ReplicaFacts | None]]:
    """The failures that need an explanation, the first failure of the job first."""
    for index, end in enumerate(scene.failures.primary):
        yield index, end, scene.snapshot.replica(end.pod)


def failure_match(
    scene: RuleInput,
    index: int,
    evidence: Iterable[str],
    values: Mapping[str, str],
    *,
    log: bool = True,
    brief: bool = False,
) -> RuleMatch:
    """A match that explains a failure by how it ended and its last lines (`brief`: without the exit code's meaning)."""
    end = scene.failures.primary[index]
    replica = scene.snapshot.replica(end.pod)
    lines = [*evidence, exit_summary(scene.snapshot, end, brief=brief)]
    if log:
        lines += log_tail(end)
    return RuleMatch(
        replicas=(end.replica,),
        values={**failure_values(scene.snapshot, end, replica), **values},
        evidence=tuple(lines),
        failure_index=index,
    )


def failure_values(case: JobSnapshot, end: ReplicaFailure, replica: ReplicaFacts | None) -> dict[str, str]:
    """The values that sentences about a failure may use."""
    values = {
        "job": case.job.name,
        "kind": case.job.kind,
        "pod": end.pod,
        "namespace": case.job.namespace,
        "often": f", {count_phrase(end.restarts, 'restart')} so far" if end.in_backoff and end.restarts else "",
        "where": f" in init container {end.container}" if end.is_init else "",
    }
    if is_script(replica, end.container):
        values |= _script_values(case.job)
    elif replica is not None:
        values["path"] = replica.container_path(end.container)
        values["template"] = replica.template_path
    elif case.job.is_training_job and end.replica:
        kind = end.replica.rpartition("-")[0]
        path = next((path for one, path in case.job.template_paths.items() if one.lower() == kind), "")
        if path:
            values["path"], values["template"] = f"{path}.containers[0]", path
    values["again"] = retry_hint(case.job, end.replica)
    if end.from_record:
        values["keep"] = f"its pod is gone, and the rest of its log; to keep both: {_keep_fields(case.job)}"
    elif any(line.strip() for line in end.log):
        values["logs"] = logs_command(case.job, end.replica, end.pod, previous=end.in_backoff)
    return values


def is_script(replica: ReplicaFacts | None, container: str) -> bool:
    """Whether the job was made from a command: there is no file of it that could be changed."""
    found = replica.container(container) if replica is not None else None
    return found is not None and found.image == LOCAL_IMAGE


def _script_values(job: JobFacts) -> dict[str, str]:
    """The folder in which the processes of a script start, if it is known."""
    folder = job.run_command.partition(" && ")[0].removeprefix("cd ") if job.run_command else ""
    return {"script": "command", **({"folder": folder} if folder else {})}


def _keep_fields(job: JobFacts) -> str:
    """What to write so that failed pods stay."""
    return f"restartPolicy: Never, and {job.limits_field}.cleanPodPolicy: None"


def retry_hint(job: JobFacts, replica: str = "") -> str:
    """The command to type after a change."""
    where = f" -n {job.namespace}" if job.namespace != "default" else ""
    resource = f"{job.kind.lower()}/{job.name}"
    if job.run_command:
        return f"run it again after the change: {job.run_command}"
    if job.run_ended_at is not None:
        return "start the plane of this machine again: gangline up --detach"
    if job.is_finished:
        command = "gangline" if job.is_training_job else "kubectl"
        return (
            f"a job that has ended does not start again; delete it, then submit it: {command} delete {resource}{where}"
        )
    kind, _, index = replica.rpartition("-")
    if job.is_training_job and kind and index.isdigit():
        return f"after the change: gangline restart {job.name} --replica {kind}/{index}{where}"
    command = "gangline" if job.is_training_job else "kubectl"
    return f"after the change in its file, delete it and submit it again: {command} delete {resource}{where}"


def create_command(api_version: str, kind: str, key: Key, content: Mapping[str, Any]) -> str:
    """The command that creates a small object, without any file and without kubectl."""
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": key.name}, **content}
    where = f" -n {key.namespace}" if key.namespace not in ("", "default") else ""
    return f"echo {shlex.quote(msgspec.json.encode(body).decode())} | gangline apply{where} -f -"


def creation_step(job: JobFacts, kind: str, name: str, content: Mapping[str, Any]) -> str:
    """How to create a small object that a job misses: by a command, or for a `gangline run` in the job's file."""
    if job.run_command:
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}
        text = msgspec.json.encode(body).decode()
        return f"to the end of the job's file, after a line with three dashes (---): {text}"
    plane = "gangline up --detach && " if job.run_ended_at is not None else ""
    return plane + create_command("v1", kind, Key(job.namespace, name), content)


def run_command_with(job: JobFacts, flag: str) -> str:
    """The command that runs the job on this machine with another flag: its own one, else a plane for it."""
    if not job.run_command:
        return f"gangline down && gangline up --detach {flag}"
    head, separator, command = job.run_command.partition(" -- ")
    return f"{head} {flag}{separator}{command}"


def run_command_with_limit(job: JobFacts, resource: str, amount: str) -> str:
    """The command of a run with another limit; empty if it has none."""
    command, count = re.subn(rf"(--limit[ =]){resource}=\S+", rf"\g<1>{resource}={amount}", job.run_command)
    return command if count else ""


def logs_command(job: JobFacts, replica: str, pod: str = "", *, previous: bool = False) -> str:
    """The command that shows the whole log of a replica."""
    where = f" -n {job.namespace}" if job.namespace != "default" else ""
    flag = " --previous" if previous else ""
    kind, _, index = replica.rpartition("-")
    if job.is_training_job and kind and index.isdigit():
        return f"gangline logs {job.name} --replica {kind}/{index}{flag}{where}"
    return f"kubectl logs {pod or f'{job.name}-{replica}'}{flag}{where}"


def events_command(job: JobFacts) -> str:
    """The command that shows the events of a job and its pods."""
    where = f" -n {job.namespace}" if job.namespace != "default" else ""
    return f"gangline events {job.name}{where}" if job.is_training_job else f"kubectl get events{where}"


def exit_summary(case: JobSnapshot, end: ReplicaFailure, *, brief: bool = False) -> str:
    """`exit code 137 (SIGKILL: …) at 14:02:11 on node gpu-7; 4 restarts`."""
    parts = []
    if end.exit_code is not None:
        parts.append(f"exit code {end.exit_code}" if brief else f"exit code {end.exit_code} ({_exit_meaning(end)})")
    elif end.reason:
        parts.append(f"the pod failed with reason {end.reason}")
    if end.finished_at is not None:
        parts.append(f"at {time_of_day(end.finished_at)}")
    replica = case.replica(end.pod)
    if replica is not None and replica.pod.spec.node_name:
        parts.append(f"on node {replica.pod.spec.node_name}")
    text = " ".join(parts) or "it failed"
    return f"{text}; {count_phrase(end.restarts, 'restart')} so far" if end.restarts else text


def _exit_meaning(end: ReplicaFailure) -> str:
    if _has_specific_reason(end) or end.exit_code is None:
        return end.reason
    name = signal_name(end.exit_code)
    return f"{name}: {exit_code_meaning(end.exit_code)}" if name else exit_code_meaning(end.exit_code)


def _has_specific_reason(end: ReplicaFailure) -> bool:
    return end.reason not in ("", "Error", "Completed")


def log_tail(end: ReplicaFailure, most: int = TAIL_LINES) -> list[str]:
    """The last lines of the log; empty if there is no log."""
    lines = [line for line in end.log if line.strip()][-most:]
    if not lines:
        return []
    return ["last lines:", *(quoted_line(end.replica, line) for line in lines)]


def quoted_line(replica: str, line: str) -> str:
    """`  worker-3│ …`."""
    # A progress bar overwrites itself after each carriage return: keep its last state.
    text = line.rstrip().rpartition("\r")[2]
    return f"  {replica}│ {text[:MAX_LINE_LENGTH]}{'…' if len(text) > MAX_LINE_LENGTH else ''}"
