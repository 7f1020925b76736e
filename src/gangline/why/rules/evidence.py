"""What several rules say in the same way: evidence of an end, and what to type after a change."""

from collections.abc import Iterable, Iterator, Mapping

from gangline.why.model.case import Case, Job, Replica
from gangline.why.model.failures import End
from gangline.why.model.report import Match, Scene
from gangline.why.model.wording import clock, count, meaning, signal_name

LAST_LINES = 5
LONGEST = 300
"""Characters of a log line that are shown."""


def ends(scene: Scene) -> Iterator[tuple[int, End, Replica | None]]:
    """The failures that want an explanation, the first of the team first."""
    for index, end in enumerate(scene.team.ends):
        yield index, end, scene.case.replica(end.pod)


def explained(
    scene: Scene,
    index: int,
    evidence: Iterable[str],
    values: Mapping[str, str],
    *,
    log: bool = True,
    brief: bool = False,
) -> Match:
    """A match that explains a failure: with how it ended (`brief`: without what that means), and its last lines."""
    end = scene.team.ends[index]
    replica = scene.case.replica(end.pod)
    lines = [*evidence, how(scene.case, end, brief=brief)]
    if log:
        lines += last_lines(end)
    return Match(
        who=(end.replica,),
        values={**about(scene.case, end, replica), **values},
        evidence=tuple(lines),
        end=index,
    )


def about(case: Case, end: End, replica: Replica | None) -> dict[str, str]:
    """What sentences about a failure may name."""
    values = {
        "job": case.job.name,
        "kind": case.job.kind,
        "pod": end.pod,
        "often": f", {count(end.restarts, 'restart')} so far" if end.looping and end.restarts else "",
        "where": f" in init container {end.container}" if end.init else "",
    }
    if replica is not None:
        values["path"] = replica.path(end.container)
        values["template"] = replica.template
    elif case.job.training and end.replica:
        kind = end.replica.rpartition("-")[0]
        path = next((path for one, path in case.job.templates.items() if one.lower() == kind), "")
        if path:
            values["path"], values["template"] = f"{path}.containers[0]", path
    values["again"] = again(case.job, end.replica)
    values["logs"] = logs(case.job, end)
    return values


def again(job: Job, replica: str = "") -> str:
    """What to type after a change."""
    where = f" -n {job.namespace}" if job.namespace != "default" else ""
    resource = f"{job.kind.lower()}/{job.name}"
    if job.recorded is not None:
        return "gangline run FILE     after the change"
    if job.finished:
        return f"then delete it and submit it again, for a job that has ended does not start anew: kubectl delete {resource}{where}"
    kind, _, index = replica.rpartition("-")
    if job.training and kind and index.isdigit():
        return f"gangline restart {job.name} --replica {kind}/{index}{where}     after the change"
    return f"kubectl apply -f FILE{where}     after the change in the file"


def logs(job: Job, end: End) -> str:
    """What shows all that was said."""
    where = f" -n {job.namespace}" if job.namespace != "default" else ""
    previous = " --previous" if end.looping else ""
    kind, _, index = end.replica.rpartition("-")
    if job.training and kind and index.isdigit():
        return f"gangline logs {job.name} --replica {kind}/{index}{previous}{where}"
    return f"kubectl logs {end.pod}{previous}{where}"


def how(case: Case, end: End, *, brief: bool = False) -> str:
    """`exit code 137 (SIGKILL: …) at 14:02:11 on node gpu-7; 4 restarts`."""
    parts = []
    if end.code is not None:
        parts.append(f"exit code {end.code}" if brief else f"exit code {end.code} ({_how(end)})")
    elif end.reason:
        parts.append(f"the pod failed with reason {end.reason}")
    if end.at is not None:
        parts.append(f"at {clock(end.at)}")
    replica = case.replica(end.pod)
    if replica is not None and replica.pod.spec.node_name:
        parts.append(f"on node {replica.pod.spec.node_name}")
    text = " ".join(parts) or "it failed"
    return f"{text}; {count(end.restarts, 'restart')} so far" if end.restarts else text


def _how(end: End) -> str:
    if _telling(end) or end.code is None:
        return end.reason
    name = signal_name(end.code)
    return f"{name}: {meaning(end.code)}" if name else meaning(end.code)


def _telling(end: End) -> bool:
    return end.reason not in ("", "Error", "Completed")


def last_lines(end: End, most: int = LAST_LINES) -> list[str]:
    """The end of the log, if there is one."""
    lines = [line for line in end.log if line.strip()][-most:]
    if not lines:
        return []
    return ["last lines:", *(quoted(end.replica, line) for line in lines)]


def quoted(who: str, line: str) -> str:
    """`  worker-3│ …`."""
    text = line.rstrip()
    return f"  {who}│ {text[:LONGEST]}{'…' if len(text) > LONGEST else ''}"
