"""What sort of trouble each cause is. Causes are the rules of `gangline why`; a test fails if one has no class here."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

STALLED = "stalled"
"""The cause of a job whose condition Stalled is true. The hang watcher finds it, not a rule of `why`."""


class CauseClass(StrEnum):
    """Sorts of causes. A policy may name one of them instead of all its causes."""

    BUG = "bug"
    CONFIGURATION = "configuration"
    INFRASTRUCTURE = "infrastructure"
    MEMORY = "memory"
    STORAGE = "storage"
    NETWORK = "network"
    HANG = "hang"
    CAPACITY = "capacity"
    UNKNOWN = "unknown"


_CAUSES_BY_CLASS: Mapping[CauseClass, tuple[str, ...]] = {
    # The program does the same thing again.
    CauseClass.BUG: (
        "module-missing",
        "import-failed",
        "syntax-error",
        "file-missing",
        "usage",
        "shape-mismatch",
        "collective-mismatch",
        "panic",
        "python-exception",
        "peer-left",
        "permanent-exit-code",
        "exit-code",
    ),
    # Somebody must change the job or the cluster.
    CauseClass.CONFIGURATION: (
        "spec-invalid",
        "managed-elsewhere",
        "gang-scheduler-missing",
        "quota-needs-requests",
        "pod-security",
        "name-taken",
        "limit-range",
        "service-account-missing",
        "priority-class-missing",
        "webhook-denied",
        "operator-rights",
        "create-forbidden",
        "pods-refused",
        "volume-full",
        "pod-deadline",
        "claim-missing",
        "image-policy",
        "image-credentials",
        "image-name",
        "config-missing",
        "config-key-missing",
        "image-unmapped",
        "no-command",
        "unpacker-missing",
        "command-not-found",
        "read-only",
        "access-denied",
        "permission",
        "gpu-memory",
        "shared-memory-log",
        "shared-memory",
        "world-size",
        "no-queue",
        "gang-too-few",
        "completes-again",
    ),
    # The node, or somebody outside of the job, ended it. Another node may do better.
    CauseClass.INFRASTRUCTURE: (
        "evicted",
        "disrupted",
        "node-lost",
        "pod-rejected",
        "port-clash",
        "port-in-use",
        "disk-full",
        "gpu-missing",
        "gpu-fault",
        "killed",
        "pod-failed",
        "stuck-leaving",
        "slow-start",
    ),
    CauseClass.MEMORY: ("oom-killed", "memory-error", "child-killed"),
    # It may be there again in a while.
    CauseClass.STORAGE: ("claim-unbound", "mount-failed", "storage-fault"),
    CauseClass.NETWORK: (
        "image-rate",
        "image-network",
        "service-unavailable",
        "no-route",
        "name-unknown",
        "rendezvous-timeout",
        "peer-lost",
    ),
    CauseClass.HANG: (STALLED, "hung", "peer-finished", "probe-failed", "not-ready"),
    # Nothing failed: the job waits for room, or for its operator.
    CauseClass.CAPACITY: (
        "quota",
        "queued",
        "no-operator",
        "operator-silent",
        "pod-still-terminating",
        "gang-does-not-fit",
        "gang-waits-its-turn",
        "unschedulable-resources",
        "unschedulable-nodes",
        "scheduling-gated",
        "no-scheduler",
        "straggler",
    ),
    CauseClass.UNKNOWN: ("deadline", "mpi-rank", "backoff-limit", "failed", "run-stopped"),
}
CAUSE_CLASSES: Mapping[str, CauseClass] = MappingProxyType(
    {cause: kind for kind, causes in _CAUSES_BY_CLASS.items() for cause in causes}
)
"""The class of every cause."""

_OUTSIDE_CODES = (129, 130, 137, 143)
"""Exit codes of containers that somebody else ended: SIGHUP, SIGINT, SIGKILL, SIGTERM."""
_OUTSIDE_REASONS = {"Evicted": "evicted", "Preempting": "disrupted", "NodeLost": "node-lost", "Shutdown": "node-lost"}


def cause_class(cause: str, exit_code: int | None) -> CauseClass:
    """The class of a cause. An exit code that says nothing more is a bug, unless it is that of a signal from outside."""
    if cause in ("exit-code", "permanent-exit-code") and exit_code in _OUTSIDE_CODES:
        return CauseClass.INFRASTRUCTURE
    return CAUSE_CLASSES.get(cause, CauseClass.UNKNOWN)


def cause_without_diagnosis(exit_code: int | None, reason: str) -> str:
    """The cause of a failure as far as its exit code and reason tell, where nobody has diagnosed it."""
    if reason == "OOMKilled":
        return "oom-killed"
    if reason in _OUTSIDE_REASONS:
        return _OUTSIDE_REASONS[reason]
    if exit_code is None:
        return "pod-failed"
    if exit_code in (126, 127):
        return "command-not-found"
    return "killed" if exit_code == 137 else "exit-code"
