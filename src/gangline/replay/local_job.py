"""The recorded job as it is played on this machine: without what only its cluster has. Pure."""

import base64
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.replay.bundle import JobBundle
from gangline.replay.scrub import secret_references
from gangline.replay.shipped_code import without_shipment
from gangline.replay.stand_in import stand_in_container, stand_in_plans, time_scale
from gangline.sdk.build.pod_templates import training_container

LOCAL_VOLUMES = ("name", "emptyDir", "configMap", "secret", "downwardAPI", "projected")
POD_FIELDS_OF_CLUSTER = (
    "affinity",
    "hostNetwork",
    "imagePullSecrets",
    "nodeName",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "preemptionPolicy",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "tolerations",
    "topologySpreadConstraints",
)
RUN_POLICY_OF_CLUSTER = ("schedulingPolicy", "ttlSecondsAfterFinished", "managedBy", "suspend")
SERVER_FIELDS = (
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
    "selfLink",
    "ownerReferences",
    "finalizers",
)
PLACEHOLDER = "left-out-of-the-bundle"

NeedsImage = Callable[[JSON], str]
"""Why a container cannot run on this machine with the code of the bundle; empty if it can."""


class LocalReplay(msgspec.Struct, frozen=True):
    """A job to play, the objects it needs, and what is not as it was."""

    job: JSON
    objects: tuple[JSON, ...] = ()
    # The replica types that stand-ins play, in lower case, each with the reason.
    stand_ins: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

    def is_stand_in(self, replica: str) -> bool:
        """Whether a stand-in plays a replica, given as `worker-1`."""
        return replica in self.stand_ins or replica.rpartition("-")[0] in self.stand_ins


def local_replay(bundle: JobBundle, kind: JobKind, needs_image: NeedsImage, *, has_code: bool) -> LocalReplay:
    """The job for this machine. Programs that cannot run here are played by stand-ins.

    `has_code`: the processes start in a folder with the code, wherever it was in the cluster.
    """
    body = copy.deepcopy(bundle.job)
    metadata = {name: value for name, value in body["metadata"].items() if name not in SERVER_FIELDS}
    metadata["annotations"] = {
        name: text for name, text in (metadata.get("annotations") or {}).items() if "gangline.dev/run-" not in name
    }
    spec = body["spec"]
    _without_cluster_policy(spec)
    notes, stand_ins = dict[str, None](), dict[str, str]()
    secrets: dict[str, set[str]] = {}
    for replica_type, replica in (spec.get(kind.replicas) or {}).items():
        pod = (replica.get("template") or {}).get("spec")
        if not isinstance(pod, dict):
            continue
        if has_code:
            without_shipment(pod)
        for note in _edit_pod(pod):
            notes.setdefault(note)
        container = training_container(pod, kind)
        if container is not None and has_code:
            container.pop("workingDir", None)
        reason = (_missing_volume(pod, container) or needs_image(container)) if container is not None else ""
        if reason and container is not None:
            stand_ins[replica_type.lower()] = reason
            _stand_in(pod, container, bundle)
        for name, keys in secret_references(pod).items():
            secrets.setdefault(name, set()).update(keys)
    namespace = metadata.get("namespace") or "default"
    objects = [*_config_maps(bundle, namespace), *_placeholder_secrets(secrets, namespace)]
    if secrets:
        notes.setdefault(f"Secrets have placeholders instead of values: {', '.join(sorted(secrets))}")
    if stand_ins and (scale := time_scale(bundle.first_fault)) > 1:
        notes.setdefault(f"stand-ins step {scale:.0f} times faster than the programs did, so that the fault comes soon")
    played = {name: value for name, value in body.items() if name != "status"}
    return LocalReplay({**played, "metadata": metadata}, tuple(objects), stand_ins, tuple(notes))


def _without_cluster_policy(spec: JSON) -> None:
    policy = spec.get("runPolicy")
    if isinstance(policy, dict):
        for name in RUN_POLICY_OF_CLUSTER:
            policy.pop(name, None)
    for name in ("suspend", "managedBy"):
        spec.pop(name, None)


def _edit_pod(pod: JSON) -> Iterator[str]:
    """Take out what only a cluster has. Yields what that was, where it may matter."""
    for name in POD_FIELDS_OF_CLUSTER:
        pod.pop(name, None)
    for index, volume in enumerate(pod.get("volumes") or ()):
        foreign = [name for name, value in volume.items() if name not in LOCAL_VOLUMES and value is not None]
        if foreign:
            yield f"volume {volume['name']} ({foreign[0]}) is an empty folder here"
            pod["volumes"][index] = {"name": volume["name"], "emptyDir": {}}
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        container.pop("securityContext", None)
        resources = container.get("resources")
        if isinstance(resources, dict):
            yield from _without_devices(resources)


def _without_devices(resources: dict[str, Any]) -> Iterator[str]:
    """Keep the limits of memory and CPU; a request only decides where a pod is placed, and here is one machine."""
    for section in ("requests", "limits"):
        amounts = resources.get(section) or {}
        for name in [name for name in amounts if "/" in name]:
            del amounts[name]
            yield f"{name} is left out: this machine need not have it"
    if resources.get("requests") or resources.get("limits"):
        resources["requests"] = {"cpu": "0", "memory": "0"}


def _missing_volume(pod: JSON, container: JSON) -> str:
    """Why a program cannot run that is in a volume which is empty here; empty if it is elsewhere."""
    empty = {one["name"] for one in pod.get("volumes") or () if "emptyDir" in one}
    words = [str(word) for field in ("command", "args") for word in container.get(field) or ()]
    for mount in container.get("volumeMounts") or ():
        path = str(mount.get("mountPath", "")).rstrip("/")
        if mount.get("name") in empty and not pod.get("initContainers"):
            word = next((word for word in words if word.startswith(f"{path}/")), "")
            if word:
                return f"{word} is in volume {mount['name']}, which is not in the bundle"
    return ""


def _stand_in(pod: JSON, container: JSON, bundle: JobBundle) -> None:
    index = pod["containers"].index(container)
    pod["containers"] = [stand_in_container(pod["containers"][index], stand_in_plans(bundle))]
    # Init containers prepare what the program needs; there is no program.
    for name in ("initContainers", "volumes"):
        pod.pop(name, None)


def _config_maps(bundle: JobBundle, namespace: str) -> Iterator[JSON]:
    for one in bundle.config_maps:
        kept = {name: one[name] for name in ("data", "binaryData") if one.get(name)}
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": one["metadata"]["name"], "namespace": namespace},
            **kept,
        }


def _placeholder_secrets(secrets: Mapping[str, set[str]], namespace: str) -> Iterator[JSON]:
    value = base64.b64encode(PLACEHOLDER.encode()).decode()
    for name, keys in sorted(secrets.items()):
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "data": {key: value for key in sorted(keys) if key},
        }
