"""Made-up pods, workloads, limit ranges and namespace labels, the same for the same seed, to compare two servers by."""

import random
import re
from collections.abc import Callable
from typing import Any

JSON = dict[str, Any]

LEVELS = ("privileged", "baseline", "restricted")
_CAPABILITIES = ("ALL", "NET_BIND_SERVICE", "CHOWN", "SYS_ADMIN", "NET_RAW", "KILL")
_PROFILES = ("RuntimeDefault", "Localhost", "Unconfined")
_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.ip_local_reserved_ports",
    "kernel.msgmax",
)
_AMOUNTS = {
    "cpu": ("100m", "250m", "1", "1500m", "2"),
    "memory": ("64Mi", "100M", "1Gi", "1536Mi", "2Gi"),
    "ephemeral-storage": ("1Gi", "2Gi"),
}
_VIOLATION_STARTS = r", (?=(?:minimum|maximum) \S+ usage|\S+ max limit to request)"


def security_labels(rng: random.Random) -> JSON:
    """Namespace labels that are all valid."""
    labels: JSON = {}
    for mode in ("enforce", "audit", "warn"):
        if rng.random() < 0.6:
            labels[f"pod-security.kubernetes.io/{mode}"] = rng.choice(LEVELS)
        if rng.random() < 0.4:
            version = rng.choice(
                ("latest", *(f"v1.{minor}" for minor in (0, 7, 8, 18, 19, 22, 23, 25, 27, 29, 31, 33, 34, 99)))
            )
            labels[f"pod-security.kubernetes.io/{mode}-version"] = version
    return labels


def secured_pod(rng: random.Random) -> JSON:
    """A pod with some of the fields that the pod security standards look at."""
    strictness = rng.random()
    names = [f"c{index}" for index in range(rng.choice((1, 1, 2, 3)))]
    spec: JSON = {
        "containers": [_secured_container(rng, name, strictness) for name in names],
        "securityContext": _security_context(rng, strictness, pod=True),
    }
    if rng.random() < 0.3:
        spec["initContainers"] = [_secured_container(rng, "start", strictness)]
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if rng.random() < 0.07:
            spec[field] = True
    if rng.random() < 0.4:
        spec["volumes"] = [{"name": f"v{index}", **rng.choice(_VOLUMES)} for index in range(rng.choice((1, 2, 3)))]
    annotations = {}
    # Fields and annotations that contradict each other are invalid.
    if rng.random() < 0.3 and "seccompProfile" not in str(spec):
        annotations["seccomp.security.alpha.kubernetes.io/pod"] = rng.choice(("unconfined", "runtime/default"))
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}


_VOLUMES: tuple[JSON, ...] = (
    {"hostPath": {"path": "/x"}},
    {"emptyDir": {}},
    {"nfs": {"server": "s", "path": "/x"}},
    {"configMap": {"name": "c"}},
    {"secret": {"secretName": "s"}},
    {"persistentVolumeClaim": {"claimName": "c"}},
    {"iscsi": {"targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:storage", "lun": 0}},
)


def _secured_container(rng: random.Random, name: str, strictness: float) -> JSON:
    container: JSON = {"name": name, "image": "x", "securityContext": _security_context(rng, strictness, pod=False)}
    if rng.random() < 0.15:
        port = rng.choice((80, 8080, 9090))
        container["ports"] = [{"containerPort": port, **({"hostPort": port} if rng.random() < 0.5 else {})}]
    if rng.random() < 0.15:
        host = {"host": "example.com"} if rng.random() < 0.5 else {}
        container["lifecycle"] = {"preStop": {"httpGet": {"port": 80, **host}}}
    if not container["securityContext"] and rng.random() < 0.5:
        del container["securityContext"]
    return container


def _security_context(rng: random.Random, strictness: float, *, pod: bool) -> JSON:
    context: JSON = {}

    def maybe(field: str, chance: float, choose: Callable[[], Any]) -> None:
        if rng.random() < chance:
            context[field] = choose()

    strict = strictness > 0.5
    maybe("runAsNonRoot", 0.5, lambda: strict or rng.random() < 0.5)
    maybe("runAsUser", 0.3, lambda: rng.choice((0, 1000)) if rng.random() < 0.3 else 1000)
    maybe("seccompProfile", 0.5, lambda: _profile(rng, strict=strict))
    maybe("appArmorProfile", 0.15, lambda: _profile(rng, strict=strict))
    maybe("seLinuxOptions", 0.15, lambda: rng.choice(_SELINUX))
    maybe("windowsOptions", 0.03, lambda: {"hostProcess": False})
    if pod:
        maybe(
            "sysctls", 0.2, lambda: [{"name": name, "value": "1"} for name in rng.sample(_SYSCTLS, rng.choice((1, 2)))]
        )
        return context
    escalation = rng.random() < 0.7
    if escalation:
        context["allowPrivilegeEscalation"] = not (strict or rng.random() < 0.5)
    if not escalation or context["allowPrivilegeEscalation"]:
        maybe("privileged", 0.1, lambda: True)
    maybe("capabilities", 0.6, lambda: _capabilities(rng, strict=strict))
    return context


def _profile(rng: random.Random, *, strict: bool) -> JSON:
    kind = "RuntimeDefault" if strict and rng.random() < 0.8 else rng.choice(_PROFILES)
    return {"type": kind, **({"localhostProfile": "x.json"} if kind == "Localhost" else {})}


_SELINUX: tuple[JSON, ...] = (
    {"type": "container_t"},
    {"type": "container_engine_t"},
    {"type": "spc_t", "user": "u"},
    {"role": "r", "user": "u"},
    {"level": "s0"},
)


def _capabilities(rng: random.Random, *, strict: bool) -> JSON:
    capabilities: JSON = {"drop": ["ALL"]} if strict or rng.random() < 0.3 else {}
    if rng.random() < 0.4:
        capabilities["add"] = rng.sample(_CAPABILITIES, rng.choice((1, 2)))
    return capabilities


def workload(rng: random.Random) -> tuple[str, JSON]:
    """A Deployment, Job or CronJob with a made-up pod, and the folder of its URL below the namespace."""
    pod = secured_pod(rng)
    template = {"metadata": {"labels": {"a": "b"}, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]}
    kind = rng.choice(("deployments", "jobs", "cronjobs"))
    if kind == "deployments":
        spec: JSON = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        return "/apis/apps/v1", {"metadata": {"name": "w"}, "kind": kind, "spec": spec}
    template["spec"]["restartPolicy"] = "Never"
    if kind == "jobs":
        return "/apis/batch/v1", {"metadata": {"name": "w"}, "kind": kind, "spec": {"template": template}}
    spec = {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}
    return "/apis/batch/v1", {"metadata": {"name": "w"}, "kind": kind, "spec": spec}


def limit_range(rng: random.Random, name: str) -> JSON:
    """A limit range, which may contradict itself."""
    kinds = rng.sample(("Container", "Pod"), rng.choice((1, 2)))
    return {"metadata": {"name": name}, "spec": {"limits": [_limit(rng, kind) for kind in kinds]}}


def _limit(rng: random.Random, kind: str) -> JSON:
    limit: JSON = {"type": kind}
    fields = ("min", "max", "maxLimitRequestRatio", *(("default", "defaultRequest") if kind == "Container" else ()))
    for field in fields:
        if rng.random() < 0.5:
            names = rng.sample(tuple(_AMOUNTS), rng.choice((1, 2)))
            limit[field] = {
                name: rng.choice(("1", "2", "1500m", "4"))
                if field == "maxLimitRequestRatio"
                else rng.choice(_AMOUNTS[name])
                for name in names
            }
    return limit


def sized_pod(rng: random.Random) -> JSON:
    """A pod with some requests and limits, which may contradict each other."""
    containers = [_sized_container(rng, f"c{index}") for index in range(rng.choice((1, 1, 2)))]
    spec: JSON = {"containers": containers}
    if rng.random() < 0.4:
        spec["initContainers"] = [_sized_container(rng, f"i{index}") for index in range(rng.choice((1, 2)))]
        for container in spec["initContainers"]:
            if rng.random() < 0.4:
                container["restartPolicy"] = "Always"
    if rng.random() < 0.15:
        spec["resources"] = {"requests": {"cpu": rng.choice(("2", "4"))}}
    return {"metadata": {"name": "p"}, "spec": spec}


def _sized_container(rng: random.Random, name: str) -> JSON:
    resources: JSON = {}
    for field in ("requests", "limits"):
        if rng.random() < 0.6:
            names = rng.sample(tuple(_AMOUNTS), rng.choice((1, 2, 3)))
            resources[field] = {name: rng.choice(_AMOUNTS[name]) for name in names}
    return {"name": name, "image": "x", "resources": resources}


def unordered_message(message: str) -> tuple[str, ...]:
    """The parts of a refusal. A real server lists violations of a limit range in the random order of a map."""
    head, bracket, rest = message.partition("[")
    return (head, *sorted(re.split(_VIOLATION_STARTS, rest.removesuffix("]")))) if bracket else (message,)
