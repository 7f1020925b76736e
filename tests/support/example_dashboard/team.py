"""A made-up cluster for the pages of the dashboard: the answers of its server, with what real runs seldom have all at once.

A team of eight, of which one member runs out of memory; queues with a line; a sweep; nodes with GPUs. Times are relative to
the start of the process, numbers come from formulas: two runs differ in their times only.
"""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime.now(UTC).replace(microsecond=0)
GI = 2**30
BERT = "team-a/pytorchjobs/bert-large"


def ago(seconds: float) -> str:
    """A moment before now, as the server writes it."""
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def unix(seconds: float) -> float:
    """The same in seconds since 1970."""
    return NOW.timestamp() - seconds


def job_row(name: str, state: str, **more: Any) -> dict[str, Any]:
    """A row of the board."""
    namespace, kind = more.pop("namespace", "team-a"), more.pop("kind", "PyTorchJob")
    plural = f"{kind.lower()}s"
    replicas = more.get("replicas", 4)
    started = None if state in ("Pending", "Created") else ago(more.get("age", 3600) - 20)
    row = {
        "id": f"{namespace}/{plural}/{name}",
        "namespace": namespace,
        "plural": plural,
        "kind": kind,
        "name": name,
        "uid": f"uid-{name}",
        "state": state,
        "stateText": state,
        "reason": "",
        "progress": None,
        "restarts": 0,
        "ready": replicas if state in ("Running", "Succeeded") else 0,
        "replicas": replicas,
        "queue": "gpu",
        "gangPhase": "Running" if state == "Running" else "Pending" if state == "Pending" else "",
        "placeInLine": None,
        "createdAt": ago(more.pop("age", 3600)),
        "startedAt": started,
        "endedAt": ago(300) if state in ("Succeeded", "Failed") else None,
        "deleted": False,
    }
    return row | more


def progress(step: int, total: int, eta: float | None, **metrics: float) -> dict[str, Any]:
    return {
        "step": step,
        "total": total,
        "fraction": step / total,
        "etaSeconds": eta,
        "metrics": metrics,
        "updatedAt": ago(2),
        "replica": "worker-0",
    }


def board_rows() -> list[dict[str, Any]]:
    """Jobs in every state."""
    waits = "gang needs 16 nvidia.com/gpu, 11 free"
    return [
        job_row(
            "bert-large",
            "Running",
            age=5400,
            replicas=8,
            ready=7,
            restarts=2,
            reason="worker-3 was killed for using too much memory (OOMKilled), restarting",
            progress=progress(1840, 4000, 4210, loss=0.412, learning_rate=3e-5),
            gangPhase="Recovering",
            stateText="Running, 7 of 8 ready",
        ),
        job_row("llama-sft", "Running", age=9100, replicas=16, progress=progress(310, 1200, 26100, loss=1.204)),
        job_row("resnet50", "Pending", age=720, kind="MPIJob", replicas=17, reason=waits, placeInLine=1),
        job_row("vit-ablation-3", "Pending", age=430, replicas=8, reason=waits, placeInLine=2),
        job_row("whisper-ft", "Restarting", namespace="team-b", age=2700, restarts=4, queue="research",
                reason="worker-1 exited with 1, the team is started again in 40 s"),
        job_row("linear", "Succeeded", namespace="default", kind="TFJob", age=500, queue="",
                progress=progress(400, 400, None, loss=0.0038)),
        job_row("gpt2-tokens", "Failed", namespace="team-b", age=8000, queue="research",
                reason="worker-0 exited with 1: ValueError: shapes (512, 768) and (512,) do not match", restarts=3),
        job_row("xgb-fraud", "Running", namespace="team-c", kind="XGBoostJob", age=250, queue="cpu", replicas=3,
                progress=progress(88, 200, 640, auc=0.913)),
        job_row("jax-pretrain", "Suspended", namespace="team-a", kind="JAXJob", age=86400, replicas=32,
                reason="suspended by maria"),
        job_row("paddle-ocr", "Running", namespace="team-c", kind="PaddleJob", age=3300, queue="cpu", replicas=2),
        job_row("mnist", "Succeeded", namespace="default", kind="TFJob", age=7200, queue=""),
        job_row("dlrm-nightly", "Created", namespace="team-b", age=4, queue="research"),
    ]  # fmt: skip


QUEUES = [
    {"name": "cpu", "weight": 1, "deserved": {"cpu": "64"}, "held": {"cpu": "22"}, "pending": 0, "running": 2},
    {
        "name": "gpu",
        "weight": 3,
        "deserved": {"cpu": "192", "nvidia.com/gpu": "24"},
        "held": {"cpu": "120", "nvidia.com/gpu": "24"},
        "pending": 2,
        "running": 3,
    },
    {
        "name": "research",
        "weight": 1,
        "deserved": {"cpu": "64", "nvidia.com/gpu": "8"},
        "held": {"cpu": "70", "nvidia.com/gpu": "8"},
        "pending": 1,
        "running": 1,
    },
]


def _span(state: str, start: float, end: float | None, attempt: int = 0, text: str = "", node: str = "") -> Any:
    ends = None if end is None else unix(end)
    return {"state": state, "start": unix(start), "end": ends, "attempt": attempt, "node": node, "text": text}


def timeline() -> dict[str, Any]:
    """A team of eight: two rounds lost, one to memory and one to a node; now one member is short."""
    rows = []
    for index in range(8):
        node = f"gpu-{index // 2}"
        first = "exit 137 (OOMKilled)" if index == 3 else "exit 1"
        spans = [
            _span("waiting", 5400, 5310 - index),
            _span("starting", 5310 - index, 5280 - 2 * index, node=node),
            _span("running", 5280 - 2 * index, 3600 - (0 if index == 3 else 4 + index), node=node),
            _span("failed" if index in (3, 1) else "stopped", 3600 - (0 if index == 3 else 4 + index), 3560, 0, first),
            _span("waiting", 3560, 3530, 1),
            _span("starting", 3530, 3490 - index, 1, node=node),
        ]
        if index == 3:
            spans += [
                _span("running", 3487, 900, 1, node=node),
                _span("failed", 900, 860, 1, "exit 137 (OOMKilled)", node),
                _span("waiting", 860, 840, 2, "back-off of 20 s"),
                _span("starting", 840, 800, 2, node=node),
                _span("not-ready", 800, None, 2, "readiness probe fails", node),
            ]
        else:
            spans += [_span("running", 3490 - index, None, 1, node=node)]
        rows.append({"name": f"worker-{index}", "type": "Worker", "index": index, "spans": spans})
    marks: list[dict[str, Any]] = [
        {"kind": "scheduler", "at": unix(5310), "row": None, "text": "placed all 8 on 4 nodes", "cause": False},
        {"kind": "checkpoint", "at": unix(4300), "row": "worker-0", "text": "step 600", "cause": False},
        {"kind": "first-failure", "at": unix(3600), "row": "worker-3", "text": "exit 137, OOMKilled", "cause": True},
        {"kind": "failure", "at": unix(3595), "row": "worker-1", "text": "Connection closed by peer", "cause": False},
        {"kind": "operator", "at": unix(3570), "row": None, "text": "restarts the whole team", "cause": False},
        {"kind": "restart", "at": unix(3560), "row": "worker-0", "text": "attempt 2", "cause": False},
        {"kind": "checkpoint", "at": unix(1800), "row": "worker-0", "text": "step 1200", "cause": False},
        {"kind": "oom", "at": unix(900), "row": "worker-3", "text": "limit 32Gi, peak 31.9Gi", "cause": False},
        {"kind": "restart", "at": unix(860), "row": "worker-3", "text": "attempt 3", "cause": False},
    ]
    return {
        "start": unix(5400),
        "end": unix(0),
        "rows": rows,
        "marks": marks,
        "links": [{"causeMark": 2, "consequenceMarks": [3, 4, 5]}],
        "phases": [
            _span("Created", 5400, 5280),
            _span("Running", 5280, 3595),
            _span("Restarting", 3595, 3480),
            _span("Running", 3480, None),
        ],
        "gangPhases": [],
    }


YAML = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: bert-large
  namespace: team-a
spec:
  runPolicy:
    backoffLimit: 6
  pytorchReplicaSpecs:
    Worker:
      replicas: 8
      restartPolicy: ExitCode
      template:
        spec:
          containers:
            - name: pytorch
              image: registry.example/bert:1.4
              command: [python, train.py, --batch, "512"]
              resources:
                limits: {memory: 32Gi, nvidia.com/gpu: 1}
"""


def job_detail(row: dict[str, Any]) -> dict[str, Any]:
    """All about a job."""
    pods = [
        {
            "name": f"{row['name']}-worker-{index}",
            "uid": f"pod-{index}",
            "replica": f"worker-{index}",
            "type": "Worker",
            "index": index,
            "state": "Running",
            "ready": index != 3,
            "reason": "readiness probe fails" if index == 3 else "",
            "node": f"gpu-{index // 2}",
            "restarts": 2 if index == 3 else 1,
            "exit": "137 (OOMKilled)" if index == 3 else "",
            "container": "pytorch",
            "createdAt": ago(3560),
            "startedAt": ago(3480),
            "progress": progress(1840 - index, 4000, None),
        }
        for index in range(8)
    ]
    events = [
        {"at": ago(5310), "type": "Normal", "reason": "Scheduled", "object": "PodGroup/bert-large",
         "message": "placed 8 pods on 4 nodes", "count": 1},
        {"at": ago(3600), "type": "Warning", "reason": "OOMKilled", "object": "Pod/bert-large-worker-3",
         "message": "container pytorch was killed: limit 32Gi reached", "count": 1},
        {"at": ago(3570), "type": "Normal", "reason": "PyTorchJobRestarting", "object": "PyTorchJob/bert-large",
         "message": "the team is started again, restart 1 of 6", "count": 1},
        {"at": ago(900), "type": "Warning", "reason": "OOMKilled", "object": "Pod/bert-large-worker-3",
         "message": "container pytorch was killed: limit 32Gi reached", "count": 2},
        {"at": ago(700), "type": "Warning", "reason": "Unhealthy", "object": "Pod/bert-large-worker-3",
         "message": "Readiness probe failed: connection refused", "count": 14},
    ]  # fmt: skip
    return {
        "row": row,
        "timeline": timeline(),
        "conditions": [
            {"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "created", "at": ago(5400)},
            {"type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "running", "at": ago(3480)},
        ],
        "pods": pods,
        "events": events,
        "yaml": YAML,
        "progress": row["progress"],
        "firstFailure": None,
        "allowed": {"suspend": True, "resume": False, "scale": True, "restart": True, "delete": True},
        "recorded": False,
        "deleted": False,
        "refused": [],
    }


WHY = {
    "headline": "PyTorchJob team-a/bert-large is Running, one worker short.",
    "cause": "worker-3 was killed for using too much memory (OOMKilled), twice in an hour.",
    "evidence": [
        {"text": "limit 32Gi, peak 31.9Gi; container exit code 137", "link": {"kind": "object", "pod": "worker-3"}},
        {
            "text": "last line before the kill: step 1100 batch 512 allocating attention mask",
            "link": {"kind": "log", "pod": "worker-3", "line": "allocating attention mask"},
        },
        {"text": "worker-1 then lost its peer (exit 1): a consequence, not the cause", "link": None},
    ],
    "next": [
        {"text": "Raise resources.limits.memory of Worker (try 48Gi), or lower the batch size.", "command": None},
        {"text": "After the change:", "command": "gangline restart bert-large -n team-a --replica worker/3"},
    ],
    "healthy": False,
}


def log_lines() -> list[dict[str, Any]]:
    """Lines of eight workers over an hour and a half, with repeats, colours of a terminal and one very long line."""
    lines = []
    for step in range(0, 1840, 8):
        at = 5280 - step * 2.8
        worker = step // 8 % 8
        text = f"step {step} loss {2.4 * math.exp(-step / 700) + 0.3:.4f} tokens/s {8120 + (step * 37) % 400}"
        lines.append({"at": unix(at), "replica": f"worker-{worker}", "attempt": 0, "text": text, "repeats": 1})
        if step % 200 == 0:
            text = "\x1b[33mWARNING\x1b[0m NCCL: retrying connection to rank 3"
            lines.append({"at": unix(at - 1), "replica": f"worker-{worker}", "attempt": 0, "text": text, "repeats": 41})
    oom = "step 1100 batch 512 allocating attention mask " + "of shape [512, 16, 512, 512] " * 6
    lines.append({"at": unix(901), "replica": "worker-3", "attempt": 1, "text": oom, "repeats": 1})
    return sorted(lines, key=lambda line: float(str(line["at"])))


def curves(over: str, shift: float = 0.0) -> dict[str, Any]:
    """Loss, accuracy and learning rate, and what the team used."""

    def x(step: float) -> float:
        return step if over == "step" else unix(5280 - step * 2.8)

    steps = range(0, 1841, 8)
    marks = [
        {"x": x(600), "kind": "first-failure", "text": "worker-3 OOMKilled"},
        {"x": x(1565), "kind": "oom", "text": "worker-3 OOMKilled"},
    ]
    noise = [0.06 * math.sin(step * 1.7) * math.exp(-step / 1500) for step in steps]
    loss = [[x(s), 2.4 * math.exp(-s / 420) + 0.02 + shift + 0.2 * n] for s, n in zip(steps, noise, strict=True)]
    repeated = [[x(s), 2.4 * math.exp(-s / 430) + 0.05 + shift] for s in range(520, 600, 8)]
    accuracy = [[x(s), 0.93 - 0.8 * math.exp(-s / 500) + 0.3 * n] for s, n in zip(steps, noise, strict=True)]
    rate = [[x(s), 3e-5 * min(1, s / 200) * (1 - s / 4400)] for s in steps]
    moments = [unix(5280 - 60 * i) for i in range(88)]
    workers = [f"worker-{index}" for index in range(4)]
    usage = {
        "cpu": [
            {"replica": name, "points": [[at, 7 - n + math.sin(i / 3 + n)] for i, at in enumerate(moments)]}
            for n, name in enumerate(workers)
        ],
        "memory": [
            {"replica": name, "points": [[at, (30 + i * (0.1 + 0.2 * n)) * GI] for i, at in enumerate(moments)]}
            for n, name in enumerate(workers)
        ],
        "note": "",
    }
    return {
        "metrics": [
            {"name": "loss", "points": loss, "repeated": repeated, "marks": marks, "prefersLog": True, "replica": ""},
            {
                "name": "accuracy",
                "points": accuracy,
                "repeated": [],
                "marks": marks,
                "prefersLog": False,
                "replica": "",
            },
            {
                "name": "learning_rate",
                "points": rate,
                "repeated": [],
                "marks": marks,
                "prefersLog": False,
                "replica": "",
            },
        ],
        "usage": usage,
    }


def cluster(nodes: int = 14) -> dict[str, Any]:
    """Nodes with GPUs and without; one is not ready."""
    jobs: list[dict[str, Any]] = [
        {"namespace": "team-a", "job": "bert-large"},
        {"namespace": "team-a", "job": "llama-sft"},
        {"namespace": "team-c", "job": "paddle-ocr"},
    ]
    rows = []
    for index in range(nodes):
        gpu = index % 7 < 5
        used = (0, 4, 8, 2, 8, 6, 3)[index % 7]
        resources = {
            "cpu": {"used": 4.0 + used * 6, "free": 60.0 - used * 6, "total": 64.0},
            "memory": {"used": (32 + used * 24) * GI, "free": (480 - used * 24) * GI, "total": 512 * GI},
        }
        if gpu:
            resources["nvidia.com/gpu"] = {"used": float(used), "free": float(8 - used), "total": 8.0}
        gangs = [jobs[index % 3] | {"pods": max(1, used // 2)}] if used else []
        if used == 8:
            gangs.append(jobs[(index + 1) % 3] | {"pods": 2})
        rows.append(
            {
                "name": f"{'gpu' if gpu else 'cpu'}-{index}",
                "resources": resources,
                "gangs": gangs,
                "ready": index != 5,
                "schedulable": index != 9,
                "pods": used,
            }
        )
    holes = [
        {"node": "gpu-0", "free": {"nvidia.com/gpu": "8", "cpu": "60", "memory": "480Gi"}},
        {"node": "gpu-3", "free": {"nvidia.com/gpu": "6", "cpu": "48", "memory": "432Gi"}},
    ]
    return {"nodes": rows, "holes": holes, "refused": []}


def sweep() -> dict[str, Any]:
    """Eighteen trials, one of them failed."""
    trials: list[dict[str, Any]] = []
    for index in range(18):
        rate, batch, failed = 10 ** (-4 + index / 6), (16, 64, 256)[index % 3], index == 17
        loss = round(abs(math.log10(rate) + 2.2) ** 2 * 0.12 + 0.08 + batch / 4000, 4)
        reason = "worker-0 exited with 1: loss is NaN" if failed else ""
        name = f"trial-{index + 1}"
        trials.append(
            {
                "rank": None,
                "number": index + 1,
                "parameters": {"lr": f"{rate:.4g}", "batch": str(batch), "optimizer": ("adamw", "sgd")[index % 2]},
                "value": None if failed else loss,
                "metrics": {} if failed else {"loss": loss, "accuracy": round(1 - loss / 2, 4)},
                "row": job_row(name, "Failed" if failed else "Succeeded", age=4000 - 40 * index, reason=reason),
            }
        )
    ranked = sorted((trial for trial in trials if trial["value"] is not None), key=lambda trial: float(trial["value"]))
    for rank, trial in enumerate(ranked, 1):
        trial["rank"] = rank
    failures = [trial for trial in trials if trial["rank"] is None]
    parameters = ["batch", "lr", "optimizer"]
    return {
        "name": "bert-lr",
        "metric": "loss",
        "maximize": False,
        "parameters": parameters,
        "trials": ranked + failures,
    }
