"""Rules about pods that have a node but do not start: claims, volumes, images, configuration, the command itself."""

import re
import shlex
from collections.abc import Callable, Iterator

from gangline.api.core import PodPhase
from gangline.why.diagnosis.case import ClaimFact, JobFacts, JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import (
    creation_step,
    failure_match,
    is_script,
    primary_failures,
    run_command_with,
)
from gangline.why.diagnosis.wording import duration_phrase

IMAGE_PULL_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
    "RegistryUnavailable",
)
_PULL_NEVER = re.compile(r"pull policy (of )?(is )?Never|ErrImageNeverPull|not present with pull policy", re.IGNORECASE)
_PULL_DENIED = re.compile(r"unauthorized|denied|authentication required|no basic auth|403 Forbidden", re.IGNORECASE)
_IMAGE_ABSENT = re.compile(
    r"not found|manifest unknown|does not exist|no such image|InvalidImageName|couldn't parse image|invalid reference"
    r"|no match for platform",
    re.IGNORECASE,
)
_PULL_RATE_LIMIT = re.compile(r"toomanyrequests|rate limit|429", re.IGNORECASE)

_MISSING_CONFIG = re.compile(r'(?P<what>configmap|secret)s? "(?P<name>[^"]+)" not found', re.IGNORECASE)
_MISSING_KEY = re.compile(
    r"(?:couldn't find key (?P<key>\S+) in (?P<what>ConfigMap|Secret) \S*?/?(?P<name>[\w.-]+)$"
    r"|references non-existent (?P<what2>config|secret) key: (?P<key2>\S+))"
)
_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "(?P<claim>[^"]+)" not found', re.IGNORECASE)
_IMAGE_ONLY = re.compile(r'image "(?P<image>[^"]*)": (?P<file>\S+) (?P<why>exists only in the image|is not in)')
_MAPPING_FLAG = re.compile(r"--image-map (?:'[^']*'|[^\s;]+)")
_MAPPING_PREPARATION = re.compile(r"put .+?(?= and add |;|$)")
_NO_COMMAND = re.compile(r'image "(?P<image>[^"]*)": the pod names no command')
_COMMAND_NOT_FOUND = re.compile(
    r"exec: (?:\")?(?P<file>[^\":]+)\"?: (?:No such file|executable file not found|stat .*no such file)|"
    r"exec: (?P<file2>.+?): (?:No such file or directory|Permission denied)|(?P<file3>\S+): (?:command )?not found"
)

UNPACK_CONTAINER = "gangline-unpack"
"""The init container that unpacks the folder of a job (`gangline run --context`)."""
# GNU tar starts gzip; the tar of busybox may be built without it.
_NO_GZIP = re.compile(
    r"gzip: Cannot (?:exec|run)|can't execute 'gzip'|tar: (?:invalid|unrecognized|unknown) option.*\bz\b"
)


def starting_replicas(case: JobSnapshot) -> Iterator[ReplicaFacts]:
    """Pods that should start and have not started."""
    for one in case.replicas:
        if one.pod.status.phase == PodPhase.PENDING and one.pod.metadata.deletion_timestamp is None:
            yield one


def waiting_containers(case: JobSnapshot) -> Iterator[tuple[ReplicaFacts, str, str, str]]:
    """Containers that cannot be started: replica, container, reason, message."""
    for replica in case.replicas:
        if (
            replica.pod.status.phase not in (PodPhase.PENDING, PodPhase.RUNNING)
            or replica.pod.metadata.deletion_timestamp
        ):
            continue
        for status in replica.container_statuses:
            held = status.state.waiting
            if held is not None and held.reason:
                yield replica, status.name, held.reason, held.message


def start_errors(case: JobSnapshot) -> Iterator[tuple[ReplicaFacts, str, str]]:
    """What keeps pods from starting: replica, container ("" for the pod), message."""
    for replica, container, reason, message in waiting_containers(case):
        if reason in ("CreateContainerConfigError", "CreateContainerError", "RunContainerError"):
            yield replica, container, message
    for replica in starting_replicas(case):
        for event in reversed(replica.events):
            if event.warning and event.reason in ("FailedMount", "FailedAttachVolume", "FailedScheduling"):
                yield replica, "", event.message


# Claims


def _unstarted_claims(case: JobSnapshot) -> Iterator[tuple[ReplicaFacts, ClaimFact]]:
    for one in starting_replicas(case):
        for volume in one.volumes:
            if volume.claim in case.claims:
                yield one, case.claims[volume.claim]


def missing_claim(scene: RuleInput) -> Iterator[RuleMatch]:
    reported = set()
    for replica, claim in _unstarted_claims(scene.snapshot):
        if not claim.exists:
            reported.add(replica.name)
            yield _missing_claim_match(scene.snapshot, replica, claim.name, "it is not there")
    for replica, _, message in start_errors(scene.snapshot):
        match = _MISSING_CLAIM.search(message)
        if match and replica.name not in reported:
            yield _missing_claim_match(scene.snapshot, replica, match["claim"], message)


def _missing_claim_match(case: JobSnapshot, replica: ReplicaFacts, claim: str, message: str) -> RuleMatch:
    values = {"claim": claim, "namespace": case.job.namespace, "template": replica.template_path}
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    values["create"] = creation_step(case.job, "PersistentVolumeClaim", claim, {"spec": spec})
    return RuleMatch((replica.name,), values, (f"PersistentVolumeClaim {case.job.namespace}/{claim}: {message}",))


def unbound_claim(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    for replica, claim in _unstarted_claims(case):
        waits = any(event.reason == "WaitForFirstConsumer" for event in claim.events)
        if not claim.exists or claim.phase != "Pending" or (waits and not any(e.warning for e in claim.events)):
            continue
        if (
            case.elapsed_since(replica.pod.metadata.creation_timestamp) < case.timeouts.unnoticed_after
            and not claim.events
        ):
            continue
        messages = [
            f"{event.reason}: {event.message}" for event in claim.events if event.reason != "WaitForFirstConsumer"
        ]
        storage = claim.storage_class or "the default"
        values = {
            "claim": claim.name,
            "wants": claim.requested_storage or "its storage",
            "storage": storage,
            "namespace": case.job.namespace,
        }
        yield RuleMatch((replica.name,), values, (f"it is Pending, its storage class is {storage}", *messages[-1:]))


# Images


def _pull_errors(case: JobSnapshot) -> Iterator[tuple[ReplicaFacts, str, str]]:
    """Images that cannot be pulled: replica, container, all messages about it."""
    for replica, container, reason, message in waiting_containers(case):
        if reason in IMAGE_PULL_REASONS:
            events = [e.message for e in replica.events if e.warning and "image" in e.message.lower()]
            # The back-off message gives no reason; the event before it does.
            yield replica, container, " ".join((reason, message, *events[-2:]))


def pull_error_matcher(fits: Callable[[str], bool]) -> Callable[[RuleInput], Iterator[RuleMatch]]:
    def matches(scene: RuleInput) -> Iterator[RuleMatch]:
        for replica, name, message in _pull_errors(scene.snapshot):
            if fits(message):
                container = replica.container(name)
                image = container.image if container is not None else ""
                values = {
                    "image": image,
                    "path": replica.container_path(name),
                    "template": replica.template_path,
                    "node": replica.pod.spec.node_name or "its node",
                }
                yield RuleMatch((replica.name,), values, (message,))

    return matches


def _is_pull_never(message: str) -> bool:
    return bool(_PULL_NEVER.search(message))


def _is_rate_limited(message: str) -> bool:
    return bool(_PULL_RATE_LIMIT.search(message)) and not _is_pull_never(message)


def _is_denied(message: str) -> bool:
    return bool(_PULL_DENIED.search(message)) and not _is_rate_limited(message) and not _is_pull_never(message)


def _is_absent(message: str) -> bool:
    return (
        bool(_IMAGE_ABSENT.search(message))
        and not _is_denied(message)
        and not _is_rate_limited(message)
        and not _is_pull_never(message)
        and "no such host" not in message
    )


def _is_network_error(message: str) -> bool:
    return not (_is_pull_never(message) or _is_rate_limited(message) or _is_denied(message) or _is_absent(message))


# Configuration


def missing_config(scene: RuleInput) -> Iterator[RuleMatch]:
    for replica, path, match in _config_errors(scene, _MISSING_CONFIG):
        what = match["what"].lower()
        kind, field = ("ConfigMap", "data") if what == "configmap" else ("Secret", "stringData")
        name = match["name"].rpartition("/")[2]
        values = {
            "what": kind,
            "name": name,
            "create": creation_step(scene.snapshot.job, kind, name, {field: {"KEY": "VALUE"}}),
            "path": path,
        }
        yield RuleMatch((replica,), values, (match.string,))


def missing_key(scene: RuleInput) -> Iterator[RuleMatch]:
    for replica, path, match in _config_errors(scene, _MISSING_KEY):
        key = (match["key"] or match["key2"]).rstrip(".")
        kind, name = match["what"], match["name"]
        if not name:
            kind = "ConfigMap" if match["what2"] == "config" else "Secret"
            name = _volume_object(scene.snapshot, replica, kind, match.string)
        owner = f" of {kind} {name}" if name else ""
        namespace = scene.snapshot.job.namespace
        values = {"key": key, "of": owner, "path": path}
        if name:
            values["look"] = f"kubectl get {kind.lower()} {name} -n {namespace} -o yaml"
        yield RuleMatch((replica,), values, (match.string,))


def _volume_object(case: JobSnapshot, replica: str, kind: str, message: str) -> str:
    """The ConfigMap or Secret of the volume that the message names, or of the only such volume."""
    source = "configMap" if kind == "ConfigMap" else "secret"
    volumes = [one for facts in case.replicas if facts.name == replica for one in facts.volumes if one.source == source]
    named = [one for one in volumes if f'"{one.name}"' in message]
    return next((one.object_name for one in named or (volumes if len(volumes) == 1 else ())), "")


def _config_errors(scene: RuleInput, pattern: re.Pattern[str]) -> Iterator[tuple[str, str, re.Match[str]]]:
    """The first start error of each replica that matches: the replica, the path of what failed to start, the match."""
    reported = set()
    for replica, container, message in start_errors(scene.snapshot):
        match = pattern.search(message)
        if match and replica.name not in reported:
            reported.add(replica.name)
            yield replica.name, replica.container_path(container) if container else replica.template_path, match


def mount_failed(scene: RuleInput) -> Iterator[RuleMatch]:
    reported = set()
    explained_elsewhere = (_MISSING_CONFIG, _MISSING_KEY, _MISSING_CLAIM)
    for replica, _, message in start_errors(scene.snapshot):
        # Other rules explain messages about nodes and about Kubernetes' own pod groups.
        scheduling = "nodes are available" in message or "pod group" in message
        if replica.name in reported or scheduling or any(pattern.search(message) for pattern in explained_elsewhere):
            continue
        reported.add(replica.name)
        yield RuleMatch(
            (replica.name,),
            {
                "why": message.rstrip("."),
                "pod": replica.pod.metadata.name,
                "namespace": scene.snapshot.job.namespace,
            },
            (message,),
        )


def slow_start(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    for replica in starting_replicas(case):
        pod = replica.pod
        age = case.elapsed_since(pod.status.start_time or pod.metadata.creation_timestamp)
        if not pod.spec.node_name or age < case.timeouts.slow_start_after:
            continue
        running = [s.name for s in pod.status.init_container_statuses if s.state.running is not None]
        last = replica.events[-1:] if replica.events else ()
        values = {
            "age": duration_phrase(age),
            "what": f"init container {running[0]} still runs" if running else "its containers are still being made",
            "pod": pod.metadata.name,
            "namespace": case.job.namespace,
        }
        messages = [f"{event.reason}: {event.message}" for event in last]
        if running:
            messages += [f"  {replica.name}│ {line}" for line in replica.logs.get(running[0], ())[-3:]]
        yield RuleMatch((replica.name,), values, tuple(messages))


# The command itself


def unmapped_image(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        match = _IMAGE_ONLY.search(end.message)
        if match:
            where = (
                "exists in the image only" if "exists" in match["why"] else "is not in the folder where the job runs"
            )
            values = {"image": match["image"], "file": match["file"], "wherever": where}
            values |= _mapping_steps(scene.snapshot.job, end.message, match["image"], match["file"])
            yield failure_match(scene, index, (end.message,), values, log=False)


def missing_command(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        found = _NO_COMMAND.search(end.message)
        if found:
            values = {"image": found["image"], **_mapping_steps(scene.snapshot.job, end.message, found["image"])}
            yield failure_match(scene, index, (end.message,), values, log=False)


def _mapping_steps(job: JobFacts, message: str, image: str, file: str = "") -> dict[str, str]:
    """What to type so that the job finds on this machine what is in its image."""
    flag, preparation = _MAPPING_FLAG.search(message), _MAPPING_PREPARATION.search(message)
    values: dict[str, str] = {}
    if "--runtime podman" in message:
        values["real"] = f"or run the real image: {run_command_with(job, '--runtime podman')}"
    if preparation is not None:
        values["first"] = preparation[0]
    if flag is not None:
        values["mapped"] = f"run it with that folder or command of this machine: {run_command_with(job, flag[0])}"
    elif preparation is None:
        entry = f"paths: {{{file.rpartition('/')[0] or '/'}: .}}" if file else "command: [python, train.py]"
        values["first"] = f"write into images.yaml what stands for the image:   {image}: {{{entry}}}"
        values["mapped"] = f"run it with that file: {run_command_with(job, '--images images.yaml')}"
    return values


def unpacker_missing(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        if end.container != UNPACK_CONTAINER:
            continue
        words = "\n".join((end.message, *end.log))
        missing = _COMMAND_NOT_FOUND.search(words)
        program = next((text for text in missing.groups() if text), "").strip() if missing else ""
        if _NO_GZIP.search(words):
            program = "gzip"
        if not program:
            continue
        values = {"program": program}
        if program != "cp":
            values["copied"] = f"or ship at most 100 files and 900 KiB: they are copied, without {program}"
        yield failure_match(scene, index, (end.message,) if end.message else (), values)


def command_not_found(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, replica in primary_failures(scene):
        started = end.reason in ("StartError", "ContainerCannotRun") or end.exit_code in (126, 127)
        if not started:
            continue
        found = next(
            (match for match in map(_COMMAND_NOT_FOUND.search, (end.message, *reversed(end.log))) if match),
            None,
        )
        file = next((text for text in found.groups() if text), "") if found else ""
        values = {"file": f' "{file.strip()}"' if file else ""}
        if file and is_script(replica, end.container):
            denied = end.exit_code == 126 or "permission denied" in end.message.lower()
            program = shlex.quote(file.strip())
            values["fix"] = f"make it executable: chmod +x {program}" if denied else f"is it installed? which {program}"
        yield failure_match(scene, index, (end.message,) if end.message else (), values)


STARTUP_RULES = (
    DiagnosisRule(
        "claim-missing",
        "a pod names a PersistentVolumeClaim that does not exist",
        missing_claim,
        "{who} waits for PersistentVolumeClaim {claim}, which does not exist.",
        (
            "add it, with the size and access mode that you need: {create}",
            "or correct claimName in {template}.volumes",
        ),
    ),
    DiagnosisRule(
        "claim-unbound",
        "a PersistentVolumeClaim stays Pending",
        unbound_claim,
        "{who} waits for PersistentVolumeClaim {claim}, which gets no storage ({wants} of class {storage}).",
        (
            "look why: kubectl describe pvc {claim} -n {namespace}",
            "which storage classes are there? kubectl get storageclass",
        ),
    ),
    DiagnosisRule(
        "image-policy",
        "the image is not on the node, and the pull policy is Never",
        pull_error_matcher(_is_pull_never),
        "image {image} of {who} is not on {node}, and its pull policy is Never.",
        ("write imagePullPolicy: IfNotPresent into {path}, or load the image onto the node",),
    ),
    DiagnosisRule(
        "image-rate",
        "the registry asks to come back later",
        pull_error_matcher(_is_rate_limited),
        "image {image} of {who} cannot be pulled now: the registry has a limit on pulls, and it is reached.",
        ("wait, or name an account in {template}.imagePullSecrets",),
    ),
    DiagnosisRule(
        "image-credentials",
        "the registry refuses: unauthorized, denied",
        pull_error_matcher(_is_denied),
        "image {image} of {who} cannot be pulled: the registry does not let the node in, or there is no such image.",
        ("name a pull secret in {template}.imagePullSecrets, and check the name in {path}.image",),
    ),
    DiagnosisRule(
        "image-name",
        "the registry has no such image or tag, or the name is none",
        pull_error_matcher(_is_absent),
        "image {image} of {who} does not exist under that name.",
        ("correct {path}.image (name and tag)",),
    ),
    DiagnosisRule(
        "image-network",
        "the registry cannot be reached",
        pull_error_matcher(_is_network_error),
        "image {image} of {who} cannot be pulled: the registry cannot be reached from {node}.",
        ("check network, proxy and DNS of the node, or use a registry that it reaches in {path}.image",),
    ),
    DiagnosisRule(
        "config-missing",
        "a ConfigMap or Secret that a container or volume needs does not exist",
        missing_config,
        "{who} needs {what} {name}, which does not exist.",
        (
            "add it with its values: {create}",
            "or correct the name in {path}",
        ),
    ),
    DiagnosisRule(
        "config-key-missing",
        "a ConfigMap or Secret lacks the key that is asked for",
        missing_key,
        "{who} needs key {key}{of}, which is not in it.",
        ("add the key, or correct it in {path}", "see which keys it has: {look}"),
    ),
    DiagnosisRule(
        "mount-failed",
        "volumes or containers cannot be made, for any other reason",
        mount_failed,
        "{who} cannot be set up: {why}.",
        ("kubectl describe pod {pod} -n {namespace}",),
    ),
    DiagnosisRule(
        "image-unmapped",
        "local node: the command's file exists in the image only",
        unmapped_image,
        "{file} of {who} {wherever}, and images are not pulled on this machine.",
        (
            "{first}",
            "{mapped}",
            "{real}",
        ),
    ),
    DiagnosisRule(
        "no-command",
        "local node: neither pod nor image mapping says what to run",
        missing_command,
        "{who} has no command, and that of image {image} is not known on this machine.",
        ("write it into {path}.command", "{first}", "{mapped}", "{real}"),
    ),
    DiagnosisRule(
        "unpacker-missing",
        "the init container gangline-unpack finds no tar, gzip or cp in the image",
        unpacker_missing,
        "the image of {who} has no {program}, which its folder is unpacked with.",
        (
            "add {program} to the image, or name another one in {path}.image",
            "{copied}",
        ),
    ),
    DiagnosisRule(
        "command-not-found",
        "exit code 126 or 127, StartError: the command does not exist or is not executable",
        command_not_found,
        "the command{file} of {who} cannot be started{where}.",
        (
            "correct {path}.command: is the program in the image, and executable?",
            "{fix}",
            "{again}",
        ),
    ),
)

SLOW_START_RULES = (
    DiagnosisRule(
        "slow-start",
        "on its node for more than 3 min, and not started",
        slow_start,
        "{who} has not started for {age}: {what}.",
        ("kubectl describe pod {pod} -n {namespace}",),
    ),
)
