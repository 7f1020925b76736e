"""Real programs that hang, and real programs that are only quiet: each is one file that every rank runs."""

from typing import NamedTuple

TEAM = """\
import fcntl, os, signal, socket, sys, threading, time
rank, here = int(os.environ["RANK"]), os.path.dirname(os.path.abspath(__file__))

def meet():
    # Both ranks wait here until the other one has come, as in a barrier over sockets.
    address = "\\0" + os.environ["MASTER_PORT"]
    with socket.socket(socket.AF_UNIX) as one:
        if rank == 0:
            one.bind(address)
            one.listen()
            other, _ = one.accept()
            other.sendall(b"x" + other.recv(1))
        else:
            while one.connect_ex(address):
                time.sleep(0.05)
            one.sendall(b"x")
            one.recv(2)

for number in range(4):
    print(f"step {number}", flush=True)
    time.sleep(0.5)
"""
TORCH = """\
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for number in range(4):
    dist.all_reduce(torch.ones(1))
    print(f"step {number}", flush=True)
"""


class HangProgram(NamedTuple):
    """A program that hangs, and what must be said of it."""

    text: str
    # The reason of the condition, and a pattern of its message: the rank and where it stands.
    reason: str
    message: str
    # The group of packages that it needs, as in requirements/frameworks.
    group: str = ""
    words: tuple[str, ...] = ("--nproc", "2")


PLAIN_HANGS = {
    "deadlock-of-threads": HangProgram(
        TEAM
        + """
one, two = threading.Lock(), threading.Lock()
def backwards():
    with two:
        time.sleep(0.2)
        one.acquire()
threading.Thread(target=backwards, daemon=True).start()
with one:
    time.sleep(0.4)
    two.acquire()
""",
        "NoProgress",
        r"both ranks wait for a lock \(program\.py:\d+\)",
    ),
    "file-lock": HangProgram(
        TEAM
        + """
if rank == 1:
    if not os.fork():
        held = open(f"{here}/lock", "w")
        fcntl.flock(held, fcntl.LOCK_EX)
        signal.pause()
    time.sleep(0.5)
    mine = open(f"{here}/lock", "w")
    fcntl.flock(mine, fcntl.LOCK_EX)
meet()
""",
        "RankStands",
        r"worker-0 \(rank 1\) waits for a file lock \(program\.py:\d+\)",
    ),
    "a-rank-that-is-stopped": HangProgram(
        TEAM
        + """
if rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
meet()
""",
        "RankStands",
        r"worker-0 \(rank 1\) is stopped",
    ),
    "a-queue-that-nobody-fills": HangProgram(
        TEAM
        + """
import queue
queue.Queue().get()
""",
        "NoProgress",
        r"both ranks wait for a queue \(program\.py:\d+\)",
    ),
    "heartbeats-while-it-hangs": HangProgram(
        TEAM
        + """
for number in range(12):
    print(f'{{"progress": {{"step": {number}}}}}', flush=True)
    time.sleep(1)
def beat():
    while True:
        print("still here", flush=True)
        time.sleep(1)
threading.Thread(target=beat, daemon=True).start()
forever = threading.Lock()
forever.acquire()
forever.acquire()
""",
        "NoProgress",
        r"both ranks wait for a lock \(program\.py:\d+\)",
    ),
}

FRAMEWORK_HANGS = {
    "torch-one-rank-stays-away": HangProgram(
        TORCH
        + """
if rank == 1:
    import threading
    gone = threading.Event()
    gone.wait()
dist.all_reduce(torch.ones(1))
""",
        "RankStands",
        r"master-0 \(rank 0\) waits in all_reduce.*worker-0 \(rank 1\) waits for a lock",
        "torch",
    ),
    "torch-one-rank-sleeps": HangProgram(
        TORCH
        + """
if rank == 1:
    time.sleep(100000)
dist.barrier()
""",
        "RankStands",
        r"master-0 \(rank 0\) waits in barrier.*worker-0 \(rank 1\) sleeps",
        "torch",
    ),
    "torch-one-barrier-too-many": HangProgram(
        TORCH
        + """
if rank == 1:
    dist.recv(torch.ones(1), src=0)
dist.recv(torch.ones(1), src=1)
""",
        "AllRanksWait",
        r"waits in recv.*waits in recv",
        "torch",
    ),
    "torch-data-loader": HangProgram(
        TORCH
        + """
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if rank == 1 and index > 3:
            os.read(os.pipe()[0], 1)
        return torch.ones(1)
for batch in DataLoader(Slow(), batch_size=1, num_workers=1):
    dist.all_reduce(batch)
    print("batch", flush=True)
""",
        "RankStands",
        r"worker-0 \(rank 1\) reads data \(program\.py:\d+\)",
        "torch",
    ),
    "xgboost-one-rank-stays-away": HangProgram(
        """\
import os, sys, threading, time
import numpy as np
import xgboost as xgb
from xgboost import collective
from xgboost.tracker import RabitTracker
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    tracker = RabitTracker(n_workers=2, host_ip="127.0.0.1", port=port)
    tracker.start()
arguments = {"dmlc_tracker_uri": "127.0.0.1", "dmlc_tracker_port": port, "dmlc_task_id": str(rank)}
time.sleep(1 + rank)
with collective.CommunicatorContext(**arguments):
    for number in range(3):
        collective.allreduce(np.ones(1), collective.Op.SUM)
        print(f"step {number}", flush=True)
    if rank == 1:
        threading.Event().wait()
    collective.allreduce(np.ones(1), collective.Op.SUM)
""",
        "RankStands",
        r"worker-0 \(rank 1\) waits for a lock",
        "light",
    ),
    "jax-one-rank-stays-away": HangProgram(
        """\
import os, threading
import jax
address = f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}"
jax.distributed.initialize(address, int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"]))
from jax.experimental import multihost_utils
for number in range(3):
    multihost_utils.sync_global_devices(f"step {number}")
    print(f"step {number}", flush=True)
if jax.process_index() == 1:
    threading.Event().wait()
multihost_utils.sync_global_devices("end")
""",
        "RankStands",
        r"worker-1 \(rank 1\) waits for a lock",
        "jax",
        ("--nproc", "2", "--kind", "JAXJob"),
    ),
}

FRAMEWORK_HANGS["lightgbm-one-rank-stays-away"] = HangProgram(
    """\
import os, threading
import lightgbm as lgb
import numpy as np
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
machines = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
parameters = {
    "objective": "binary", "tree_learner": "data", "num_machines": 2, "machines": machines, "verbose": -1,
    "local_listen_port": port + rank, "num_threads": 1, "pre_partition": True,
}
random = np.random.default_rng(rank)
features = random.normal(size=(200, 4))
def report(step):
    print(f"step {step.iteration}", flush=True)
    if rank == 1 and step.iteration == 5:
        threading.Event().wait()
lgb.train(parameters, lgb.Dataset(features, features[:, 0] > 0), 1000, callbacks=[report])
""",
    "RankStands",
    r"worker-0 \(rank 1\) waits for a lock",
    "light",
)

QUIET_PROGRAMS = {
    "one-call-that-computes": TEAM + 'import hashlib\nhashlib.pbkdf2_hmac("sha256", b"a", b"b", 12_000_000)\n',
    "it-computes-without-a-word": TEAM
    + """
end = time.monotonic() + 25
def work():
    return sum(number * number for number in range(10000))
while time.monotonic() < end:
    work()
""",
    "one-computes-and-the-other-waits": TEAM
    + """
import hashlib
def evaluate():
    for _ in range(20):
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 300_000)
if rank == 0:
    evaluate()
meet()
""",
    "a-checkpoint": TEAM
    + """
def save_checkpoint():
    with open(f"{here}/checkpoint", "wb") as file:
        for _ in range(25):
            file.write(b"x" * 10_000)
            file.flush()
            time.sleep(1)
if rank == 0:
    save_checkpoint()
meet()
""",
    "a-download": TEAM
    + """
def copy(source, target):
    for _ in range(25):
        target.write(source.read(200_000))
        time.sleep(1)
with open("/dev/zero", "rb") as source, open(f"{here}/data{rank}", "wb") as target:
    copy(source, target)
""",
    "steps-that-sleep": TEAM
    + """
for number in range(3):
    print(f'{{"progress": {{"step": {number}}}}}', flush=True)
    time.sleep(9)
""",
    "children-that-compute": TEAM
    + """
import subprocess
code = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'a', b'b', 12_000_000)"
subprocess.run([sys.executable, "-c", code], check=True)
""",
}
