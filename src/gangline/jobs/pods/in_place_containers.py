"""What a pod needs to restart in place where a kubelet runs it: two small containers of gangline's image. Pure.

Kubernetes 1.35 restarts all containers of a pod when one of them ends with a code that a rule names. It removes them, and
their logs and exit codes with them. So it is not the program whose end restarts the pod:

- `gangline-hold` runs beside the program, and keeps the pod from failing with it until the operator has decided. It
  reads the pod's annotation from a volume. If a restart is asked for, it ends with the code of the rule, and the kubelet
  ends and restarts all containers. When the annotation is withdrawn, it ends, and the pod with it.
- `gangline-gate` is the first init container. After a restart it waits until the annotation lets the processes start, so
  that none meets a process of the team before.
"""

from gangline.api.in_place import HOLD_CONTAINER, IN_PLACE_ANNOTATION
from gangline.api.meta import JSON

GATE_CONTAINER = "gangline-gate"
RESTART_CODE = 88
"""The exit code by which `gangline-hold` has its pod restarted."""
ORDER_VOLUME, STATE_VOLUME = "gangline-order", "gangline-state"
ORDER_FOLDER, STATE_FOLDER = "/var/run/gangline/order", "/var/run/gangline/state"
ORDER_FILE, STATE_FILE = "in-place", "restart"

_COMMON = f"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
def order():
    words = open("{ORDER_FOLDER}/{ORDER_FILE}").read().split()
    return (int(words[0]), len(words) == 1) if words else None
def restart():
    try:
        return int(open("{STATE_FOLDER}/{STATE_FILE}").read())
    except FileNotFoundError:
        return -1
"""
GATE_PROGRAM = (
    _COMMON
    + f"""
done = restart()
while True:
    asked = order()
    if asked is None:
        sys.exit("the job has ended: nothing starts in this pod any more")
    if asked[0] > done and asked[1]:
        open("{STATE_FOLDER}/{STATE_FILE}", "w").write(str(asked[0]))
        sys.exit(0)
    time.sleep(0.2)
"""
)
HOLD_PROGRAM = (
    _COMMON
    + f"""
done = restart()
while True:
    asked = order()
    if asked is None:
        sys.exit(0)
    if asked[0] > done:
        sys.exit({RESTART_CODE})
    time.sleep(0.2)
"""
)
_RESOURCES = {"cpu": "50m", "memory": "32Mi"}


def add_in_place_containers(spec: JSON, image: str) -> None:
    """Add the containers and their volumes to the spec of a new pod, which has the annotation."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [RESTART_CODE]}}
    hold = _container(HOLD_CONTAINER, image, HOLD_PROGRAM)
    spec["containers"] = [*spec["containers"], {**hold, "restartPolicy": "Never", "restartPolicyRules": [rule]}]
    spec["initContainers"] = [_container(GATE_CONTAINER, image, GATE_PROGRAM), *(spec.get("initContainers") or [])]
    field = {"path": ORDER_FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{IN_PLACE_ANNOTATION}']"}}
    spec["volumes"] = [
        *(spec.get("volumes") or []),
        {"name": ORDER_VOLUME, "downwardAPI": {"items": [field]}},
        {"name": STATE_VOLUME, "emptyDir": {}},
    ]


def _container(name: str, image: str, program: str) -> JSON:
    return {
        "name": name,
        "image": image,
        "command": ["python3", "-I", "-S", "-c", program],
        # Requests equal limits: a pod of the class Guaranteed stays one.
        "resources": {"requests": dict(_RESOURCES), "limits": dict(_RESOURCES)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            {"name": ORDER_VOLUME, "mountPath": ORDER_FOLDER, "readOnly": True},
            {"name": STATE_VOLUME, "mountPath": STATE_FOLDER},
        ],
    }
