"""Teams of many libraries: what each rank writes when one of them fails, and who is named as the first.

Each case is judged as gangline's own node reports it (exact times) and as a kubelet does (seconds, and times of log lines).
"""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from gangline.jobs.plan.failures.ends import ReplicaEnd
from gangline.jobs.plan.failures.first import first_end

START = datetime(2026, 1, 1, tzinfo=UTC)


class RankEnd(NamedTuple):
    """How one rank ends: when it writes its last lines, those, its exit code, and how long it takes to end then."""

    seconds: float
    text: str = ""
    code: int = 1
    reason: str = "Error"
    takes: float = 0.05


def traceback(error: str, *frames: str) -> str:
    """A traceback; each frame is `file function source`."""
    lines = ["Traceback (most recent call last):", '  File "/app/train.py", line 88, in <module>', "    main()"]
    for frame in frames:
        file, function, source = frame.split(" ", 2)
        lines += [f'  File "{file}", line 41, in {function}', f"    {source}"]
    return "\n".join([*lines, error])


SITE = "/usr/lib/python3/dist-packages"
ELASTIC = """
============================================================
/app/train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 0)
  exitcode  : 1 (pid: 31)
============================================================"""
ALL_REDUCE = f"{SITE}/torch/distributed/distributed_c10d.py all_reduce work = group.allreduce([tensor], opts)"

# The rank that fails first comes first.
CASES = {
    "mpi4py aborts": (
        RankEnd(
            7.10,
            traceback("ValueError: operands could not be broadcast together", "/app/model.py step return a + b")
            + "\nMPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 1.",
        ),
        RankEnd(
            7.18, "[host-1:00012] *** An error occurred in MPI_Allreduce\n[host-1:00012] *** MPI_ERR_PROC_FAILED", 75
        ),
        RankEnd(
            7.31, "mpirun noticed that process rank 2 with PID 0 on node worker-1 exited on signal 9 (Killed).", 137
        ),
    ),
    "torchrun, a child failed": (
        RankEnd(
            7.30, traceback("IndexError: index 5 is out of range", "/app/data.py __getitem__ return rows[i]") + ELASTIC
        ),
        RankEnd(
            7.12,
            traceback(
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:4",
                ALL_REDUCE,
            )
            + ELASTIC,
        ),
        RankEnd(7.35, traceback("torch.distributed.DistBackendError: [1] is setting up NCCL communicator", ALL_REDUCE)),
    ),
    "out of memory, broken pipes": (
        RankEnd(7.60, "epoch 3", 137, "OOMKilled"),
        RankEnd(
            7.20, traceback("BrokenPipeError: [Errno 32] Broken pipe", "/app/ring.py push self.right.sendall(data)")
        ),
        RankEnd(7.25, "write error: Broken pipe"),
    ),
    "mpirun cannot reach a worker that crashed": (
        RankEnd(7.05, "", 139),
        RankEnd(
            7.40,
            "ssh: connect to host job-worker-1 port 22: Connection refused\nORTE was unable to reliably start",
            255,
        ),
    ),
    "Horovod": (
        RankEnd(7.10, traceback("KeyError: 'learning_rate'", "/app/train.py main rate = config['learning_rate']")),
        RankEnd(
            7.30,
            traceback(
                "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception "
                "on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks "
                "finished execution.",
                f"{SITE}/horovod/torch/mpi_ops.py synchronize mpi_lib.horovod_torch_wait_and_clear(handle)",
            ),
        ),
    ),
    "gloo waits for half an hour": (
        RankEnd(7.10, "", 3),
        RankEnd(
            1807.3,
            traceback(
                "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation",
                ALL_REDUCE,
            ),
        ),
    ),
    "TensorFlow, gRPC unavailable": (
        RankEnd(
            7.20,
            traceback(
                "tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error: Matrix "
                "size-incompatible: In[0]: [32,10], In[1]: [12,5]",
                f"{SITE}/keras/src/utils/traceback_utils.py error_handler return fn(*args, **kwargs)",
            ),
        ),
        RankEnd(
            7.15,
            traceback(
                "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: failed to connect "
                "to all addresses; last error: UNKNOWN: ipv4:10.0.0.4:2222: Failed to connect to remote host",
                f"{SITE}/tensorflow/python/eager/execute.py quick_execute tensors = pywrap_tfe.TFE_Py_Execute(",
            ),
        ),
    ),
    "a segmentation fault with faulthandler": (
        RankEnd(
            7.10,
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):",
            139,
            takes=0.3,
        ),
        RankEnd(
            7.20, traceback("ConnectionResetError: [Errno 104] Connection reset by peer", "/app/net.py pull s.recv(4)")
        ),
    ),
    "kill -9 from inside, NCCL": (
        RankEnd(7.10, "step 4", 137),
        RankEnd(
            7.30,
            traceback(
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or there "
                "was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or "
                "a remote process exiting prematurely.",
                ALL_REDUCE,
            ),
        ),
        RankEnd(7.35, "[rank2]:[E ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout", 134),
    ),
    "a process of the replica was out of memory, which its kubelet does not say": (
        RankEnd(7.10, "Killed", 137),
        RankEnd(
            7.30,
            traceback("EOFError", "/usr/lib/python3.11/multiprocessing/connection.py recv buf = self._recv_bytes()"),
        ),
    ),
    "JAX, heartbeats are missing": (
        RankEnd(
            7.10, traceback("AssertionError: loss is nan at step 12", "/app/train.py check assert np.isfinite(loss)")
        ),
        RankEnd(
            17.4,
            "E0101 coordination_service_agent.cc:711] Polled an error from coordination service (this can be an error from "
            "this or another task).\nUNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): task:2",
            134,
        ),
    ),
    "DeepSpeed, one GPU is full": (
        RankEnd(
            7.10,
            traceback(
                "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB in all",
                f"{SITE}/torch/nn/functional.py linear return torch._C._nn.linear(input, weight, bias)",
            ),
        ),
        RankEnd(7.40, traceback("RuntimeError: NCCL communicator was aborted on rank 0.", ALL_REDUCE)),
    ),
    "XGBoost": (
        RankEnd(
            7.20, traceback("ValueError: Input contains NaN, infinity or a value too large", "/app/io.py load check(x)")
        ),
        RankEnd(
            7.10,
            traceback(
                "xgboost.core.XGBoostError: [12:00:00] /workspace/src/collective/result.cc:78: [comm.cc:301]: Allreduce "
                "failed. system error:Connection reset by peer",
                f"{SITE}/xgboost/core.py _check_call raise XGBoostError(py_str(_LIB.XGBGetLastError()))",
            ),
        ),
    ),
    "LightGBM": (
        RankEnd(7.10, "[LightGBM] [Fatal] Could not open data file /data/part-1.csv", 255),
        RankEnd(7.15, "[LightGBM] [Fatal] Socket recv error, Connection reset by peer (code: 104)", 255),
    ),
    "an import that one image does not have": (
        RankEnd(
            7.10,
            traceback("ModuleNotFoundError: No module named 'flash_attn'", "/app/model.py <module> import flash_attn"),
        ),
        RankEnd(
            7.30,
            traceback(
                "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
                f"{SITE}/torch/distributed/rendezvous.py _create_c10d_store return TCPStore(host, port)",
            ),
        ),
    ),
    "Ray": (
        RankEnd(
            7.10,
            traceback("PermissionError: [Errno 13] Permission denied: '/out/model.pt'", "/app/s.py save open(path)"),
        ),
        RankEnd(
            7.20,
            traceback(
                "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
                f"{SITE}/ray/_private/worker.py get raise value",
            ),
        ),
    ),
    "shell scripts": (
        RankEnd(7.10, "bash: line 1: ./train: No such file or directory", 127),
        RankEnd(7.25, "curl: (7) Failed to connect to master port 29500 after 2 ms: Couldn't connect to server", 7),
    ),
    "Java": (
        RankEnd(
            7.10,
            'Exception in thread "main" java.lang.NullPointerException: name is null\n\tat Train.main(Train.java:9)',
        ),
        RankEnd(
            7.05, "java.io.IOException: Connection reset by peer\n\tat java.base/sun.nio.ch.FileDispatcherImpl.read0"
        ),
    ),
    "C++": (
        RankEnd(
            7.20,
            "terminate called after throwing an instance of 'std::out_of_range'\n  what():  vector::_M_range_check",
            134,
        ),
        RankEnd(
            7.10,
            "terminate called after throwing an instance of 'gloo::IoException'\n"
            "  what():  [gloo/transport/tcp/pair.cc:589] Read error [10.0.0.2]:31: Connection reset by peer",
            134,
        ),
    ),
    "Rust": (
        RankEnd(
            7.10,
            "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: the len is 3 but the index is 9",
            101,
        ),
        RankEnd(7.15, "Error: transport error: connection error: connection closed before message completed"),
    ),
    "a ring of sockets times out": (
        RankEnd(
            7.10,
            traceback("FileNotFoundError: [Errno 2] No such file: '/data/7.npz'", "/app/data.py load np.load(path)"),
        ),
        RankEnd(17.2, traceback("TimeoutError: timed out", "/app/ring.py exchange_gradients left.recv(size)")),
        RankEnd(
            17.3,
            traceback("RuntimeError: no gradients from the left neighbour", "/app/ring.py exchange raise RuntimeError"),
        ),
    ),
    "a launcher that gives up and one that ends by SIGTERM": (
        RankEnd(7.10, "Error: config.yaml: unknown key 'optimzer'", 2),
        RankEnd(7.50, "received SIGTERM, peers are gone; saving nothing", 1),
    ),
    "an own error that is caught and told": (
        RankEnd(7.10, "2026-01-01 ERROR train: could not decode sample 17, giving up", 4),
        RankEnd(7.30, "2026-01-01 ERROR net: lost connection to worker-1", 4),
        RankEnd(7.32, "2026-01-01 ERROR net: lost connection to worker-1", 4),
    ),
}


def reported_end(rank: int, end: RankEnd, *, exactly: bool) -> ReplicaEnd:
    at = START + timedelta(seconds=end.seconds)
    ended = at + timedelta(seconds=end.takes)
    stamp = at.isoformat().replace("+00:00", "Z")
    usual = f"{(at - timedelta(seconds=0.4)).isoformat().replace('+00:00', 'Z')} step 4"
    return ReplicaEnd(
        replica="master-0" if rank == 0 else f"worker-{rank - 1}",
        exit_code=end.code,
        signal=end.code - 128 if exactly and 128 < end.code < 160 else 0,
        reason=end.reason,
        ended_at=ended if exactly else ended.replace(microsecond=0),
        is_exact=exactly,
        log=(usual, *(f"{stamp} {line}" for line in end.text.splitlines())),
        rank=rank,
    )


@pytest.mark.parametrize("exactly", [True, False], ids=["our node", "kubelet"])
@pytest.mark.parametrize("name", CASES)
def test_the_rank_that_failed_first_is_named_whatever_the_others_say(name: str, exactly: bool) -> None:
    ranks = CASES[name]
    # The first one is not rank 0: that would be chosen if nothing told.
    order = [*range(1, len(ranks)), 0]
    ends = [reported_end(rank, ranks[place], exactly=exactly) for rank, place in enumerate(order)]
    found = first_end(ends)
    assert found is not None
    assert order[found.index] == 0, ends[found.index].log
