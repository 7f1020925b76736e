"""Rules about the last output of programs: patterns and their meaning."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from gangline.api.denied_access import denied_access, grant_commands
from gangline.base.python_packages import distribution_of
from gangline.jobs.plan.failures.ends import PEER_FAILURE_PATTERN
from gangline.why.diagnosis.case import JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.failures import CLOCK_TOLERANCE, TRACEBACK_HEADER, ReplicaFailure
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import (
    events_command,
    failure_match,
    is_script,
    logs_command,
    primary_failures,
    quoted_line,
    retry_hint,
)
from gangline.why.diagnosis.rules.no_progress import finished_peers, is_stuck, running_replicas
from gangline.why.diagnosis.wording import count_phrase, name_list

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


_MISSING_MODULE = re.compile(r"No module named '?(?P<module>[\w.]+)")


def _install_command(_: JobSnapshot, replica: ReplicaFacts | None, end: ReplicaFailure) -> dict[str, str]:
    """How to install the module into the Python of this machine that the pod runs with."""
    command = replica.commands.get(end.container, ()) if replica is not None else ()
    module = next((found["module"] for found in map(_MISSING_MODULE.search, reversed(end.last_output)) if found), "")
    if not module or not command or not is_script(replica, end.container):
        return {}
    python = command[0] if "python" in command[0].rpartition("/")[2] else "python"
    return {"install": f"install it: {shlex.quote(python)} -m pip install {distribution_of(module)}"}


def access_denied(scene: RuleInput) -> Iterator[RuleMatch]:
    """A program asked the API server for what its service account, or its user, may not do."""
    for index, end, _ in primary_failures(scene):
        found = ((line, denied) for line in reversed(end.last_output) if (denied := denied_access(line)) is not None)
        line, denied = next(found, ("", None))
        if denied is None or not (commands := grant_commands(denied)):
            continue
        where = f"namespace {denied.namespace}" if denied.namespace else "the whole cluster"
        values = {"user": denied.user, "verb": denied.verb, "what": denied.resource, "where": where}
        if scene.snapshot.job.run_command:
            values["in_file"] = "a RoleBinding in the job's file allows it; docs/access.md has one"
        else:
            values |= {"grant": commands[0], **({"then": commands[1]} if len(commands) > 1 else {})}
        yield failure_match(scene, index, ("it said:", quoted_line(end.replica, line)), values, log=False)


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


_NO_ROUTE = re.compile(
    r"no route to host|network is unreachable|no socket interface found|EHOSTUNREACH|ENETUNREACH"
    r"|no usable (?:listening )?interface|unable to find address for: \S+",
    _FLAGS,
)
_TEAM_TIMEOUT = re.compile(
    r"dist(?:store|network|backend)error.*tim(?:e|ed) ?out|rendezvous\w*timeout|wait timeout after|barrier timed out"
    r"|collective.*time(?:d )?out",
    _FLAGS,
)
"""An exception that says no more than that the others did not come in time."""
_RANKS_JOINED = re.compile(
    r"\b\d+/(?P<size>\d+) (?:clients|workers|ranks|processes|tasks) (?:joined|connected)", _FLAGS
)
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "NUM_PROCESSES", "PADDLE_TRAINERS_NUM")


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
    job = scene.snapshot.job
    address, other = mentioned_peer(scene.snapshot, end)
    evidence = ["it said:", quoted_line(end.replica, line)]
    if other is not None:
        state = other.pod.status.phase
        evidence.append(f"{address} is {other.name}, which is {state}")
        look = logs_command(scene.snapshot.job, other.name, other.pod.metadata.name)
        values = {**values, "peer": f" ({other.name})", "look": look}
    elif address:
        values = {**values, "peer": f" ({address})"}
    missing = _not_running(scene.snapshot)
    if missing:
        evidence.append(f"not running now: {name_list(missing)}")
    return failure_match(scene, index, evidence, {"peer": "", "events": events_command(job), **values}, log=False)


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


def peer_left(scene: RuleInput) -> Iterator[RuleMatch]:
    """A failure that blames a peer, after a peer had ended with exit code 0."""
    for index, end, _ in primary_failures(scene):
        line, timed_out = _last_match(_RENDEZVOUS_TIMEOUT, end)
        if end.finished_at is None or not (timed_out is not None or _blames_other_replica(scene, end)):
            continue
        left = [
            (peer, at)
            for peer, at in finished_peers(scene.snapshot)
            if at is not None and at <= end.finished_at + CLOCK_TOLERANCE
        ]
        if not left:
            continue
        line = line or next((line for line in reversed(end.output) if _blames_peer(line)), end.output[-1])
        names = name_list([peer.name for peer, _ in left])
        match = _peer_match(scene, index, end, line, {"left": names})
        look = logs_command(scene.snapshot.job, left[0][0].name, left[0][0].pod.metadata.name)
        yield msgspec.structs.replace(match, values={**match.values, "look": look})


def _blames_other_replica(scene: RuleInput, end: ReplicaFailure) -> bool:
    """Whether the failure blames a peer. A job with one replica has no peers."""
    return end.blames_peer and _has_peers(scene)


def _has_peers(scene: RuleInput) -> bool:
    return (scene.snapshot.job.desired_total or len(scene.snapshot.replicas)) > 1


def _blames_peer(line: str) -> bool:
    return PEER_FAILURE_PATTERN.search(line) is not None


def unreachable_peer(scene: RuleInput) -> Iterator[RuleMatch]:
    """The network has no way to the peer: often the wrong interface was chosen, or a firewall is in between."""
    for index, end, replica in primary_failures(scene):
        line, found = _last_match(_NO_ROUTE, end)
        if found is None or not _has_peers(scene):
            continue
        match = _peer_match(scene, index, end, line, {"what": found[0]})
        chosen = _variables(replica, end.container).get("NCCL_SOCKET_IFNAME", "")
        evidence = (*match.evidence, f"NCCL_SOCKET_IFNAME is {chosen}") if chosen else match.evidence
        yield msgspec.structs.replace(match, evidence=evidence)


def _variables(replica: ReplicaFacts | None, container: str) -> Mapping[str, str]:
    return replica.variables.get(container, {}) if replica is not None else {}


# The size of the team


def wrong_world_size(scene: RuleInput) -> Iterator[RuleMatch]:
    """Replicas wait for more, or for fewer, ranks than the job has."""
    case = scene.snapshot
    expected = case.job.desired_total * (case.job.ranks_per_replica or 1)
    if expected < 1 or case.job.ranks_per_replica is None or not case.job.is_training_job:
        return
    for index, end, replica in primary_failures(scene):
        line, found = _last_match(_RANKS_JOINED, end)
        size, source = (int(found["size"]), "its log") if found is not None else (None, "")
        if size is None and (end.blames_peer or _last_match(_RENDEZVOUS_TIMEOUT, end)[1] is not None):
            size, source = written_world_size(replica, end.container)
        if size is None or size == expected:
            continue
        evidence = ["it said:", quoted_line(end.replica, line)] if found is not None else []
        values = {"size": str(size), "expected": str(expected), "replicas": replicas_text(case), "source": source}
        yield failure_match(scene, index, evidence, values, log=found is None)
    for one in running_replicas(case) if is_stuck(case) else ():
        container = one.pod.spec.containers[0].name if one.pod.spec.containers else ""
        size, source = written_world_size(one, container)
        if size is not None and size != expected:
            values = {
                "size": str(size),
                "expected": str(expected),
                "replicas": replicas_text(case),
                "source": source,
                "path": one.container_path(container),
                "again": retry_hint(case.job),
            }
            yield RuleMatch((one.name,), values, ("all replicas are silent, and use no CPU",))


def written_world_size(replica: ReplicaFacts | None, container: str) -> tuple[int | None, str]:
    """The number of ranks that the pod's variables say, and the name of the variable."""
    variables = _variables(replica, container)
    for name in WORLD_SIZE_VARIABLES:
        if variables.get(name, "").isdigit():
            return int(variables[name]), name
    return None, ""


def replicas_text(case: JobSnapshot) -> str:
    """`1 Master and 2 Workers`, of a job with two ranks each: `... with 2 ranks each`."""
    counts = " and ".join(count_phrase(count, kind) for kind, count in case.job.desired_replicas.items() if count)
    each = case.job.ranks_per_replica or 1
    return f"{counts} with {each} ranks each" if each > 1 else counts


# Other languages

_PANICS = (
    ("a panic", re.compile(r"^thread '.*' (?:\(\d+\) )?panicked at (?P<frame>[^'\s]+?):?$")),
    ("a panic", re.compile(r"^thread '.*' panicked at '(?P<what>.*)', (?P<frame>\S+)$")),
    ("a panic", re.compile(r"^(?:panic|fatal error): (?P<what>.+)")),
    ("an uncaught exception", re.compile(r"^terminate called (?P<what>.+)")),
    ("an uncaught exception", re.compile(r'^Exception in thread "[^"]*" (?P<what>.+)')),
    ("a failed assertion", re.compile(r"(?P<what>.*: Assertion [`'].+' failed\.)")),
    ("an error", re.compile(r"^(?:ERROR: LoadError: |Error in )(?P<what>.+)")),
    ("an error", re.compile(r"^(?P<what>.+) at (?P<frame>\S+\.p[lm] line \d+)\.$")),
)
"""What Rust (new and old), Go, C++, Java, C, Julia and R, and Perl write when they give up."""
_JAVASCRIPT_ERROR = re.compile(r"^(?:Uncaught )?(?P<what>\w*Error: .+)")
_CPP_WHAT = re.compile(r"^\s*what\(\):\s*(?P<what>.+)")
_FRAME = re.compile(
    r"^\s+(?:at )?(?:.*\()?(?P<frame>[^\s()]*\.(?:go|rs|java|cc|cpp|jl|kt|scala|js|mjs|ts):\d+(?::\d+)?)"
)


def panic(scene: RuleInput) -> Iterator[RuleMatch]:
    """A program of another language ended with its own kind of error."""
    for index, end, _ in primary_failures(scene):
        if _blames_other_replica(scene, end) or any(TRACEBACK_HEADER in line for line in end.last_output):
            continue
        lines = [line.rstrip() for line in end.last_output]
        for number in range(len(lines) - 1, -1, -1):
            values = _panic_values(lines[number], lines[number + 1 :])
            if values:
                said = (lines[number], *(line for line in lines[number + 1 : number + 2] if line.strip()))
                quotes = (quoted_line(end.replica, line) for line in said)
                yield failure_match(scene, index, ("it said:", *quotes), values, log=False, brief=True)
                break


def _panic_values(line: str, after: Sequence[str]) -> dict[str, str]:
    """What a line of a panic says, with the lines after it; empty if it is no such line."""
    found = next(((sort, match) for sort, pattern in _PANICS if (match := pattern.search(line))), None)
    if found is None:
        match = _JAVASCRIPT_ERROR.search(line)
        if match is None or not any(one.startswith("    at ") for one in after[:1]):
            return {}
        found = ("an uncaught exception", match)
    sort, match = found
    groups = {name: text for name, text in match.groupdict().items() if text}
    explained = next((one["what"] for one in map(_CPP_WHAT.match, after) if one is not None), "")
    frame = groups.get("frame") or next((one["frame"] for one in map(_FRAME.match, after) if one), "")
    # Rust writes the message into the next line.
    what = explained or groups.get("what") or next((one.strip() for one in after if one.strip()), line)
    return {"sort": sort, "what": what, **({"frame": frame.rstrip(":")} if frame else {})}


# Python

_EXCEPTION = re.compile(r"^(?:\[[^\]]*\]:?\s*)?(?P<error>[A-Za-z_][\w.]*)(?:: (?P<what>.*))?$")
_NAMED_EXCEPTION = re.compile(
    r"^(?:\[[^\]]*\]:?\s*)?(?P<error>(?:\w+\.)*\w*(?:Error|Exception|ExceptionGroup|Interrupt|Exit|NotFound|Timeout))\b"
    r"(?:: (?P<what>.*))?$"
)
_LIBRARY_FRAME = re.compile(r"<frozen |site-packages|dist-packages|/lib/python\d")


def python_exception(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        if _blames_other_replica(scene, end) or not any(TRACEBACK_HEADER in line for line in end.last_output):
            continue
        exception = _exception_line(end.last_output)
        is_team_timeout = exception is not None and _TEAM_TIMEOUT.search(exception[0]) and _has_peers(scene)
        if exception is not None and not is_team_timeout:
            frames = [line.strip(" |+") for line in end.last_output if line.strip(" |+").startswith("File ")]
            own_frames = [frame for frame in frames if not _LIBRARY_FRAME.search(frame)]
            frame = next(reversed(own_frames or frames), "")
            values = {"error": exception["error"], "what": f": {exception['what']}" if exception["what"] else ""}
            values |= {"frame": frame} if frame else {}
            yield failure_match(scene, index, (), values)


def _exception_line(output: Sequence[str]) -> re.Match[str] | None:
    """The last line that names an exception, else the first one that is not indented after the last frame.

    Of a group of exceptions, the line of the group: it comes before those of its members.
    """
    lines = [line.rstrip() for line in output]
    group = next((match for match in (_NAMED_EXCEPTION.match(line.lstrip(" |+")) for line in lines) if match), None)
    if group is not None and group["error"].endswith("ExceptionGroup"):
        return group
    named = (_NAMED_EXCEPTION.match(line.strip(" |+")) for line in reversed(lines))
    found = next((match for match in named if match is not None), None)
    if found is not None:
        return found
    last_frame = max((number for number, line in enumerate(lines) if line.lstrip().startswith("File ")), default=-1)
    plain = (_EXCEPTION.match(line) for line in lines[last_frame + 1 :])
    return next((match for match in plain if match is not None), None)


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
        "access-denied",
        "log: a 403 of the API server",
        access_denied,
        "{who} asked the API server for what it may not do: {user} cannot {verb} {what} in {where}.",
        (
            "an administrator allows it: {grant}",
            "and then: {then}",
            "{in_file}",
            "or run it as another service account: serviceAccountName in {template}",
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
        (
            "write a securityContext with fsGroup or runAsUser into {template}, or use another path",
            "give the {script} the right to it, or use another path",
            "{again}",
        ),
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
            r"|requires at least one cuda device|supported with GPUs, no GPUs found|torch not compiled with cuda enabled"
        ),
        "{who} finds no GPU that it can use.",
        (
            "ask for one: {path}.resources.limits[nvidia.com/gpu]: 1, and use an image for the node's driver",
            "where there is none, use the CPU; of torch.distributed the backend gloo, not nccl",
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
        log_pattern(
            r"(?:(?:ModuleNotFoundError|ImportError)|python[\d.]*): No module named '?(?P<module>[\w.]+)'?",
            more=_install_command,
        ),
        "{who} imports module {module}, which is not installed where it runs.",
        (
            "{install}",
            "add {module} to the image ({path}.image)",
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
        (
            "mount the volume that has it, or correct the path (in the program or in {path}.args)",
            "the {script} runs in {folder}: create the file, or correct the path",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "usage",
        "log: the program's own usage error (argparse, click)",
        log_pattern(
            r"error: (?P<what>(?:unrecognized arguments|the following arguments are required|argument |no such option).*)"
        ),
        "{who} was started with arguments that the program does not take: {what}.",
        ("correct {path}.args or {path}.command", "correct the arguments of the {script}", "{again}"),
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
        "world-size",
        "a rendezvous fails, and WORLD_SIZE or the log names another number of ranks than the job has",
        wrong_world_size,
        "{who} waits for {size} ranks ({source}), and the job has {expected} ({replicas}).",
        (
            "leave WORLD_SIZE, RANK and --nnodes to the job: remove them from {path}.env and {path}.args, or make it {size} replicas",
            "do not set WORLD_SIZE or RANK in the program of the {script}, or run {size} processes",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "no-route",
        "log: No route to host, Network is unreachable, no socket interface (NCCL, gloo)",
        unreachable_peer,
        "{who} cannot reach a peer{peer} over the network: {what}.",
        (
            "name the interface that leads to the peers (ip -brief address shows them): {path}.env: NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
            "does a NetworkPolicy or a firewall forbid it? kubectl get networkpolicies -n {namespace}",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "name-unknown",
        "log: a name that does not resolve",
        unknown_name,
        "{who} cannot find a peer by its name{peer}.",
        (
            "does its service exist? kubectl get services -n {namespace}",
            "a peer that starts later is found by trying again: let the program retry",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "collective-mismatch",
        "log: the ranks call different collectives, or with tensors of different sizes",
        log_pattern(
            r"(?P<what>[^.\]]*(?:size doesn't match expected size|mismatch between collectives|collective mismatch"
            r"|mismatched collective)[^.]*)"
        ),
        "{who} called another collective than its peers, or with a tensor of another size: {what}.",
        (
            "let all ranks call the same collectives in the same order; TORCH_DISTRIBUTED_DEBUG=DETAIL shows which differ",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "gpu-fault",
        "log: a hardware error of a GPU (ECC, Xid, off the bus)",
        log_pattern(
            r"(?P<what>uncorrectable ECC error|CUDA_ERROR_ECC_UNCORRECTABLE|fallen off the bus|GPU is lost"
            r"|Xid \(PCI[^)]*\): \d+|CUDA_ERROR_HARDWARE_STACK_ERROR|NVLink[^:]*error)"
        ),
        "{who} met a hardware error of its GPU: {what}.",
        (
            "run it on another node, and have this GPU looked at: nvidia-smi -q -d ECC,PAGE_RETIREMENT",
            "runPolicy.recovery: auto does so by itself (docs/recovery.md)",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "storage-fault",
        "log: Input/output error, Stale file handle, Transport endpoint is not connected",
        log_pattern(
            r"(?:errno:? \d+\]?:? )?(?P<what>input/output error|stale (?:nfs )?file handle|transport endpoint is not connected|remote i/o error)"
            r"|errno:? (?:5|107|116|121)\b",
            {"what": "an I/O error"},
            more=_mentioned_volume,
        ),
        "{who} cannot reach its storage: {what}.",
        (
            "is the server of volume {volume} up, and its mount healthy?",
            "look at the storage and at its mount on the node: dmesg -T | tail",
            "runPolicy.recovery: auto waits and tries again (docs/recovery.md)",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "service-unavailable",
        "log: an HTTP service that is unreachable, overloaded or limits requests",
        log_pattern(
            r"(?P<what>max retries exceeded with url|\b50[234] (?:server error|service unavailable|bad gateway|gateway time-?out)"
            r"|HTTP (?:error|status)[: ]+(?:429|50[234])|\b429 (?:client error|too many requests)|SlowDown|ServiceUnavailable"
            r"|urlopen error .*(?:refused|timed out|reset)|failed to establish a new connection"
            r"|ReadTimeoutError|ConnectTimeoutError|no route to host|network is unreachable)",
        ),
        "{who} needs a service that does not answer now: {what}.",
        (
            "is the service up, and may this pod reach it? Try the request of the log by hand in the pod",
            "runPolicy.recovery: auto waits and tries again (docs/recovery.md)",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "panic",
        "log: a panic of Rust or Go, an uncaught exception or error of C++, Java, JavaScript, Julia, R or Perl",
        panic,
        "{who} stopped with {sort}: {what}",
        ("look there: {frame}", "{again}"),
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
        "peer-left",
        "log: a peer is lost or does not come, and one had ended with exit code 0 before",
        peer_left,
        "{left} ended with exit code 0 while {who} still needed it.",
        (
            "do all replicas run the same number of steps? look at what that one said: {look}",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "rendezvous-timeout",
        "log: a collective, barrier or rendezvous timed out, and nobody failed before",
        rendezvous_timeout,
        "{who} waited in vain for its peers{peer}.",
        (
            "do all replicas run, and do they run the same number of steps? Is WORLD_SIZE the number that starts?",
            "look at that one: {look}",
        ),
    ),
    DiagnosisRule(
        "peer-lost",
        "log: connection refused, reset or closed (gloo, NCCL, gRPC, MPI), and nobody failed before",
        peer_lost,
        "{who} lost the connection to a peer{peer}, and no replica that is left failed before it.",
        (
            "was that peer deleted or restarted then? {events}",
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
