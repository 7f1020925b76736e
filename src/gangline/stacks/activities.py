"""What a thread does, in words: read from its frames, from the source line it stands at, or from the kernel. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from gangline.stacks.frames import is_own, own_frames, short_name
from gangline.stacks.model import Frame, ProcessStack, ThreadStack

ActivityKind = Literal[
    "team",  # waits for other ranks
    "join",  # waits for the other ranks to start
    "data",
    "process",  # waits for a process or thread of its own
    "lock",
    "network",
    "sleep",
    "checkpoint",
    "compile",
    "import",
    "serve",
    "device",
    "stopped",
    "ended",
    "run",
    "unknown",
]


class StackActivity(msgspec.Struct, frozen=True):
    """What a rank does. The verb is in the plural: `wait in all_reduce`."""

    kind: ActivityKind
    verb: str

    def text(self, count: int = 1) -> str:
        """`waits in all_reduce` for one rank, `wait in all_reduce` for several."""
        word, space, rest = self.verb.partition(" ")
        return self.verb if count != 1 else f"{_SINGULARS.get(word, f'{word}s')}{space}{rest}"


_SINGULARS = {"are": "is", "have": "has", "cannot": "cannot"}


class _FramePattern(msgspec.Struct, frozen=True):
    """Frames of a library that say what it does. `{}` in the verb is the function, without underscores around it."""

    path: re.Pattern[str]
    functions: re.Pattern[str]
    kind: ActivityKind
    verb: str


def _frames(path: str, functions: str, kind: ActivityKind, verb: str) -> _FramePattern:
    return _FramePattern(re.compile(rf"(?:^|/){path}"), re.compile(rf"(?:{functions})\Z"), kind, verb)


COLLECTIVES = (
    r"_*(?:i?all_?reduce\w*|i?all_?gather\w*|i?reduce_?scatter\w*|i?broadcast\w*|i?bcast\w*|i?barrier\w*|i?all_?to_?all\w*"
    r"|(?:monitored_|effective_)?barrier|i?scatter\w*|i?gather\w*|i?reduce|send\w*|recv\w*|sendrecv|i?scan|synchronize|wait_all)"
)
_ANY = r".*"
SUBPROCESS_WAIT = "wait for a subprocess"
_TABLE = (
    # Teams: joining, then collectives.
    _frames(
        r"torch/distributed/(?:rendezvous|elastic/rendezvous/\w+)\.py", _ANY, "join", "wait for the other ranks to join"
    ),
    _frames(
        r"torch/distributed/distributed_c10d\.py",
        r"init_process_group|_store_based_barrier|_new_process_group_helper|new_group\w*",
        "join",
        "wait for the other ranks in {}",
    ),
    _frames(r"jax/_src/distributed\.py", _ANY, "join", "wait for the other ranks to join"),
    _frames(r"torch/distributed/(?:distributed_c10d|nn/functional)\.py", COLLECTIVES, "team", "wait in {}"),
    _frames(r"torch/distributed/_functional_collectives\.py", _ANY, "team", "wait in {}"),
    _frames(r"torch/nn/parallel/distributed\.py", r"_sync_\w+|_verify_\w+", "team", "wait in {}"),
    _frames(r"torch/distributed/utils\.py", r"_sync_\w+|_verify_\w+", "team", "wait in {}"),
    _frames(
        r"torch/distributed/fsdp/.*\.py", r"_?(?:all_gather|reduce_scatter|unshard|reshard)\w*", "team", "wait in {}"
    ),
    _frames(
        r"jax/experimental/multihost_utils\.py", r"\w*(?:sync|broadcast|gather|all_equal)\w*", "team", "wait in {}"
    ),
    _frames(r"horovod/.*mpi_ops\.py", COLLECTIVES, "team", "wait in {}"),
    _frames(r"paddle/distributed/.*\.py", COLLECTIVES, "team", "wait in {}"),
    _frames(
        r"tensorflow/python/.*(?:collective_ops|cross_device_ops|cross_device_utils)\.py", _ANY, "team", "wait in {}"
    ),
    _frames(r"tensorflow/python/.*multi_worker_util\w*\.py", _ANY, "join", "wait for the other ranks to join"),
    _frames(r"tensorflow/python/training/server_lib\.py", r"join", "serve", "serve"),
    _frames(
        r"tensorflow/python/distribute/coordinator/.*\.py", r"join|fetch|get|wait\w*", "team", "wait for its workers"
    ),
    _frames(r"xgboost/(?:collective|rabit)\.py", COLLECTIVES, "team", "wait in {}"),
    _frames(
        r"xgboost/(?:collective|rabit)\.py", r"init|__enter__|__init__", "join", "wait for the other ranks to join"
    ),
    _frames(r"xgboost/tracker\.py", r"wait_for|join", "serve", "track the others"),
    _frames(r"mpi4py/", COLLECTIVES, "team", "wait in {}"),
    _frames(r"deepspeed/comm/.*\.py", COLLECTIVES, "team", "wait in {}"),
    # Data.
    _frames(r"torch/utils/data/(?:dataloader|_utils/\w+)\.py", _ANY, "data", "wait for data"),
    _frames(r"tensorflow/python/data/ops/iterator_ops\.py", _ANY, "data", "wait for data"),
    _frames(r"(?:webdataset|datasets|streaming|grain)/.*\.py", r"__next__|__iter__|__getitem__", "data", "read data"),
    # Files.
    _frames(r"(?:filelock|portalocker|fasteners)/.*\.py", _ANY, "lock", "wait for a file lock"),
    _frames(r"torch/serialization\.py", r"save|_save|_legacy_save", "checkpoint", "write a checkpoint"),
    _frames(r"torch/serialization\.py", r"load|_load|_legacy_load", "checkpoint", "read a checkpoint"),
    _frames(r"torch/distributed/checkpoint/.*\.py", r"\w*save\w*|\w*write\w*", "checkpoint", "write a checkpoint"),
    _frames(r"torch/distributed/checkpoint/.*\.py", r"\w*load\w*|\w*read\w*", "checkpoint", "read a checkpoint"),
    _frames(r"(?:orbax|flax)/.*checkpoint\w*/?.*\.py", r"\w*save\w*", "checkpoint", "write a checkpoint"),
    _frames(
        r"(?:tensorflow|keras)/.*(?:checkpoint|saved_model|saving)\w*.*\.py",
        r"\w*save\w*|write",
        "checkpoint",
        "write a checkpoint",
    ),
    _frames(r"(?:safetensors|numpy)/.*\.py", r"save\w*", "checkpoint", "write a file"),
    # Compilers.
    _frames(r"jax/_src/compiler\.py", _ANY, "compile", "compile"),
    _frames(r"torch/_dynamo/convert_frame\.py", _ANY, "compile", "compile"),
    _frames(r"torch/_inductor/(?:compile_fx|codecache|async_compile)\.py", _ANY, "compile", "compile"),
    _frames(r"torch/utils/cpp_extension\.py", r"\w*build\w*|load\w*|_jit_compile", "compile", "compile"),
    _frames(r"triton/(?:compiler|backends)/.*\.py", _ANY, "compile", "compile"),
    _frames(r"<frozen importlib\.", _ANY, "import", "import modules"),
    # Devices.
    _frames(r"torch/cuda/(?:__init__|streams)\.py", r"synchronize|wait", "device", "wait for the GPU"),
    _frames(r"jax/_src/array\.py", r"_value|__array__|\w*block_until_ready\w*|item", "device", "wait for the device"),
    _frames(r"jax/_src/api\.py", r"block_until_ready", "device", "wait for the device"),
    _frames(r"(?:lightgbm/basic|xgboost/core)\.py", r"update|boost|__boost|eval_set", "run", "are in {}"),
    _frames(r"lightgbm/basic\.py", r"set_network", "join", "wait for the other ranks to join"),
    _frames(r"tensorflow/python/eager/execute\.py", r"\w*execute\w*", "run", "are in a TensorFlow operation"),
    _frames(r"torch/autograd/(?:graph|__init__)\.py", _ANY, "run", "are in backward"),
    # Processes and threads of its own.
    _frames(r"torch/distributed/elastic/(?:agent|multiprocessing)/.*\.py", _ANY, "process", "wait for its processes"),
    _frames(r"torch/multiprocessing/spawn\.py", r"join|start_processes|spawn", "process", "wait for its processes"),
    _frames(r"subprocess\.py", _ANY, "process", SUBPROCESS_WAIT),
    _frames(r"multiprocessing/(?:popen_\w+)\.py", r"poll|wait", "process", "wait for a process of its own"),
    _frames(r"multiprocessing/process\.py", r"join", "process", "wait for a process of its own"),
    _frames(
        r"multiprocessing/pool\.py", r"get|wait|join|apply|map|next|_map_async", "process", "wait for its process pool"
    ),
    _frames(r"multiprocessing/(?:connection|queues|managers)\.py", _ANY, "process", "wait for another process"),
    _frames(
        r"concurrent/futures/\w+\.py",
        r"result|wait|as_completed|result_iterator|shutdown|__exit__",
        "process",
        "wait for a future",
    ),
    # Locks.
    _frames(r"multiprocessing/synchronize\.py", _ANY, "lock", "wait for a lock of another process"),
    _frames(r"threading\.py", r"join|_wait_for_tstate_lock", "process", "wait for a thread"),
    _frames(r"threading\.py", r"wait|wait_for|acquire|__enter__", "lock", "wait for a lock"),
    _frames(r"queue\.py", r"get|put|join", "lock", "wait for a queue"),
    # The network.
    _frames(r"grpc/_\w+\.py", _ANY, "network", "wait for an answer (gRPC)"),
    _frames(
        r"(?:urllib3|requests|httpx|httpcore|aiohttp|botocore|s3transfer|google/cloud/storage)/.*\.py",
        _ANY,
        "network",
        "wait for the network",
    ),
    _frames(r"(?:urllib/request|http/client|ssl|socket|ftplib|smtplib)\.py", _ANY, "network", "wait for the network"),
    _frames(r"socketserver\.py", r"serve_forever", "serve", "serve"),
    _frames(
        r"asyncio/(?:base_events|runners|unix_events)\.py",
        r"run_forever|run_until_complete|run|_run_once",
        "network",
        "wait for events (asyncio)",
    ),
    _frames(r"selectors\.py", r"select", "network", "wait for events"),
)

_DATA_CALLERS = re.compile(
    r"(?:^|/)torch/utils/data/(?:_utils/(?:fetch|worker)|dataset|dataloader|datapipes/.*)\.py$"
    r"|(?:^|/)tensorflow/python/(?:data/ops/.*|ops/script_ops)\.py$"
)
"""Code that calls the user's own code for data."""

_PLAIN_COLLECTIVE = re.compile(
    r"\.(i?all_?reduce\w*|i?all_?gather\w*|i?reduce_?scatter\w*|i?bcast|i?barrier|i?all_?to_?all\w*)\(", re.IGNORECASE
)
_TEAM_OBJECT_CALL = re.compile(rf"\b\w*(?:comm|world|dist|hvd|mpi)\w*(?:\(\))?\.({COLLECTIVES})\(", re.IGNORECASE)
"""Names that tensors have too, as `gather`, count only as calls of an object that is named as a team."""

_CODE_TABLE: tuple[tuple[re.Pattern[str], ActivityKind, str], ...] = (
    (_PLAIN_COLLECTIVE, "team", "wait in {}"),
    (_TEAM_OBJECT_CALL, "team", "wait in {}"),
    (re.compile(r"\bsleep\("), "sleep", "sleep"),
    (re.compile(r"\b(?:flock|lockf)\("), "lock", "wait for a file lock"),
    (re.compile(r"\.acquire\(|\bwith \w*(?:lock|mutex|sem)\w*\b", re.IGNORECASE), "lock", "wait for a lock"),
    (
        re.compile(r"\b\w*(?:thread|worker|proc|process|child|[tp])\d*\.join\(", re.IGNORECASE),
        "process",
        "wait for a thread",
    ),
    (re.compile(r"\bos\.wait\w*\("), "process", "wait for a process of its own"),
    (re.compile(r"\bsignal\.(?:pause|sigwait)\w*\("), "sleep", "sleep"),
    (re.compile(r"\.(?:accept|recv|recv_into|recvfrom|recvmsg)\("), "network", "wait for the network"),
    (re.compile(r"\binput\(|\bstdin\.read"), "lock", "wait for input"),
)
"""What a source line does whose calls are made of C, so that no frame shows them."""

_NATIVE_TABLE: tuple[tuple[re.Pattern[str], ActivityKind, str], ...] = (
    (re.compile(r"^P?(MPI_(?:Init\w*))$"), "join", "wait for the other ranks in {}"),
    (re.compile(r"^P?(MPI_\w+)$"), "team", "wait in {}"),
    (
        re.compile(r"^(ncclAllReduce|ncclAllGather|ncclBroadcast|ncclReduceScatter|ncclSend|ncclRecv)"),
        "team",
        "wait in {}",
    ),
    (
        re.compile(r"\bgloo::(allreduce|allgather|broadcast|barrier|reduce|scatter|gather|alltoall)\w*"),
        "team",
        "wait in {}",
    ),
    (re.compile(r"\bLightGBM::(?:Network|Linkers)::(\w+)"), "team", "wait in {}"),
    (
        re.compile(r"\b(?:rabit|xgboost::collective)::\w*(Allreduce|Broadcast|Allgather)\w*", re.IGNORECASE),
        "team",
        "wait in {}",
    ),
)

NETWORK_WAIT = "wait for the network"
_WAIT_CHANNELS: tuple[tuple[re.Pattern[str], ActivityKind, str], ...] = (
    (re.compile(r"(?:flock|posix|locks?)_lock|locks_lock"), "lock", "wait for a file lock"),
    (re.compile(r"futex"), "lock", "wait for a lock or a thread"),
    (re.compile(r"nanosleep|alarm"), "sleep", "sleep"),
    (re.compile(r"^do_wait|wait4|waitid|kernel_wait"), "process", "wait for a process of its own"),
    (re.compile(r"pipe|fifo"), "lock", "wait for a pipe"),
    (re.compile(r"n_tty|wait_woken.*tty"), "lock", "wait for input"),
    (re.compile(r"sk_wait|inet|tcp|udp|unix_stream|skb|sock|wait_woken"), "network", NETWORK_WAIT),
    (re.compile(r"poll|select|epoll|ep_"), "network", "wait for events"),
    (re.compile(r"sigsuspend|sigtimedwait|pause|do_signal_stop"), "sleep", "wait for a signal"),
    (re.compile(r"nfs|rpc_wait|fuse|ceph|folio|io_schedule|wait_on_page|iomap|blk|bio"), "data", "wait for storage"),
)
"""What a thread waits for by the kernel's function that it sleeps in. The first match counts."""

CLEAR_WAITS = frozenset({"wait for a file lock", "sleep", "wait for storage", "wait for a process of its own"})
DETAILS = frozenset({"team", "join", "lock", "process", "checkpoint"})
"""What says more of a stack than that it reads data."""


def activity(process: ProcessStack, thread: ThreadStack) -> StackActivity:
    """What a thread of a process does."""
    if process.state[:1] in ("T", "t"):
        return StackActivity("stopped", "are stopped (SIGSTOP)")
    if process.state[:1] in ("Z", "X"):
        return StackActivity("ended", "have ended")
    if not thread.frames:
        return _kernel_activity(process, thread)
    return _frame_activity(thread)


def waits_for_network(process: ProcessStack, thread: ThreadStack) -> bool:
    """Whether a thread waits for bytes from somewhere else, and not for its team."""
    doing = activity(process, thread)
    by_kernel = next(_table_matches(_WAIT_CHANNELS, thread.wait_channel), None)
    says_kernel = by_kernel is not None and by_kernel.verb == NETWORK_WAIT
    return doing.verb == NETWORK_WAIT or (says_kernel and doing.kind in ("data", "network", "unknown"))


def _frame_activity(thread: ThreadStack) -> StackActivity:
    own = own_frames(thread.frames)
    # All frames, if an installed package is the program: it may be a launcher that is known.
    at = thread.frames.index(own[0]) if own and is_own(own[0]) else len(thread.frames)
    # The source line counts if all that it calls is C.
    detail = _library_activity(thread.frames[:at])
    if detail is None and own and all(frame.native for frame in thread.frames[:at]):
        detail = _code_activity(own[0], thread)
    if detail is not None and detail.kind == "run":
        # A library that computes and talks to its team within the same call: C or the kernel knows which.
        detail = _native_activity(thread.frames[:at]) or _team_wait(detail, thread) or detail
    detail = detail or _native_activity(thread.frames[:at]) or _waiting_activity(thread)
    reads_data = any(_DATA_CALLERS.search(frame.file) for frame in thread.frames[at:])
    if reads_data and (detail is None or detail.kind not in DETAILS):
        return StackActivity("data", "read data")
    if detail is not None:
        return detail
    python = [frame for frame in thread.frames if not frame.native]
    name = next((short_name(frame) for frame in (*own, *python, *thread.frames)), "")
    name = "the main program" if name == "<module>" else name
    return StackActivity("run", f"run {name}") if thread.active else StackActivity("unknown", f"are in {name}")


def _library_activity(frames: Sequence[Frame]) -> StackActivity | None:
    """What the library does that the user's code called: the call nearest to the user's code says it best."""
    for frame in reversed(frames):
        for pattern in _TABLE:
            if (
                not frame.native
                and pattern.path.search(frame.file)
                and pattern.functions.match(name := short_name(frame))
            ):
                return StackActivity(pattern.kind, pattern.verb.replace("{}", name.strip("_")))
    return None


def _code_activity(frame: Frame, thread: ThreadStack) -> StackActivity | None:
    """What the source line does. If it does several things, the kernel knows which of them it is at."""
    matches = list(_table_matches(_CODE_TABLE, frame.code))
    by_kernel = next(_table_matches(_WAIT_CHANNELS, thread.wait_channel), None)
    at = [match for match in matches if by_kernel is not None and match.kind == by_kernel.kind]
    return next(iter(at or matches), None)


def _native_activity(frames: Sequence[Frame]) -> StackActivity | None:
    named = (short_name(frame) for frame in reversed(frames) if frame.native)
    return next((match for name in named for match in _table_matches(_NATIVE_TABLE, name)), None)


def _team_wait(detail: StackActivity, thread: ThreadStack) -> StackActivity | None:
    """A call of a library that waits for the network: the library's own, as boosters have it, leads to its team."""
    waits = next(_table_matches(_WAIT_CHANNELS, thread.wait_channel), None)
    if thread.active or waits is None or waits.verb != NETWORK_WAIT or not detail.verb.startswith("are in "):
        return None
    return StackActivity("team", f"wait in {detail.verb.removeprefix('are in ')}")


def _waiting_activity(thread: ThreadStack) -> StackActivity | None:
    """What an idle thread in C code waits for, where the kernel's word is clear: a futex may be anything."""
    detail = next(_table_matches(_WAIT_CHANNELS, thread.wait_channel), None) if not thread.active else None
    return detail if detail is not None and detail.verb in CLEAR_WAITS else None


def _kernel_activity(process: ProcessStack, thread: ThreadStack) -> StackActivity:
    if thread.active or process.state[:1] == "R":
        return StackActivity("run", "use the CPU")
    if process.state[:1] == "D":
        return next(_table_matches(_WAIT_CHANNELS[-1:], thread.wait_channel), StackActivity("data", "wait for storage"))
    waiting = next(_table_matches(_WAIT_CHANNELS, thread.wait_channel), None)
    return waiting or StackActivity("unknown", "wait")


def _table_matches(table: Sequence[tuple[re.Pattern[str], ActivityKind, str]], text: str) -> Iterator[StackActivity]:
    for pattern, kind, verb in table:
        match = pattern.search(text) if text else None
        if match is not None:
            yield StackActivity(kind, verb.replace("{}", match[1] if pattern.groups else ""))
