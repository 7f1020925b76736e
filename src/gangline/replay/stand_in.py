"""The program that stands in for one whose code is in an image: it reports steps at the recorded rate, and trains nothing."""

import json
import sys
from collections.abc import Mapping

import msgspec

from gangline.api.meta import JSON
from gangline.replay.bundle import JobBundle, RecordedFault

PLAN_VARIABLE, POD_VARIABLE = "GANGLINE_STAND_IN", "GANGLINE_STAND_IN_POD"
LONGEST_WAIT = 30.0
"""After so many seconds the first fault comes, however late it came in the recording: stand-ins step faster then."""
TIME_AFTER_FAULT = 15.0
"""How long a stand-in runs on after the last fault, if nothing says how long the program ran."""

PROGRAM = """
import json, os, time
plans = json.loads(os.environ["GANGLINE_STAND_IN"])
pod = os.environ["GANGLINE_STAND_IN_POD"]
plan = next((plan for name, plan in plans.items() if pod.endswith("-" + name)), {})
rate, total, end = plan.get("rate"), plan.get("total"), time.monotonic() + plan.get("seconds", 60.0)
print("stand-in for the program of " + pod + ", whose code is not in the bundle", flush=True)
step = 0
while time.monotonic() < end and not (total and rate and step >= total):
    if rate:
        time.sleep(1 / rate)
        step += max(1, int(rate / 50))
        print(json.dumps({"progress": {"step": step, **({"total": total} if total else {})}}), flush=True)
    else:
        time.sleep(0.2)
""".strip()


class StandInPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the stand-in of one replica does."""

    # Steps a second; None if the program reported none.
    rate: float | None = None
    total: float | None = None
    seconds: float = TIME_AFTER_FAULT


def time_scale(fault: RecordedFault | None) -> float:
    """How many times faster stand-ins step than the programs did, so that nobody waits for hours."""
    after = fault.after_seconds if fault is not None else None
    return after / LONGEST_WAIT if after is not None and after > LONGEST_WAIT else 1.0


def stand_in_plans(bundle: JobBundle) -> Mapping[str, StandInPlan]:
    """The plan of each replica, by its name."""
    scale = time_scale(bundle.first_fault)
    last = max((fault.after_seconds or 0.0 for fault in bundle.faults), default=0.0) / scale
    plans = {}
    for replica in bundle.replicas:
        rate = replica.rate * scale if replica.rate else None
        fault = next((one for one in bundle.faults if one.replica == replica.name), None)
        if rate is None and fault is not None and fault.step:
            # It reported a step, but not since when: the step comes when the fault is due.
            rate = fault.step / max(1.0, (fault.after_seconds or LONGEST_WAIT) / scale)
        plans[replica.name] = StandInPlan(rate, replica.total, last + TIME_AFTER_FAULT)
    return plans


def stand_in_container(container: JSON, plans: Mapping[str, StandInPlan]) -> JSON:
    """The container with a stand-in as its program; its name, ports and resources stay."""
    kept = {name: value for name, value in container.items() if name in ("name", "image", "ports", "resources")}
    return {
        **kept,
        "command": [sys.executable, "-I", "-c", PROGRAM.replace("$", "$$")],
        "env": [
            {"name": PLAN_VARIABLE, "value": json.dumps(msgspec.to_builtins(dict(plans))).replace("$", "$$")},
            {"name": POD_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    }
