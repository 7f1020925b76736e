"""Twenty faults to record and to play again: programs that fail by themselves, and faults that somebody makes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gangline.api.drill import FaultKind, FaultRequest
from gangline.api.meta import JSON
from support.cases.why_faults import fault_job

SECRETS = {
    "variable": "hunter2-of-the-variable",
    "token": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "secret": "value-of-the-kubernetes-secret",
}
"""Values that no bundle may contain: each job has all of them, and prints the second."""
SECRET_NAME = "replay-secret"
STEP = 8
"""The step after which programs fail by themselves."""
STEPS = """
import json, os, signal, sys, time
rank = int(os.environ.get("RANK", "0"))
print("token", os.environ["GITHUB_TOKEN"], flush=True)
def fail(): ...
{fail}
for step in range(1, 3000):
    print(json.dumps({{"progress": {{"step": step, "total": 3000}}}}), flush=True)
    if step == {step} and rank == {rank}:
        fail()
    time.sleep(0.05)
"""
SILENT = "import time\ntime.sleep(600)\n"
LINKED = """
import json, os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("0.0.0.0", port))
    peers = [server.accept()[0] for _ in range(world - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection((host, port))]
            break
        except OSError:
            time.sleep(0.1)
def exchange():
    for peer in peers:
        peer.sendall(b"x")
    for peer in peers:
        if not peer.recv(1):
            raise ConnectionResetError("Connection reset by peer")
for step in range(1, 3000):
    print(json.dumps({{"progress": {{"step": step, "total": 3000}}}}), flush=True)
    if step == {step} and rank == {rank}:
        {fail}
    exchange()
    time.sleep(0.05)
"""


class ReplayCase(NamedTuple):
    """A job, and the fault that somebody makes in it; without one it fails by itself."""

    name: str
    program: str
    # The fault, and the replica it hits.
    fault: FaultKind | None = None
    replica: str = ""
    signal: int = 9
    # The replica that must be the first.
    first: str = ""
    # A fault of the node itself, which all jobs notice.
    of_node: bool = False
    # The program is in a file that the replay does not have, so that a stand-in plays it.
    is_file: bool = False
    limits: Mapping[str, str] = {}

    def request(self) -> FaultRequest:
        assert self.fault is not None
        seconds = 3600.0 if self.fault is FaultKind.HANG else 3.0
        return FaultRequest(id=f"replay-{self.name}", fault=self.fault, seconds=seconds, signal=self.signal)

    def body(self, command: Sequence[str]) -> JSON:
        """The job: a master and two workers."""
        env: list[dict[str, Any]] = [
            {"name": "DB_PASSWORD", "value": SECRETS["variable"]},
            {"name": "GITHUB_TOKEN", "value": SECRETS["token"]},
            {
                "name": "FROM_SECRET",
                "valueFrom": {"secretKeyRef": {"name": SECRET_NAME, "key": "key"}},
            },
        ]
        container: dict[str, Any] = {"env": env}
        if self.limits:
            container["resources"] = {"limits": dict(self.limits)}
        return fault_job(
            self.name,
            *command,
            kind="PyTorchJob",
            run={"cleanPodPolicy": "None"},
            container=container,
            Master=1,
            Worker=2,
        )


def own(
    name: str, fail: str, *, rank: int = 2, first: str = "worker-1", linked: bool = False, **more: Any
) -> ReplayCase:
    """A program in which one rank fails by itself."""
    template = LINKED if linked else STEPS
    text = fail if linked else f"def fail():\n    {fail}"
    return ReplayCase(name, template.format(fail=text, step=STEP, rank=rank), first=first, **more)


RUNS_ON = STEPS.format(fail="", step=0, rank=0)

CASES: tuple[ReplayCase, ...] = (
    own("exception", 'raise ValueError("loss is nan")'),
    own("exit-three", "sys.exit(3)"),
    own("exit-hard", "os._exit(7)", rank=1, first="worker-0"),
    # A real fault of memory: the first process of a container is safe from signals that it sends to itself.
    own("segfault", "import ctypes; ctypes.string_at(0)"),
    own("aborts", "os.abort()", rank=1, first="worker-0"),
    own("file-gone", 'open("/data/train.bin")'),
    own("module-gone", "import a_module_that_is_not_there", rank=0, first="master-0"),
    own("key-error", '{}["batch"]', rank=0, first="master-0"),
    own("no-memory", "raise MemoryError()"),
    own("linked-bug", 'raise ZeroDivisionError("division by zero")', linked=True),
    own("linked-master", "sys.exit(9)", rank=0, first="master-0", linked=True),
    own("only-in-image", 'raise RuntimeError("broken weights")', is_file=True),
    ReplayCase("killed", RUNS_ON, FaultKind.KILL, "worker-1", first="worker-1"),
    ReplayCase("killed-master", RUNS_ON, FaultKind.KILL, "master-0", first="master-0"),
    ReplayCase("killed-silent", SILENT, FaultKind.KILL, "worker-0", first="worker-0"),
    ReplayCase("terminated", RUNS_ON, FaultKind.KILL, "worker-1", signal=15, first="worker-1"),
    ReplayCase("starved", RUNS_ON, FaultKind.OOM, "worker-0", first="worker-0", limits={"memory": "256Mi"}),
    ReplayCase("evicted", RUNS_ON, FaultKind.EVICT, "worker-1", first="worker-1"),
    ReplayCase("node-gone", RUNS_ON, FaultKind.NODE_LOST, "worker-1", first="worker-1", of_node=True),
    # Last: it fails whatever starts on the node for a while.
    ReplayCase("rejected", RUNS_ON, FaultKind.BAD_NODE, "worker-1", first="worker-1", of_node=True),
)

CLUSTER_CASES: tuple[ReplayCase, ...] = (
    *(case for case in CASES if case.fault is None and not case.is_file),
    *(case for case in CASES if case.fault is FaultKind.KILL and case.signal == 9),
    own("takes-memory", "everything = bytearray(10**9); time.sleep(5)", limits={"memory": "128Mi"}),
    own("assertion", "assert rank < 0, 'shapes differ'", rank=1, first="worker-0"),
    own("usage", "import argparse; argparse.ArgumentParser().parse_args(['--unknown'])"),
    own("exit-last", "os._exit(255)"),
    own("bad-json", "json.loads('{')", rank=0, first="master-0"),
    own("recursion", "fail()"),
)
"""As many faults for real nodes, where nobody can fail a node for one job alone."""
