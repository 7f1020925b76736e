"""Mistakes that people make: each ends in one message that leads to the fix.

The table was collected from the issue threads of kubeflow/training-operator, PyTorch (torchrun), Ray and SkyPilot, and
from trying gangline as a new user.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from gangline.cli.main import run
from support.cluster.clients import DetachedPlane

GOOD = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: none
              command: [python, train.py]
    Worker:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: none
              command: [python, train.py]
"""
TFJOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: train}
spec:
  tfReplicaSpecs:
    Chief:
      replicas: 1
      template:
        spec:
          containers:
            - name: tensorflow
              image: none
              command: [python, train.py]
"""
MPIJOB = """\
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: train}
spec:
  mpiReplicaSpecs:
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: mpi, image: none, command: [python, train.py]}]}}
"""
BLOCK = "resources:\n                limits:\n                  {}"
LIST = "{}:\n                - {}"
RUN_FILE = "run job.yaml"
MANY = GOOD.replace("Worker:\n      replicas: 1", "Worker:\n      replicas: 499")


class Mistake(NamedTuple):
    """What is typed, in a folder with which files, and what the message has to say (a regular expression)."""

    name: str
    message: str
    words: str = RUN_FILE
    # Beside `train.py`, which is fine.
    files: Mapping[str, str] = {}
    encoding: str = "utf-8"


def edit(name: str, before: str, after: str, message: str, *, text: str = GOOD) -> Mistake:
    """A mistake in a file that is otherwise good."""
    assert before in text, before
    return Mistake(name, message, files={"job.yaml": text.replace(before, after, 1)})


def pod(name: str, lines: str, message: str, *, more: str = "") -> Mistake:
    """A mistake in the first pod template of a file that is otherwise good."""
    mistake = edit(name, "          containers:", f"          {lines}\n          containers:", message)
    return mistake._replace(files={"job.yaml": mistake.files["job.yaml"] + more})


def container(name: str, lines: str, message: str) -> Mistake:
    """A mistake in the first container of a file that is otherwise good."""
    return edit(name, "image: none", f"image: none\n              {lines}", message)


def policy(name: str, lines: str, message: str) -> Mistake:
    """A mistake in the run policy of a file that is otherwise good."""
    return edit(
        name,
        "  pytorchReplicaSpecs:",
        f"  runPolicy:\n    {lines}\n  pytorchReplicaSpecs:",
        rf"job\.yaml:7: spec\.runPolicy\.{message}",
    )


REPLICAS = r"spec\.pytorchReplicaSpecs"
TEMPLATE = rf"{REPLICAS}\.Master\.template\.spec"
CONTAINER = rf"{TEMPLATE}\.containers\[0\]"

NOT_READABLE = [
    edit("wrong indent", "  name: train", "   name: train\n  labels: {}", r"job\.yaml:5: .*not indented like"),
    edit("tab", "  name: train", "\tname: train", r"job\.yaml:4: a tab in the indentation: YAML wants spaces"),
    edit("quote not closed", "image: none", 'image: "none', r"not YAML: a quote that is not closed"),
    edit("key twice", "replicas: 1", "replicas: 1\n      replicas: 2", r"written twice, on lines 8 and 9"),
    edit("template of helm", "name: train", "name: {{ .Values.name }}", r"job\.yaml:4: .*render the file first"),
    edit(
        "list with a map",
        "            - name: pytorch",
        "            name: pytorch",
        r"job\.yaml:14: .*check the indent",
    ),
    edit(
        "no-break space", "  name: train", "\N{NO-BREAK SPACE} name: train", r"job\.yaml:4: a no-break space in the in"
    ),
    Mistake("file of an old editor", r"convert it: iconv -f latin1", files={"job.yaml": "# für\n"}, encoding="latin1"),
    Mistake("file of PowerShell", r"convert it: iconv -f utf-16", files={"job.yaml": GOOD}, encoding="utf-16"),
    Mistake("notebook as a job", r"convert it: jupyter nbconvert", "run a.ipynb", {"a.ipynb": '{"cells": []}'}),
    edit("no space", "replicas: 1", "replicas:1", r"job\.yaml:8: not YAML: no space after the colon"),
    edit("no colon", "kind: PyTorchJob", "kind PyTorchJob", r"not YAML: a key without a colon after it"),
    edit("list not closed", "train.py]", "train.py", r"not YAML: a list that is not closed with \]"),
    Mistake("empty file", r"job\.yaml: holds no object; give a file with a job", files={"job.yaml": ""}),
    Mistake("only comments", r"job\.yaml: holds no object", files={"job.yaml": "# later\n"}),
    Mistake("binary file", r"job\.yaml:1: a control character", files={"job.yaml": "\0\1\2"}),
    Mistake(
        "page of an error", r'job\.yaml:1: .*got "<!DOCTYPE', files={"job.yaml": "<!DOCTYPE html>\n<html></html>\n"}
    ),
    Mistake("list of jobs", r"put --- between objects", files={"job.yaml": "- kind: PyTorchJob\n"}),
    Mistake(
        "brace not closed", r"an object that is not closed with }", "run job.json", {"job.json": '{"kind": "TFJob"\n'}
    ),
    Mistake("folder", r"jobs: is a folder; name a file in it", "run jobs", {"jobs/job.yaml": GOOD}),
    Mistake("no such file", r"jb\.yaml: No such file or directory", "run jb.yaml"),
]
NOT_A_JOB = [
    edit(
        "kind misspelt",
        "kind: PyTorchJob",
        "kind: PytorchJob",
        r'kind: is "PytorchJob"; write one of TFJob, PyTorchJob',
    ),
    edit("plural kind", "kind: PyTorchJob", "kind: PyTorchJobs", r'kind: is "PyTorchJobs"; write one of'),
    edit("old version", "kubeflow.org/v1", "kubeflow.org/v1beta2", r"a PyTorchJob is of kubeflow\.org/v1"),
    edit("wrong group", "kubeflow.org/v1", "kubeflow/v1", r"a PyTorchJob is of kubeflow\.org/v1"),
    Mistake(
        "job of Ray",
        r'kind: is "RayJob"; a run takes TFJob, PyTorchJob',
        files={"job.yaml": "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\n"},
    ),
    Mistake(
        "job of Trainer v2",
        r'kind: is "TrainJob"; a run takes TFJob, PyTorchJob',
        files={"job.yaml": "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\n"},
    ),
    edit(
        "job of Ray in the group of Kubeflow",
        "PyTorchJob",
        "RayJob",
        r'kind: is "RayJob"(.|\n)*write:   kind: PyTorchJob',
    ),
    edit("kind of another framework", "PyTorchJob", "TFJob", r'is "TFJob", but spec\.pytorchReplicaSpecs is of a PyT'),
    edit(
        "name that is a number",
        "name: train",
        "name: 123",
        r"metadata\.name: expected string, got 123\n +write:   name: job-123",
    ),
    Mistake("task of SkyPilot", r"task\.yaml:1: is no job file", "run task.yaml", {"task.yaml": "run: python a.py\n"}),
    edit(
        "name to be generated",
        "  name: train",
        "  generateName: train-",
        r"job\.yaml:4: metadata\.generateName: a run makes no names; .*add --set metadata\.name=train-1",
    ),
    edit("no name", "  name: train", "  labels: {a: b}", r"job\.yaml:3: metadata\.name: required field is missing"),
    edit("name with underscore", "name: train", "name: my_train", r"lower case letters, digits and '-'"),
    edit("name in upper case", "name: train", "name: Train", r"lower case letters, digits and '-'"),
    edit("name of a variable", "name: train", "name: $NAME", r"lower case letters, digits and '-'"),
    edit("name too long", "name: train", f"name: {'a' * 64}", r"too long: .*use a shorter name"),
    edit("empty spec", GOOD[GOOD.index("  pytorch") :], "", r"job\.yaml:5: spec: required field is missing"),
    edit(
        "label that is a number",
        "  name: train",
        "  name: train\n  labels:\n    run: 1",
        r'labels\.run: expected string, got 1\n +write:   run: "1"',
    ),
    Mistake("two jobs of one name", r"called train; rename one of them", files={"job.yaml": f"{GOOD}---\n{GOOD}"}),
    Mistake(
        "second document bad",
        r"job\.yaml:41: .*Workers: is no replica type",
        files={"job.yaml": f"{GOOD}---\n{GOOD.replace('name: train', 'name: b').replace('Worker:', 'Workers:')}"},
    ),
]
REPLICA_SPECS = [
    edit("field in wrong case", "pytorchReplicaSpecs", "pyTorchReplicaSpecs", r"job\.yaml:6: .*: unknown field"),
    edit("no master", "replicas: 1", "replicas: 0", r"Master\.replicas: is 0; write 1 or more"),
    edit("less than no master", "replicas: 1", "replicas: -1", r"Master\.replicas: is -1; write 1 or more"),
    edit("Workers", "Worker:", "Workers:", r"Workers: is no replica type of a PyTorchJob; write one of"),
    edit(
        "master in lower case",
        "Master:",
        "master:",
        r'unknown replica type "master": .* Master and Worker',
    ),
    edit("replicas as text", "replicas: 1", "replicas: one", rf'{REPLICAS}\.Master\.replicas: expected int, got "one"'),
    edit("replicas quoted", "replicas: 1", 'replicas: "1"', r'replicas: expected int, got "1"'),
    edit("two masters", "replicas: 1", "replicas: 2", r"Master\.replicas: is 2; write 1"),
    edit("two chiefs", "replicas: 1", "replicas: 2", r"Chief\.replicas: is 2; write 1", text=TFJOB),
    edit("no chief at all", "replicas: 1", "replicas: 0", r"Chief\.replicas: is 0; write 1 or more", text=TFJOB),
    edit("nobody who trains", "Chief:", "PS:", r"nobody here trains, .*; add a Worker", text=TFJOB),
    edit("no launcher", "MPIJob", "MPIJob", r"MPIJob needs a Launcher: add spec\.mpi", text=MPIJOB),
    edit(
        "restartPolicy in lower case",
        "restartPolicy: Never",
        "restartPolicy: never",
        r'job\.yaml:9: .*restartPolicy: Unsupported value: "never": supported values: "Always", "OnFailure", "Never"',
    ),
    edit("field in lower case", "restartPolicy", "restartpolicy", r"Master\.restartpolicy: unknown field"),
    edit(
        "replicas in the template",
        "        spec:",
        "        replicas: 2\n        spec:",
        r"template\.replicas",
    ),
    edit(
        "no template",
        GOOD[GOOD.index("      template:") : GOOD.index("    Worker:")],
        "",
        r"job\.yaml:7: .*Master\.template: Required value",
    ),
    edit(
        "elastic range the wrong way round",
        "  pytorchReplicaSpecs:",
        "  elasticPolicy: {minReplicas: 4, maxReplicas: 2}\n  pytorchReplicaSpecs:",
        r"minReplicas must not be greater than maxReplicas",
    ),
]
CONTAINERS = [
    container("short name of a GPU", BLOCK.format("gpu: 1"), r"limits\.gpu: write its full name, nvidia\.com/gpu"),
    container(
        "GPUs that are not here", BLOCK.format("nvidia.com/gpu: 64"), r"needs nvidia\.com/gpu 64, and this machine has"
    ),
    container("memory that is not here", BLOCK.format("memory: 9000Gi"), r"needs memory 9000Gi, and this machine has"),
    container(
        "no such volume", "volumeMounts: [{name: data, mountPath: /data}]", r'no volume "data"; add it to volumes'
    ),
    container("pull policy in lower case", "imagePullPolicy: never", r'imagePullPolicy: .*"IfNotPresent", "Never"'),
    container("port too large", "ports: [{containerPort: 99999}]", r"must be between 1 and 65535"),
    edit(
        "container not named pytorch",
        "- name: pytorch",
        "- name: main",
        r'job\.yaml:13: .*containers\[0\]\.name: no container is named "pytorch"',
    ),
    edit(
        "container named like pytorch",
        "- name: pytorch",
        "- name: py_torch",
        r'no container is named "pytorch"(.|\n)*write:   name: pytorch',
    ),
    edit(
        "container not named tensorflow",
        "name: tensorflow",
        "name: tf",
        r'named "tensorflow"',
        text=TFJOB,
    ),
    edit("no image", "              image: none\n", "", r"image: Required value: write the image to run"),
    edit("field of a container", "command:", "comand:", rf"{CONTAINER}\.comand: unknown field"),
    edit(
        "command as one text",
        "[python, train.py]",
        "python train.py",
        r'command: is "python train\.py", and must be a list\n +write:   command: \["python", "train\.py"\]',
    ),
    container(
        "arguments as one text",
        "args: --lr 0.1 --name 'a b'",
        r'write:   args: \["--lr", "0.1", "--name", "a b"\]',
    ),
    container("number as argument", LIST.format("args", "3"), r'args\[0\]: is 3, and must be text\n +write:   "3"'),
    container(
        "number as variable",
        LIST.format("env", "name: A\n                  value: 1"),
        rf'{CONTAINER}\.env\[0\]\.value: is 1, and must be text\n +write:   value: "1"',
    ),
    container(
        "boolean as variable",
        LIST.format("env", "name: A\n                  value: true"),
        r'env\[0\]\.value: is true, and must be text\n +write:   value: "true"',
    ),
    container(
        "variables as text",
        LIST.format("env", "A=1"),
        r'env\[0\]: is "A=1", and must be an object\n +write:   \{name: A, value: "1"\}',
    ),
    container(
        "variables as a map",
        "env: {A: b, C: 2}",
        r'env: is object, and must be a list\n +write:   env: \[\{name: A, value: "b"\}, \{name: C, value: "2"\}\]',
    ),
    container("memory in GB", BLOCK.format("memory: 4GB"), r'"4GB" is no quantity(.|\n)*write:   memory: 4G$'),
    container(
        "memory without a unit", BLOCK.format("memory: 4"), r"is 4, which is a .*of bytes\n +write:   memory: 4Gi"
    ),
    container("memory in thousandths", BLOCK.format("memory: 400m"), r"write:   memory: 400Mi"),
    container("half a GPU", BLOCK.format("nvidia.com/gpu: 0.5"), r"no part of a device; write a whole number"),
    container("half a core", BLOCK.format("cpu: 0.5"), r'cpu: is 0\.5, and must be text\n +write:   cpu: "0\.5"'),
    container(
        "GPU beside the limits",
        "resources:\n                nvidia.com/gpu: 1",
        r'\["nvidia\.com/gpu"\]: unknown field\n +write:   limits: {nvidia\.com/gpu: 1}',
    ),
    container("cores in words", BLOCK.format("cpu: 2 cores"), r'"2 cores" is no quantity'),
    container("port by name", "ports: [{containerPort: web}]", r'containerPort: is "web", and must be a whole number'),
]
REQUIRED_AFFINITY = (
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
    "[{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}}"
)
CONFIG = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: params}\ndata: {lr: '0.1'}\n"
NOT_HERE = r"is not in the file, and a run has a control plane of its own(.|\n)*add it to the file:\n"
WAITING = [
    container("missing config map", "envFrom: [{configMapRef: {name: params}}]", rf'ConfigMap "params" {NOT_HERE}'),
    container(
        "missing secret",
        "env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: wandb, key: token}}}]",
        rf'job\.yaml:15: {CONTAINER}\.env.*Secret "wandb" {NOT_HERE}(.|\n)*stringData: {{token: value}}',
    ),
    pod(
        "missing claim",
        "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]",
        rf'job\.yaml:12: .*claimName: PersistentVolumeClaim "data" {NOT_HERE}',
    ),
    pod("missing file", "volumes: [{name: a, projected: {sources: [{secret: {name: ssh}}]}}]", r'Secret "ssh" is not'),
    pod(
        "missing key",
        "volumes: [{name: a, configMap: {name: params, items: [{key: rate, path: rate}]}}]",
        r'ConfigMap "params" has no key "rate"; it has: lr',
        more=CONFIG,
    ),
    pod(
        "config map misspelt",
        "volumes: [{name: a, configMap: {name: parms}}]",
        r'ConfigMap "parms" is not in the file; did you mean "params"\?',
        more=CONFIG,
    ),
    pod("priority of a cluster", "priorityClassName: high", rf'PriorityClass "high" {NOT_HERE}'),
    policy("queue of a cluster", "schedulingPolicy: {queue: research}", rf'.*Queue "research" {NOT_HERE}'),
    pod("node of a cluster", "nodeSelector: {gpu: a100}", r'no label "gpu: a100"; leave nodeSelector out .*add --set'),
    pod(
        "name of a node", "nodeName: gpu-1", r'nodeName: is "gpu-1", but the only node of a run is "local"; .*add --set'
    ),
    pod("scheduler of a cluster", "schedulerName: volcano", r'is "volcano", which does not run here; .*add --set'),
    pod("scheduling gate", "schedulingGates: [{name: kueue.x-k8s.io/admission}]", r"nobody here removes .*add --set"),
    pod(
        "zone of a cluster",
        REQUIRED_AFFINITY,
        r"labels of this machine's node do not match the required nodeAffinity; .*add --set",
    )._replace(words=f"{RUN_FILE} --gang"),
    pod("storage of a cluster", "volumes: [{name: a, nfs: {server: a, path: /}}]", r"type nfs; write hostPath: {path:"),
    pod(
        "folder that is not here",
        "volumes: [{name: a, hostPath: {path: /no/such, type: Directory}}]",
        r"/no/such is no directory on this machine; create it, or write type: DirectoryOrCreate",
    ),
    container(
        "requests above the limits",
        BLOCK.format("cpu: 1\n                requests:\n                  cpu: 2"),
        r"requests\.cpu: .*limit of 1\n +write:   cpu: 1",
    ),
    policy("more than all", "schedulingPolicy: {minAvailable: 5}", r".*is 5, but the job has 2 replicas.*add --set"),
    policy("suspended", "suspend: true", r"suspend: is true, so that the job waits to be resumed; .*add --set"),
    policy(
        "managed by somebody else",
        "managedBy: kueue.x-k8s.io/multikueue",
        r'managedBy: is "kueue.*", a controller that does not run here; .*add --set',
    ),
    Mistake(
        "gang that is too large",
        r"job\.yaml:6: .*all replicas start together and need nvidia\.com/gpu 2, and this machine has 1",
        f"{RUN_FILE} --gang --capacity gpu=1",
        {
            "job.yaml": GOOD.replace(
                "image: none", "image: none\n              resources: {limits: {nvidia.com/gpu: 1}}"
            )
        },
    ),
]
PROGRAMS = [
    Mistake(
        "no command in a file",
        r"names no command.*add --image-map 'none=python train\.py'",
        files={"job.yaml": GOOD.replace("              command: [python, train.py]\n", "")},
    ),
    Mistake(
        "script in a file misspelt",
        r"trian\.py is not in .*; write train\.py, which is there",
        files={"job.yaml": GOOD.replace("train.py]", "trian.py]")},
    ),
    Mistake(
        "command in one word",
        r"write every word by itself: \[python, train\.py\]",
        files={"job.yaml": GOOD.replace("[python, train.py]", '["python train.py"]')},
    ),
    Mistake(
        "curly quotes",
        r"write straight quotes or none: python;",
        files={"job.yaml": GOOD.replace("[python, train.py]", "[“python”, “train.py”]")},
    ),
]
POLICIES = [
    policy("cleanPodPolicy in lower case", "cleanPodPolicy: running", r'clean.*: "All", "Running", "None"'),
    policy(
        "deadline with a unit",
        "activeDeadlineSeconds: 1h",
        r'activeDeadlineSeconds: expected int, got "1h"\n +write:   activeDeadlineSeconds: 3600',
    ),
    policy("time to live in words", "ttlSecondsAfterFinished: never", 'ttl.*: expected int, got "never"'),
    policy("suspend as text", "suspend: 'yes'", 'suspend: expected boolean, got "yes"'),
    policy(
        "less than no restarts",
        "backoffLimit: -1",
        "backoffLimit: .*(greater than or equal to 0|write 0 or more)",
    ),
    edit(
        "policy outside of runPolicy",
        "  pytorch",
        "  backoffLimit: 3\n  pytorch",
        r"spec\.backoffLimit: unknown field\n +write:   runPolicy: \{backoffLimit: 3\}",
    ),
    edit(
        "clean-up of pods as in earlier versions",
        "  pytorch",
        "  cleanPodPolicy: None\n  pytorch",
        r"spec\.cleanPodPolicy: unknown field\n +write:   runPolicy: \{cleanPodPolicy: None\}",
    ),
]
COMMAND_LINES = [
    Mistake(
        "more GPUs than there are",
        r"--limit nvidia\.com/gpu=64: this machine has",
        "run --nproc 2 --limit gpu=64 -- python train.py",
    ),
    Mistake("nothing to run", r"expected a FILE; or for a script: gangline run --nproc 4 -- python train\.py", "run"),
    Mistake("script as a file", r"to run a script: gangline run --nproc 4 -- python train\.py", "run train.py"),
    Mistake("name of a job", r"train: No such file .*to run a script", "run train"),
    Mistake("no command", r"--nproc: no command; write: gangline run --nproc 4 -- python", "run --nproc 2"),
    Mistake("no processes", r"--nproc 0: expected 1 or more", "run --nproc 0 -- python train.py"),
    Mistake("less than no processes", r"--nproc -1: expected 1 or more", "run --nproc -1 -- python train.py"),
    Mistake("processes in words", r"--nproc.*abc", "run --nproc abc -- python train.py"),
    Mistake("empty variable", r"--nproc", "run --nproc '' -- python train.py"),
    Mistake("script misspelt", r"trian\.py: no such file; processes start in", "run --nproc 2 -- python trian.py"),
    Mistake("script misspelt a little", r"did you mean train\.py\?", "run --nproc 2 -- python tran.py"),
    Mistake("launcher that is not here", r"write: -- python train\.py$", "run --nproc 2 -- horovodrun python train.py"),
    Mistake(
        "program misspelt", r"pyton: no such program on PATH; did you mean python\?", "run --nproc 2 -- pyton train.py"
    ),
    Mistake("script without python", r"write: -- python train\.py", "run --nproc 2 -- train.py"),
    Mistake("quotes around a command", r"out: -- python train\.py -v$", "run --nproc 2 -- 'python train.py -v'"),
    Mistake("line of a shell", r"write: -- bash -c 'cd \. && python t", "run --nproc 2 -- 'cd . && python train.py'"),
    Mistake("variable before a program", r"write: -- env LR=1 python train", "run --nproc 2 -- LR=1 python train.py"),
    Mistake("command of the shell", r"source: is of the shell", "run --nproc 2 -- source .venv/bin/activate"),
    Mistake("path of Windows", r"write src/a\.py$", r"run --nproc 2 -- python 'src\a.py'", {"src/a.py": ""}),
    Mistake(
        "folder as a script", r"src: is a folder without __main__", "run --nproc 2 -- python src", {"src/a.py": ""}
    ),
    Mistake("notebook as a script", r"a\.ipynb: is a notebook", "run --nproc 2 -- python a.ipynb", {"a.ipynb": "{}"}),
    Mistake("module with a suffix", r"write: -- python -m train$", "run --nproc 2 -- python -m train.py"),
    Mistake(
        "script without #!", r"go\.sh: .*write: -- bash \./go\.sh", "run --nproc 2 -- ./go.sh", {"go.sh": "date\n"}
    ),
    Mistake(
        "script of Windows",
        r"go\.sh: has line endings of Windows; convert it: sed -i",
        "run --nproc 2 -- ./go.sh",
        {"go.sh": "#!/bin/bash\r\ndate\r\n"},
    ),
    Mistake(
        "script named like a module",
        r"torch\.py: imports torch, which is the script itself by its name; rename it",
        "run --nproc 2 -- python torch.py",
        {"torch.py": "import torch\n"},
    ),
    Mistake("number left out", r"--nproc: no number; write: --nproc 4 -- python", "run --nproc -- python train.py"),
    Mistake("dash of a word processor", r"long dash.*; write --nproc$", "run –nproc 2 -- python train.py"),
    Mistake("thousands of processes", r"has room for 110 .*write 110 or less", "run --nproc 5000 -- python train.py"),
    Mistake("more pods than room", r"has 500 replicas.*room for 110", RUN_FILE, {"job.yaml": MANY}),
    Mistake("range the wrong way round", r"write: --nproc 2:4", "run --nproc 4:2 -- python train.py"),
    Mistake(
        "restarts that never happen",
        r"job\.yaml:9: .*restartPolicy: is Never, so that --max-restarts does nothing; write OnFailure",
        f"{RUN_FILE} --max-restarts 2",
        {"job.yaml": GOOD},
    ),
    Mistake("option of torchrun", r"Did you mean '--nproc'\?", "run --nproc_per_node 2 -- python train.py"),
    Mistake("flag misspelt", r"No such option '--nporc'.*'--nproc'", "run --nporc 2 -- python train.py"),
    Mistake("command misspelt", r"no such command: rum; did you mean run", "rum job.yaml"),
    Mistake(
        "file and processes", r"job\.yaml is a file; leave --nproc out", "run --nproc 2 job.yaml", {"job.yaml": GOOD}
    ),
    Mistake("no equals sign", r"--limit 4Gi: expected NAME=AMOUNT", "run --nproc 2 --limit 4Gi -- python train.py"),
    Mistake("limit in bytes", r"write: --limit memory=4Gi$", "run --nproc 2 --limit memory=4 -- python train.py"),
    Mistake("limit misspelt", r"write: --limit memory=1Gi$", "run --nproc 2 --limit mem=1Gi -- python train.py"),
    Mistake(
        "limits in one option",
        r"write: --limit cpu=1 --limit memory=1Gi$",
        "run --nproc 2 --limit cpu=1,memory=1Gi -- python train.py",
    ),
    Mistake("processes as for mpirun", r"-n: .*for processes write --nproc$", "run -n 2 -- python train.py"),
    Mistake("nodes as for torchrun", r"Did you mean '--nproc'\?", "run --nnodes 2 -- python train.py"),
    Mistake("GPUs as for SkyPilot", r"Did you mean '--limit gpu=1'\?", "run --gpus 2 -- python train.py"),
    Mistake(
        "address instead of a file", r"download it first: curl -LO https://a\.b/c\.yaml$", "run https://a.b/c.yaml"
    ),
    Mistake(
        "arguments after a file",
        r"--lr: is no file; arguments of the programs in a file are in its args",
        f"{RUN_FILE} -- --lr 0.1",
        {"job.yaml": GOOD},
    ),
    Mistake("script without a command", r"write: .*gangline run --nproc 4 -- python train\.py", "train.py"),
    Mistake("program without a command", r"write: .*gangline run --nproc 4 -- python train\.py", "python train.py"),
    Mistake("file without a command", r"write: .*gangline run job\.yaml", "job.yaml", {"job.yaml": GOOD}),
    Mistake(
        "options without a command", r"write: .*gangline run --nproc 2 -- python t", "--nproc 2 -- python train.py"
    ),
    Mistake("word of Ray", r"no such command: stop; write: .*gangline delete JOB", "stop train"),
    Mistake("no time at all", r"--timeout 0s: expected more than 0", f"{RUN_FILE} --timeout 0", {"job.yaml": GOOD}),
    Mistake(
        "setting in another spelling",
        r"pytorchReplicaSpecs\.worker: is there as Worker, too; write Worker",
        f"{RUN_FILE} --set spec.pytorchReplicaSpecs.worker.replicas=2",
        {"job.yaml": GOOD},
    ),
    Mistake("limit in GB", r"--limit memory=4GB: .*write 4G$", "run --nproc 2 --limit memory=4GB -- python train.py"),
    Mistake(
        "short kind", r"--kind pytorch: .*one of PyTorchJob, TFJob", "run --nproc 2 --kind pytorch -- python train.py"
    ),
    Mistake(
        "duration in words", r'"1hour" is no duration; write 30s', f"{RUN_FILE} --timeout 1hour", {"job.yaml": GOOD}
    ),
    Mistake("setting without value", r"--set lr: expected path=value", f"{RUN_FILE} --set lr", {"job.yaml": GOOD}),
    Mistake(
        "setting of the wrong type",
        r'job\.yaml:17: .*Worker\.replicas: expected int, got "two"',
        f"{RUN_FILE} --set spec.pytorchReplicaSpecs.Worker.replicas=two",
        {"job.yaml": GOOD},
    ),
    Mistake("unknown output", r"'yaml' is not 'json'", f"{RUN_FILE} -o yaml", {"job.yaml": GOOD}),
    Mistake(
        "no such image file", r"--images no\.yaml: No such file", f"{RUN_FILE} --images no.yaml", {"job.yaml": GOOD}
    ),
    Mistake(
        "capacity in words",
        r'--capacity gpu=two: "two" is not a quantity',
        f"{RUN_FILE} --capacity gpu=two",
        {"job.yaml": GOOD},
    ),
    Mistake("no number of replicas", r"how many\? write --replicas 2", "scale train"),
    Mistake(
        "no server",
        r"no cluster is configured(.|\n)*a server that stays: .*gangline up --detach",
        "create job.yaml",
        {"job.yaml": GOOD},
    ),
    Mistake("no such kubeconfig", r"kubeconfig: nope: no such file; correct the path", "get jobs --kubeconfig nope"),
    Mistake("context without a kubeconfig", r'"prdo", but there is no kubeconfig', "get jobs --context prdo"),
]
MISTAKES = [*NOT_READABLE, *NOT_A_JOB, *REPLICA_SPECS, *CONTAINERS, *WAITING, *PROGRAMS, *POLICIES, *COMMAND_LINES]
MISSING_SEPARATOR = [
    "run --nproc 2 python train.py --lr 0.1",
    "run --nproc=2 python train.py --epochs=3",
    "run --nproc 1 --kind TFJob python train.py -e 3",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder but for a script, in a home without a kubeconfig."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def write_files(folder: Path, files: Mapping[str, str], encoding: str = "utf-8") -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text.encode(encoding))
        (folder / name).chmod(0o755 if name.endswith(".sh") else 0o644)


def only_message(output: str, errors: str) -> str:
    """The one message that was printed, with what to write below it. Nothing was started before it."""
    lines = errors.splitlines()
    assert "Traceback" not in errors
    assert output == ""
    # What to do may be below the message, indented.
    assert lines, errors
    assert all(line.startswith("  ") for line in lines[1:]), errors
    return "\n".join(lines)


def with_advice(text: str, message: str) -> str:
    """The file after the line that the message names was written as the message says."""
    line, advice = re.search(r":(\d+): ", message), re.search(r"write:   (.*)", message)
    assert line is not None
    assert advice is not None
    lines = text.splitlines()
    head = re.match(r"[ -]*", lines[int(line[1]) - 1])
    assert head is not None
    value = lines[int(line[1]) - 1].partition(": ")[2]
    lines[int(line[1]) - 1] = head[0] + advice[1].replace("…", value)
    return "\n".join(lines) + "\n"


def test_the_file_without_a_mistake_is_good(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (GOOD, TFJOB):
        write_files(folder, {"job.yaml": text})
        assert run(["check", "job.yaml"]) == 0, capsys.readouterr().out


def test_there_are_enough_mistakes_and_each_is_there_once() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 40


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_ends_in_one_message(mistake: Mistake, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(folder, mistake.files, mistake.encoding)
    assert run(shlex.split(mistake.words)) == 1
    captured = capsys.readouterr()
    message = only_message(*captured)
    assert re.search(mistake.message, message), message
    if command := re.search(r"gangline (run --nproc 4 -- python train\.py)", message):
        assert run(shlex.split(command[1])) == 0, capsys.readouterr()
    if flags := re.search(r"(?:add|more:|some:) (--(?:set|capacity|image-map) .*?)(?:; or|$)", message):
        before, separator, program = mistake.words.partition(" -- ")
        assert run(shlex.split(f"{before} {flags[1]}{separator}{program}")) == 0, capsys.readouterr()
    if "add it to the file:" in message:
        (folder / "job.yaml").write_text(
            mistake.files["job.yaml"] + dedent(message.partition("add it to the file:")[2])
        )
        assert run(shlex.split(mistake.words)) == 0, capsys.readouterr()
    if "write:   " in message and "is missing" not in message:
        fixed = with_advice(mistake.files["job.yaml"], message)
        write_files(folder, {"job.yaml": fixed})
        assert run(["check", "job.yaml"]) == 0, fixed + capsys.readouterr().out


ONE_GPU = "resources: {limits: {nvidia.com/gpu: 1}}"
WARNINGS = [
    container(
        "variable of the operator",
        "env: [{name: WORLD_SIZE, value: '8'}]",
        r'job\.yaml:15: .*env\[0\]: WORLD_SIZE "8" has no effect: each replica gets its own from the operator',
    ),
    Mistake(
        "file named like a module",
        r"warning: random\.py: hides the module random, which train\.py imports; rename it",
        "run --nproc 2 -- python train.py",
        {"random.py": "", "train.py": "import random\n"},
    ),
    Mistake(
        "team without enough GPUs",
        r"2 replicas need nvidia\.com/gpu 2, and this machine has 1: some of them wait until others have ended",
        f"{RUN_FILE} --capacity gpu=1",
        {"job.yaml": GOOD.replace("image: none", f"image: none\n              {ONE_GPU}")},
    ),
]


@pytest.mark.parametrize("mistake", WARNINGS, ids=[mistake.name for mistake in WARNINGS])
def test_what_may_not_be_meant_is_one_warning_before_the_run(
    mistake: Mistake, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(folder, mistake.files)
    assert run(shlex.split(mistake.words)) == 0
    warning, *others = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: ")
    assert re.search(mistake.message, warning), warning
    assert not any(line.startswith("warning: ") for line in others), others


def test_a_job_as_a_server_prints_it_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = "  name: train\n  resourceVersion: '5'\n  uid: abc\n  generation: 1\nstatus: {conditions: []}\n"
    write_files(folder, {"job.yaml": GOOD.replace("  name: train\n", printed)})
    assert run(["run", "job.yaml"]) == 0, capsys.readouterr()


@pytest.mark.parametrize("words", MISSING_SEPARATOR)
def test_options_of_ones_own_program_before_a_separator_are_shown_where_they_belong(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split(words)) == 1
    message = only_message(*capsys.readouterr())
    advice = re.search(r"if it is one of your program, write: .*?gangline (run .*) \(see ", message)
    assert advice is not None, message
    assert run(shlex.split(advice[1])) == 0
    assert "trained" in capsys.readouterr().out


# Surroundings


def in_shell(line: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = f"{shlex.quote(sys.executable)} -m gangline run --nproc 2 -- python train.py"
    command = ["bash", "-c", line.format(words)]
    return subprocess.run(command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=120)


SURROUNDINGS: list[tuple[str, str, dict[str, str]]] = [
    ("names of modules in the folder", "touch random.py logging.py asyncio.py secrets.py && {}", {}),
    ("folder in PYTHONPATH", "touch random.py secrets.py && PYTHONPATH=$PWD:$PYTHONPATH {}", {}),
    ("proxy", "{}", dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"), "http://127.0.0.1:1")),
    ("no home", "unset HOME GANGLINE_HOME && {}", {}),
    ("home that is a file", "touch file && HOME=$PWD/file GANGLINE_HOME= {}", {}),
    ("no temporary folder", "TMPDIR=/no/such {}", {}),
    ("no terminal", "TERM= COLUMNS=abc {} </dev/null", {}),
    ("standard output that is closed", "{} >&-", {}),
]


@pytest.mark.parametrize(("line", "env"), [row[1:] for row in SURROUNDINGS], ids=[name for name, *_ in SURROUNDINGS])
def test_strange_surroundings_do_not_matter(line: str, env: Mapping[str, str], folder: Path) -> None:
    done = in_shell(line, folder, **env)
    assert done.returncode == 0, done
    assert "Traceback" not in done.stdout + done.stderr


def test_a_folder_that_was_deleted_is_one_message(folder: Path) -> None:
    done = in_shell('mkdir gone && cd gone && rmdir "$PWD" && {}', folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: the folder that you are in does not exist any more; cd into another one\n"


# With a server


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    running = DetachedPlane(tmp_path_factory.mktemp("mistakes") / "plane")
    running.up()
    yield running
    running.down()


SERVER_MISTAKES = [
    ("context misspelt", "run job.yaml --context prdo", "config", 1, r'--context: names "prdo".*known: gangline'),
    ("token that has expired", "get jobs", "expired", 1, r"wrong or have expired: log in again"),
    ("server that is gone", "get jobs", "gone", 1, r"Connection refused; is that server up"),
    ("kubeconfig that is no YAML", "get jobs", "broken", 1, r"broken: is not YAML at line 2.*correct it"),
    ("no such namespace", "create job.yaml -n nope", "config", 1, r'namespaces "nope" not found'),
    ("no such kind", "get foos", "config", 1, r'the server doesn\'t have a resource type "foos"'),
    ("no such job", "get job trian", "config", 1, r'no training job "trian" in namespace "default"'),
    ("logs of no job", "logs trian", "config", 102, r'no training job "trian" in namespace "default"'),
    ("no such job to explain", "why trian", "config", 102, r"no job trian .*see what there is: gangline get jobs -A"),
    ("command in no job", "exec trian -- ls", "config", 102, r'no training job "trian" in namespace "default"'),
    ("half a replica", "scale train --replicas -1", "config", 1, r'"-1" is no number of replicas; write how many'),
]


@pytest.mark.parametrize(
    ("words", "config", "code", "message"),
    [row[1:] for row in SERVER_MISTAKES],
    ids=[row[0] for row in SERVER_MISTAKES],
)
def test_a_mistake_about_a_server_ends_in_one_message(
    words: str,
    config: str,
    code: int,
    message: str,
    plane: DetachedPlane,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = plane.kubeconfig.read_text()
    write_files(
        folder,
        {
            "job.yaml": GOOD,
            "config": good,
            "expired": re.sub("token: .*", "token: old", good),
            "gone": re.sub("server: .*", "server: https://127.0.0.1:1", good),
            "broken": "not: [a\n",
        },
    )
    command, *rest = shlex.split(words)
    assert run([command, "--kubeconfig", config, *rest]) == code
    assert re.search(message, only_message(*capsys.readouterr()))


def test_a_port_in_use_is_one_message(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run(["up", "--dir", str(folder / "plane"), "--port", str(port)]) == 1
    message = only_message(*capsys.readouterr())
    assert f"127.0.0.1:{port}: cannot listen there: Address already in use; choose another with --port" in message
