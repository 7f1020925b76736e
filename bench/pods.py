"""Pods of training jobs as a production server has them: what a controller creates, what a kubelet reports, and
the stored result as lists and watches bring it.

`pod.json` is the first of them as a real kube-apiserver gave it back; the others differ from it where pods of
gangs do: names, owners, addresses, times, images and sizes. To record it again: `python bench/pods.py`.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("pod.json")
NAMESPACE = "bench"
GANG = 32
"""Pods of one job."""
BEGAN = datetime(2026, 1, 5, 6, tzinfo=UTC)


def facts(number: int) -> dict[str, str]:
    """What tells one pod from another. Each value is found in the pod's JSON, and nothing else looks like it."""
    job, seat = divmod(number, GANG)
    began = BEGAN + timedelta(seconds=97 * job)
    moments = {"created": 0, "scheduled": 3, "initialised": 8, "started": 21}
    return {
        "job": f"resnet50-{job:04d}",
        "seat": f"worker-{seat:03d}",
        "job_uid": _uid("job", job),
        "uid": _uid("pod", number),
        "version": str(1_000_000 + number),
        "token": f"kube-api-access-{_uid('volume', number)[:5]}",
        "node": f"gpu-node-{number // 8:05d}",
        "pod_ip": f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}",
        "host_ip": f"172.16.{number // 8 // 250}.{number // 8 % 250 + 1}",
        "container": _uid("container", number).replace("-", "") * 2,
        "image": f"registry.example.com/vision/train:2026.{job % 12 + 10}",
        "cpu": f"{job % 5 + 12}500m",
        "memory": f"{job % 5 * 16 + 64}Gi",
        **{name: f"{began + timedelta(seconds=after):%Y-%m-%dT%H:%M:%SZ}" for name, after in moments.items()},
    }


def _uid(kind: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind} {number}"))


def manifest(number: int) -> dict[str, Any]:
    """What a job controller creates. Already bound: there is no scheduler on the server of a bench."""
    fact = facts(number)
    labels = {
        "training.kubeflow.org/job-name": fact["job"],
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": fact["seat"],
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "app.kubernetes.io/part-of": "vision",
        "team": "research",
    }
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "name": fact["job"],
        "uid": fact["job_uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {
            "name": f"{fact['job']}-{fact['seat']}",
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": {"scheduling.k8s.io/group-name": fact["job"], "sidecar.istio.io/inject": "false"},
            "ownerReferences": [owner],
        },
        "spec": _spec(fact),
    }


def _spec(fact: dict[str, str]) -> dict[str, Any]:
    return {
        "nodeName": fact["node"],
        "restartPolicy": "Never",
        "schedulerName": "gangline",
        "serviceAccountName": "default",
        "subdomain": fact["job"],
        "nodeSelector": {"accelerator": "a100"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [_container(fact)],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet", "readOnly": True}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
            {"name": "config", "configMap": {"name": "train-config"}},
            {"name": fact["token"], "projected": {"sources": TOKEN_SOURCES}},
        ],
    }


# What the ServiceAccount admission adds to every pod.
TOKEN_SOURCES = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
        }
    },
]


def _container(fact: dict[str, str]) -> dict[str, Any]:
    size = {"cpu": fact["cpu"], "memory": fact["memory"], "nvidia.com/gpu": "1"}
    cluster = {
        "cluster": {"worker": [f"{fact['job']}-worker-{seat}:2222" for seat in range(4)]},
        "task": {"type": "worker", "index": fact["seat"]},
    }
    plain = {
        "TF_CONFIG": json.dumps(cluster),
        "NCCL_DEBUG": "WARN",
        "OMP_NUM_THREADS": "12",
        "LOG_LEVEL": "info",
    }
    return {
        "name": "tensorflow",
        "image": fact["image"],
        "command": ["python", "-m", "vision.train"],
        "args": ["--epochs=90", "--batch-size=256", "--data=/data", f"--name={fact['job']}"],
        "ports": [{"name": "tfjob-port", "containerPort": 2222}],
        "env": [
            *({"name": name, "value": value} for name, value in plain.items()),
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tracking", "key": "token"}}},
        ],
        "resources": {"requests": size, "limits": size},
        "readinessProbe": {"tcpSocket": {"port": 2222}, "initialDelaySeconds": 5, "periodSeconds": 10},
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "config", "mountPath": "/etc/train"},
            {
                "name": fact["token"],
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": True,
            },
        ],
    }


def status(number: int) -> dict[str, Any]:
    """What a kubelet reports of a pod that runs."""
    fact = facts(number)
    times = {
        "PodReadyToStartContainers": fact["initialised"],
        "Initialized": fact["scheduled"],
        "Ready": fact["started"],
        "ContainersReady": fact["started"],
        "PodScheduled": fact["scheduled"],
    }
    container = {
        "name": "tensorflow",
        "image": fact["image"],
        "imageID": f"registry.example.com/vision/train@sha256:{'5e' * 32}",
        "containerID": f"containerd://{fact['container']}",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": fact["started"]}},
        "lastState": {},
    }
    conditions = [
        {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
        for name, moment in times.items()
    ]
    return {
        "phase": "Running",
        "startTime": fact["scheduled"],
        "hostIP": fact["host_ip"],
        "hostIPs": [{"ip": fact["host_ip"]}],
        "podIP": fact["pod_ip"],
        "podIPs": [{"ip": fact["pod_ip"]}],
        "qosClass": "Guaranteed",
        "conditions": conditions,
        "containerStatuses": [container],
    }


@cache
def _template() -> tuple[str, re.Pattern[str], dict[str, str]]:
    text = json.dumps(json.loads(RECORDED.read_text()), separators=(",", ":"))
    names = {value: name for name, value in facts(0).items()}
    return (
        text,
        re.compile("|".join(re.escape(value) for value in sorted(names, key=len, reverse=True))),
        names,
    )


def stored(number: int) -> str:
    """The JSON of one pod as a watch brings it. In a list it comes without kind and apiVersion: see `page`."""
    text, varying, names = _template()
    fact = facts(number)
    return varying.sub(lambda match: fact[names[match[0]]], text)


def page(first: int, last: int, total: int) -> bytes:
    """One page of the list of all pods, as the server writes it."""
    more = {"continue": f"after-{last}", "remainingItemCount": total - last} if last < total else {}
    metadata = {"resourceVersion": "2000000", **more}
    items = ",".join(stored(number).replace('"kind":"Pod","apiVersion":"v1",', "", 1) for number in range(first, last))
    head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{json.dumps(metadata, separators=(",", ":"))}'
    return f'{head},"items":[{items}]}}\n'.encode()


def pages(total: int, size: int = 500) -> Iterator[bytes]:
    """The list of all pods, page by page."""
    for first in range(0, total, size):
        yield page(first, min(first + size, total), total)


def changes(total: int) -> Iterator[bytes]:
    """A watch in which every pod changes once."""
    for number in range(total):
        text = stored(number).replace(facts(number)["version"], str(3_000_000 + number))
        yield f'{{"type":"MODIFIED","object":{text}}}\n'.encode()


def _record() -> None:
    """Let a real server store the first pod, and keep what it gives back."""
    from support.servers.real import RealServer

    with RealServer() as server:
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        place = f"/api/v1/namespaces/{NAMESPACE}/pods"
        made = server.call("POST", f"{place}?fieldManager=gangline", manifest(0)).body
        found = server.call(
            "PATCH",
            f"{place}/{made['metadata']['name']}/status?fieldManager=kubelet",
            {"status": status(0)},
            content_type="application/strategic-merge-patch+json",
        ).body
    fact, metadata = facts(0), found["metadata"]
    metadata |= {"uid": fact["uid"], "resourceVersion": fact["version"], "creationTimestamp": fact["created"]}
    for entry, moment in zip(metadata["managedFields"], ("created", "started"), strict=True):
        entry["time"] = fact[moment]
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    _record()
