"""Rules about the last output of programs: patterns and their meaning."""

import re
from collections.abc import Callable, Iterator

from gangline.jobs.plan.restarts import PEER_FAILURE_PATTERN
from gangline.why.diagnosis.case import JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.failures import TRACEBACK_HEADER, ReplicaFailure
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import failure_match, primary_failures, quoted_line
from gangline.why.diagnosis.wording import name_list

_FLAGS = re.IGNORECASE


def log_pattern(
    pattern: str,
    default: dict[str, str] | None = None,
    *,
    more: Callable[[JobSnapshot, ReplicaFacts | None, ReplicaFailure], dict[str, str]] | None = None,
) -> Callable[[RuleInput], Iterator[RuleMatch]]:
    """A rule for failures whose last lines match a pattern. The groups of the pattern are values for the sentences."""
    compiled = re.compile(pattern, _FLAGS)

    def matches(scene: RuleInput) -> Iterator[RuleMatch]:
        for index, end, replica in primary_failures(scene):
            line, found = _last_match(compiled, end)
            if found is None:
                continue
            values = {name.rstrip("2"): text.strip().rstrip(".") for name, text in found.groupdict().items() if text}
            values = {**(default or {}), **values}
            if more is not None:
                values |= more(scene.snapshot, replica, end)
            yield failure_match(scene, index, ("it said:", quoted_line(end.replica, line)), values, log=False)

    return matches


def _last_match(pattern: re.Pattern[str], end: ReplicaFailure) -> tuple[str, re.Match[str] | None]:
    for line in reversed(end.last_output):
        found = pattern.search(line)
        if found is not None:
            return line, found
    return "", None


def _read_only_mount(_: JobSnapshot, replica: ReplicaFacts | None, end: ReplicaFailure) -> dict[str, str]:
    """The read-only mount that the message names, if it names one."""
    text = " ".join(end.output)
    for one in replica.mounts if replica is not None else ():
        if one.read_only and one.path in text:
            return {"mount": one.path, "volume": one.volume}
    return {}


def _mentioned_volume(_: JobSnapshot, replica: ReplicaFacts | None, end: ReplicaFailure) -> dict[str, str]:
    """The volume whose path the message names."""
    text = " ".join(end.output)
    for one in replica.mounts if replica is not None else ():
        if one.path in text:
            return {"volume": one.volume}
    return {}


# Peers

_HOST_AND_PORT = re.compile(r"(?:\[?(?P<host>[A-Za-z0-9][\w.-]*|[0-9a-f:]+)\]?):(?P<port>\d{2,5})\b")
_NAME_UNKNOWN = re.compile(
    r"name or service not known|temporary failure in name resolution|no such host|could not resolve|nodename nor servname"
    r"|getaddrinfo failed|gai error|failed to resolve|unknown host",
    _FLAGS,
)
_RENDEZVOUS_TIMEOUT = re.compile(
    r"watchdog caught collective operation timeout|timed out (after|waiting)|rendezvous.*time ?out|collective.*timeout"
    r"|wait timeout|connect\(\) timed out|deadline_?exceeded|barrier timed out|timed out initializing",
    _FLAGS,
)


def mentioned_peer(case: JobSnapshot, end: ReplicaFailure) -> tuple[str, ReplicaFacts | None]:
    """The peer that a failure names: the address in its last lines, and the replica with this address."""
    for line in reversed(end.output):
        for match in _HOST_AND_PORT.finditer(line):
            host, address = match["host"], match[0]
            for replica in case.replicas:
                mine = replica.name == end.replica
                short = host.partition(".")[0]
                if not mine and (
                    short == replica.pod.metadata.name or (host == replica.pod.status.pod_ip and host != "127.0.0.1")
                ):
                    return address, replica
    addresses = (match[0] for match in map(_HOST_AND_PORT.search, reversed(end.output)) if match is not None)
    return next(addresses, ""), None


def _peer_match(scene: RuleInput, index: int, end: ReplicaFailure, line: str, values: dict[str, str]) -> RuleMatch:
    address, other = mentioned_peer(scene.snapshot, end)
    evidence = ["it said:", quoted_line(end.replica, line)]
    if other is not None:
        state = other.pod.status.phase
        evidence.append(f"{address} is {other.name}, which is {state}")
        values = {**values, "peer": f" ({other.name})", "look": other.name}
    elif address:
        values = {**values, "peer": f" ({address})"}
    missing = _not_running(scene.snapshot)
    if missing:
        evidence.append(f"not running now: {name_list(missing)}")
    return failure_match(scene, index, evidence, {"peer": "", **values}, log=False)


def _not_running(case: JobSnapshot) -> list[str]:
    return [one.name for one in case.replicas if one.pod.status.phase not in ("Running", "Succeeded", "Failed")]


def unknown_name(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        line, found = _last_match(_NAME_UNKNOWN, end)
        if found is not None:
            yield _peer_match(scene, index, end, line, {})


def rendezvous_timeout(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        line, found = _last_match(_RENDEZVOUS_TIMEOUT, end)
        if found is not None:
            yield _peer_match(scene, index, end, line, {})


def peer_lost(scene: RuleInput) -> Iterator[RuleMatch]:
    """Every failure blames a peer, and the replica that failed first no longer exists."""
    for index, end, _ in primary_failures(scene):
        if not _blames_other_replica(scene, end):
            continue
        line = next((line for line in reversed(end.output) if _blames_peer(line)), end.output[-1])
        yield _peer_match(scene, index, end, line, {})


def _blames_other_replica(scene: RuleInput, end: ReplicaFailure) -> bool:
    """Whether the failure blames a peer. A job with one replica has no peers."""
    return end.blames_peer and (scene.snapshot.job.desired_total or len(scene.snapshot.replicas)) > 1


def _blames_peer(line: str) -> bool:
    return PEER_FAILURE_PATTERN.search(line) is not None


# Python

_EXCEPTION = re.compile(
    r"^(?:\[[^\]]*\]:?\s*)?(?P<error>(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|NotFound|Timeout))\b(?:: (?P<what>.*))?$"
)


def python_exception(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        if _blames_other_replica(scene, end) or not any(TRACEBACK_HEADER in line for line in end.last_output):
            continue
        exception_line = next(
            (match for match in map(_EXCEPTION.match, (line.strip() for line in reversed(end.last_output))) if match),
            None,
        )
        if exception_line is not None:
            frame = next((line.strip() for line in reversed(end.last_output) if line.strip().startswith("File ")), "")
            values = {
                "error": exception_line["error"],
                "what": f": {exception_line['what']}" if exception_line["what"] else "",
            }
            values |= {"frame": frame} if frame else {}
            yield failure_match(scene, index, (), values)


LOG_RULES = (
    DiagnosisRule(
        "port-in-use",
        "log: Address already in use",
        log_pattern(
            r"address already in use|EADDRINUSE|errno:? 98\b|only one usage of each socket address|failed to bind.*port",
            more=lambda case, replica, end: _port_in_use(end),
        ),
        "{who} wants to listen on a port{port} that is in use already.",
        (
            "use the port that the job gives it (MASTER_PORT, TF_CONFIG …) and not a fixed one; with hostNetwork two pods of a node share ports",
            "look who has it: ss -ltnp",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "disk-full",
        "log: No space left on device",
        log_pattern(r"no space left on device|ENOSPC|errno:? 28\b|disk quota exceeded", more=_mentioned_volume),
        "{who} has no disk space left to write to.",
        (
            "make volume {volume} larger, or keep fewer checkpoints in it",
            "write checkpoints to a volume with room, and delete old ones; look: df -h in the pod",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "read-only",
        "log: Read-only file system",
        log_pattern(
            r"(?:'(?P<file2>[^']+)': )?read-only file system(?::\s*'?(?P<file>[^']+)'?)?|EROFS|errno:? 30\b",
            {"file": "a file"},
            more=_read_only_mount,
        ),
        "{who} writes to a place that is read-only: {file}.",
        (
            "remove readOnly of the mount {mount} (volume {volume}) in {path}.volumeMounts",
            "write to a volume that is not read-only, such as an emptyDir, in {path}.volumeMounts",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "permission",
        "log: Permission denied",
        log_pattern(
            r"permission ?(denied|error)(?:.*?:\s*'(?P<file>[^']+)')?|EACCES|operation not permitted",
            {"file": "something"},
        ),
        "{who} may not do what it tries: permission denied for {file}.",
        ("write a securityContext with fsGroup or runAsUser into {template}, or use another path", "{again}"),
    ),
    DiagnosisRule(
        "gpu-memory",
        "log: CUDA out of memory",
        log_pattern(
            r"cuda out of memory|CUDA_ERROR_OUT_OF_MEMORY|OutOfMemoryError: CUDA|RESOURCE_EXHAUSTED: .*memory|hip out of memory"
        ),
        "{who} ran out of GPU memory.",
        ("lower the batch size, use mixed precision or gradient accumulation, or a larger GPU", "{again}"),
    ),
    DiagnosisRule(
        "gpu-missing",
        "log: no CUDA device, or a driver that does not fit",
        log_pattern(
            r"no cuda-capable device|found no nvidia driver|cuda driver version is insufficient|no kernel image is available"
            r"|no cuda gpus are available|CUDA_ERROR_NO_DEVICE|libcuda\.so\S*: cannot open"
        ),
        "{who} finds no GPU that it can use.",
        (
            "ask for one: {path}.resources.limits[nvidia.com/gpu]: 1, and use an image for the node's driver",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "memory-error",
        "log: MemoryError, bad_alloc, Cannot allocate memory",
        log_pattern(
            r"\bMemoryError\b|std::bad_alloc|cannot allocate memory|unable to allocate (?P<much>[\d.]+ ?\w?i?B)"
        ),
        "{who} was given no more memory.",
        ("raise {path}.resources.limits.memory, or lower the batch size", "{again}"),
    ),
    DiagnosisRule(
        "shared-memory-log",
        "log: not enough shared memory",
        log_pattern(
            r"insufficient shared memory|out of shared memory|unable to (open|write to|resize) .*shared memory|/dev/shm.*no space|bus error"
        ),
        "{who} needs more shared memory than /dev/shm has.",
        (
            "mount an emptyDir with medium: Memory at /dev/shm: {template}.volumes and {path}.volumeMounts",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "mpi-rank",
        "log of the launcher: mpirun noticed that a rank was ended by a signal, or ended with a code",
        log_pattern(
            r"(?:mpirun|prterun)\S* (?:noticed|detected) that .*?rank (?P<rank>\d+)\b.*? on node (?P<node>\S+) exited (?P<how>.+)"
        ),
        "rank {rank} on {node} exited {how}; {who} ended with it.",
        ("look at the lines of that rank before it: {logs}", "{again}"),
    ),
    DiagnosisRule(
        "child-killed",
        "log of torchrun: a process that it started was killed",
        log_pattern(
            r"Signal 9 \(SIGKILL\) received by PID (?P<pid>\d+)|exitcode\s*:\s*-9\b.*?(?:pid:? ?(?P<pid2>\d+))?"
        ),
        "a process that {who} had started was killed (SIGKILL), most likely for its memory.",
        ("raise {path}.resources.limits.memory, or start fewer processes per pod", "{again}"),
    ),
    DiagnosisRule(
        "module-missing",
        "log: ModuleNotFoundError",
        log_pattern(r"(?:(?:ModuleNotFoundError|ImportError)|python[\d.]*): No module named '?(?P<module>[\w.]+)'?"),
        "{who} imports module {module}, which is not installed where it runs.",
        (
            "add {module} to the image ({path}.image); on this machine: to the environment of the images file",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "import-failed",
        "log: ImportError, or a library that cannot be opened",
        log_pattern(
            r"ImportError: (?P<what>.+)|(?P<library>\S+\.so\S*): cannot open shared object file",
            {"what": "a library is missing"},
        ),
        "{who} cannot import what it needs: {what}.",
        (
            "the image lacks a library, or has another version of it than the program wants ({path}.image)",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "syntax-error",
        "log: SyntaxError, IndentationError",
        log_pattern(
            r"^(?:SyntaxError|IndentationError|TabError): (?P<what>.+)",
            more=lambda case, replica, end: _source_line(end),
        ),
        "{who} cannot run its program, which is not valid Python: {what}{at}.",
        ("correct that line", "{again}"),
    ),
    DiagnosisRule(
        "file-missing",
        "log: No such file or directory",
        log_pattern(r"(?:FileNotFoundError|can't open file|No such file or directory)\b.*?['\"](?P<file>[^'\"]+)['\"]"),
        "{who} opens {file}, which does not exist where it runs.",
        ("mount the volume that has it, or correct the path (in the program or in {path}.args)", "{again}"),
    ),
    DiagnosisRule(
        "usage",
        "log: the program's own usage error (argparse, click)",
        log_pattern(
            r"error: (?P<what>(?:unrecognized arguments|the following arguments are required|argument |no such option).*)"
        ),
        "{who} was started with arguments that the program does not take: {what}.",
        ("correct {path}.args or {path}.command", "{again}"),
    ),
    DiagnosisRule(
        "shape-mismatch",
        "log: tensors whose shapes do not fit",
        log_pattern(
            r"(?P<what>.*(?:size mismatch|shapes? .*cannot be multiplied|incompatible shapes|dimension mismatch|must match the size"
            r"|not aligned|could not be broadcast|shape mismatch).*)"
        ),
        "{who} stopped at tensors whose shapes do not fit: {what}.",
        ("correct the model or the data; a checkpoint of another model says the same", "{again}"),
    ),
    DiagnosisRule(
        "name-unknown",
        "log: a name that does not resolve",
        unknown_name,
        "{who} cannot find a peer by its name{peer}.",
        (
            "are the services there? kubectl get services; does DNS work in the pod? A peer that starts later is found by trying again",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "python-exception",
        "log: a Python traceback",
        python_exception,
        "{who} stopped with {error}{what}",
        ("look there: {frame}", "{again}"),
    ),
)
"""Tried on failures that do not blame a peer, before the rules about exit codes."""

PEER_RULES = (
    DiagnosisRule(
        "rendezvous-timeout",
        "log: a collective, barrier or rendezvous timed out, and nobody failed before",
        rendezvous_timeout,
        "{who} waited in vain for its peers{peer}.",
        (
            "do all replicas run, and do they run the same number of steps? Is WORLD_SIZE the number that starts?",
            "look at that one: gangline logs {job} --replica {look}",
        ),
    ),
    DiagnosisRule(
        "peer-lost",
        "log: connection refused, reset or closed (gloo, NCCL, gRPC, MPI), and nobody failed before",
        peer_lost,
        "{who} lost the connection to a peer{peer}, and no replica that is left failed before it.",
        (
            "look whether that peer ran at that time, was deleted or restarted: kubectl get events --sort-by=.lastTimestamp",
            "restart the whole team when one is lost: write spec.runPolicy.restartScope: Job",
        ),
    ),
)


def _source_line(end: ReplicaFailure) -> dict[str, str]:
    """The last source line that the output names."""
    named = (re.search(r'^\s*File "([^"]+)", line (\d+)', line) for line in reversed(end.last_output))
    match = next((match for match in named if match is not None), None)
    return {"at": f" ({match[1]}, line {match[2]})" if match is not None else ""}


def _port_in_use(end: ReplicaFailure) -> dict[str, str]:
    for line in reversed(end.output):
        if re.search(r"in use|EADDRINUSE|bind|listen", line, _FLAGS):
            found = re.search(r"(?:port[ =:]+|:)(\d{2,5})\b", line, _FLAGS)
            if found:
                return {"port": f" ({found[1]})"}
    return {"port": ""}
