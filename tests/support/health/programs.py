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
    # The job that runs it, if `--nproc` cannot describe it.
    job: str = ""
    # Whether it is found with the usual --hung-after, or with a short one.
    is_usual: bool = False
    # Whether ranks wait with a busy CPU.
    spins: bool = False


class QuietProgram(NamedTuple):
    """A program that works, without a sign of life for a while."""

    text: str
    group: str = ""
    words: tuple[str, ...] = ("--nproc", "2")
    job: str = ""


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
        "NoProgress",
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

_REPLICA = """
      replicas: {count}
      template:
        spec:
          containers:
            - {{name: {container}, image: "gangline/examples:1", command: {command}}}
"""
PROGRAM_COMMAND = "[python, program.py]"
# The node asks Open MPI to leave the CPU to others while it waits. This one does not.
MPI_COMMAND = '[mpirun, --allow-run-as-root, --mca, mpi_yield_when_idle, "0", -np, "2", python, program.py]'


def _tensorflow_job(**replicas: int) -> str:
    """A TFJob whose replicas all run the program."""
    specs = (
        f"    {name}:{_REPLICA.format(count=count, container='tensorflow', command=PROGRAM_COMMAND)}"
        for name, count in replicas.items()
    )
    head = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: program}\nspec:\n  tfReplicaSpecs:\n"
    return head + "".join(specs)


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
        is_usual=True,
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

FRAMEWORK_HANGS["lightgbm-that-spins"] = HangProgram(
    # The rank that waits has a thread of OpenMP that has nothing to do, and waits for that with a busy CPU.
    'import os\nif os.environ["RANK"] == "0":\n    os.environ["OMP_WAIT_POLICY"] = "active"\n'
    + FRAMEWORK_HANGS["lightgbm-one-rank-stays-away"].text.replace('"num_threads": 1', '"num_threads": 2 - rank'),
    "RankStands",
    r"worker-0 \(rank 1\) waits for a lock",
    "light",
    spins=True,
)

FRAMEWORK_HANGS["tensorflow-one-worker-stays-away"] = HangProgram(
    """\
import os, threading
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
@tf.function
def step():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
for number in range(4):
    step()
    print(f"step {number}", flush=True)
if strategy.cluster_resolver.task_id == 1:
    threading.Event().wait()
step()
""",
    "RankStands",
    r"worker-0 is in a TensorFlow operation \(program\.py:13\); worker-1 waits for a lock \(program\.py:12\)",
    "tensorflow",
    ("--nproc", "2", "--kind", "TFJob"),
    is_usual=True,
)

FRAMEWORK_HANGS["tensorflow-a-worker-of-parameter-servers-is-stopped"] = HangProgram(
    """\
import os, signal, threading, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
here = os.path.dirname(os.path.abspath(__file__))
cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
def stop():
    while not os.path.exists(f"{here}/stop"):
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGSTOP)
if cluster.task_type in ("ps", "worker"):
    spec = cluster.cluster_spec()
    server = tf.distribute.Server(spec, job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc")
    if (cluster.task_type, cluster.task_id) == ("worker", 1):
        threading.Thread(target=stop, daemon=True).start()
    server.join()
strategy = tf.distribute.ParameterServerStrategy(cluster)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros(4))
step = tf.function(lambda: weights.assign_add(tf.ones(4)))
for number in range(1000000):
    for _ in range(8):
        coordinator.schedule(step)
    coordinator.join()
    if number < 4:
        print(f"step {number}", flush=True)
    if number == 4:
        open(f"{here}/stop", "w").close()
    time.sleep(0.2)
""",
    "RankStands",
    r"chief-0 .*waits for its workers.*worker-1 .*is stopped",
    "tensorflow",
    job=_tensorflow_job(Chief=1, PS=1, Worker=2),
)

FRAMEWORK_HANGS["open-mpi-spins-while-one-rank-stays-away"] = HangProgram(
    """\
import threading
from mpi4py import MPI
world = MPI.COMM_WORLD
for number in range(4):
    world.Barrier()
    print(f"step {number}", flush=True)
if world.rank == 1:
    threading.Event().wait()
world.Barrier()
""",
    "RankStands",
    r"worker-0 \(rank 0\) waits in Barrier \(program\.py:9\); worker-1 \(rank 1\) waits for a lock \(program\.py:8\)",
    "light",
    job=f"""\
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {{name: program}}
spec:
  mpiReplicaSpecs:
    Launcher:{_REPLICA.format(count=1, container="mpi", command=MPI_COMMAND)}
    Worker:{_REPLICA.format(count=2, container="mpi", command="[]")}
""",
    is_usual=True,
    spins=True,
)

SERVERS = """\
import hashlib, json, os, socket, socketserver, time
config = json.loads(os.environ["TF_CONFIG"])
host, _, port = config["cluster"]["ps"][0].rpartition(":")
class Parameters(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(self.request.recv(1))
if config["task"]["type"] == "ps":
    socketserver.ThreadingTCPServer((host, int(port)), Parameters).serve_forever()
def ask():
    with socket.socket() as one:
        while one.connect_ex((host, int(port))):
            time.sleep(0.1)
        one.sendall(b"x")
        one.recv(1)
for number in range(4):
    ask()
    print(f"step {number}", flush=True)
"""

_QUIET_TEAMS = {
    "one-call-that-computes": TEAM + 'import hashlib\nhashlib.pbkdf2_hmac("sha256", b"a", b"b", 6_000_000)\n',
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
    "a-slow-download": TEAM
    + """
import urllib.request
def get_weights(url):
    return urllib.request.urlopen(url).read()
get_weights(open(f"{here}/url").read())
""",
    "a-progress-bar": TEAM
    + """
for number in range(25):
    print(f"\\r{number} of 25", end="", flush=True)
    time.sleep(1)
""",
    "a-subprocess-that-waits": TEAM + 'import subprocess\nsubprocess.run(["sleep", "25"], check=True)\n',
    "a-pool-that-computes": TEAM
    + """
import hashlib, multiprocessing
end = time.monotonic() + 25
def work(_):
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 300_000)
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(work, range(2))
""",
    "threads-that-compute": TEAM
    + """
import hashlib
def work():
    end = time.monotonic() + 25
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 300_000)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""",
    "children-that-compute": TEAM
    + """
import subprocess
code = "import hashlib; hashlib.pbkdf2_hmac('sha256', b'a', b'b', 6_000_000)"
subprocess.run([sys.executable, "-c", code], check=True)
""",
}

QUIET_PROGRAMS = {
    **{name: QuietProgram(text) for name, text in _QUIET_TEAMS.items()},
    "a-parameter-server-and-workers-that-compute": QuietProgram(
        SERVERS
        + """
end = time.monotonic() + 25
while time.monotonic() < end:
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 300_000)
ask()
""",
        job=_tensorflow_job(PS=1, Worker=2),
    ),
    "a-slow-compiler": QuietProgram(
        """\
import os
import jax
import jax.numpy as jnp
address = f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}"
jax.distributed.initialize(address, int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"]))
from jax.experimental import multihost_utils
for number in range(4):
    multihost_utils.sync_global_devices(f"step {number}")
    print(f"step {number}", flush=True)
def deep(x):
    for number in range(1500):
        x = jnp.sin(x) * number + jnp.cos(x @ x)
    return x
if jax.process_index() == 0:
    jax.jit(deep).lower(jnp.ones((4, 4))).compile()
multihost_utils.sync_global_devices("end")
""",
        "jax",
        ("--nproc", "2", "--kind", "JAXJob"),
    ),
}
"""Found to work although they are silent for longer than a short `--hung-after`."""

LONG_PROGRAMS = {
    "steps-of-five-minutes-that-compute": QuietProgram(
        TEAM
        + """
import hashlib
def step():
    end = time.monotonic() + 310
    while time.monotonic() < end:
        hashlib.pbkdf2_hmac("sha256", b"a", b"b", 50_000)
        time.sleep(0.2)
for number in range(2):
    print(f'{{"progress": {{"step": {number}}}}}', flush=True)
    step()
"""
    ),
    "steps-of-five-minutes-that-sleep": QuietProgram(
        TEAM
        + """
for number in range(3):
    print(f'{{"progress": {{"step": {number}}}}}', flush=True)
    time.sleep(310)
"""
    ),
    "a-checkpoint-of-five-minutes": QuietProgram(
        TEAM
        + """
def save_checkpoint():
    with open(f"{here}/checkpoint", "wb") as file:
        for _ in range(310):
            file.write(b"x" * 10_000)
            file.flush()
            time.sleep(1)
if rank == 0:
    save_checkpoint()
meet()
"""
    ),
    "one-call-of-minutes-while-the-other-waits": QuietProgram(
        TEAM
        + """
import hashlib
if rank == 0:
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 100_000_000)
meet()
"""
    ),
    "a-download-of-five-minutes": QuietProgram(
        TEAM
        + """
def copy(source, target):
    for _ in range(310):
        target.write(source.read(50_000))
        time.sleep(1)
with open("/dev/zero", "rb") as source, open(f"{here}/data{rank}", "wb") as target:
    copy(source, target)
"""
    ),
    "a-parameter-server-without-a-word": QuietProgram(
        SERVERS
        + """
for number in range(20):
    time.sleep(18)
    ask()
    print(f"step {number + 4}", flush=True)
""",
        job=_tensorflow_job(PS=1, Worker=2),
    ),
}
"""The same with the usual `--hung-after`: most take five minutes and more."""
