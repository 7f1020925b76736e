"""What a thread does, in words."""

import pytest

from gangline.stacks.activities import activity
from gangline.stacks.frames import location, own_frames, short_path
from gangline.stacks.model import Frame
from support.builders.stacks import LIB, SITE, all_reduce, frame, own_stack, process, reading


def words(*frames: Frame, active: bool = False, state: str = "S") -> str:
    one = process(frames, active=active, state=state)
    return activity(one, one.threads[0]).text()


@pytest.mark.parametrize(
    ("function", "file", "text"),
    [
        ("all_reduce", "torch/distributed/distributed_c10d.py", "waits in all_reduce"),
        ("monitored_barrier", "torch/distributed/distributed_c10d.py", "waits in monitored_barrier"),
        (
            "init_process_group",
            "torch/distributed/distributed_c10d.py",
            "waits for the other ranks in init_process_group",
        ),
        ("initialize", "jax/_src/distributed.py", "waits for the other ranks to join"),
        ("sync_global_devices", "jax/experimental/multihost_utils.py", "waits in sync_global_devices"),
        ("synchronize", "horovod/torch/mpi_ops.py", "waits in synchronize"),
        ("_MultiProcessingDataLoaderIter._try_get_data", "torch/utils/data/dataloader.py", "waits for data"),
        ("save", "torch/serialization.py", "writes a checkpoint"),
        ("backend_compile", "jax/_src/compiler.py", "compiles"),
        ("acquire", "filelock/_api.py", "waits for a file lock"),
        ("_blocking", "grpc/_channel.py", "waits for an answer (gRPC)"),
        ("_engine_run_backward", "torch/autograd/graph.py", "is in backward"),
    ],
)
def test_library_calls(function: str, file: str, text: str) -> None:
    assert words(frame(function, f"{SITE}/{file}", 7), *own_stack()) == text


@pytest.mark.parametrize(
    ("function", "file", "text"),
    [
        ("wait", "subprocess.py", "waits for a subprocess"),
        ("join", "threading.py", "waits for a thread"),
        ("Queue.get", "queue.py", "waits for a queue"),
        ("result", "concurrent/futures/_base.py", "waits for a future"),
        ("readinto", "socket.py", "waits for the network"),
        ("recv", "multiprocessing/connection.py", "waits for another process"),
    ],
)
def test_calls_of_the_standard_library(function: str, file: str, text: str) -> None:
    assert words(frame(function, f"{LIB}/{file}", 7), *own_stack()) == text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("total = comm.allreduce(loss)", "waits in allreduce"),
        ("MPI.COMM_WORLD.Barrier()", "waits in Barrier"),
        ("comm.send(x, dest=1)", "waits in send"),
        ("time.sleep(3600)", "sleeps"),
        ("fcntl.flock(file, fcntl.LOCK_EX)", "waits for a file lock"),
        ("with lock:", "waits for a lock"),
        ("connection, _ = server.accept()", "waits for the network"),
        ("x = logits.gather(1, index)", "is in step"),
        ("", "is in step"),
    ],
)
def test_calls_into_c_are_read_from_the_source_line(code: str, text: str) -> None:
    assert words(*own_stack(code=code)) == text


@pytest.mark.parametrize(
    ("channel", "text"),
    [("futex_wait_queue", "waits for a lock"), ("hrtimer_nanosleep", "sleeps"), ("", "sleeps")],
)
def test_of_a_line_with_several_calls_the_kernel_knows_the_one_that_waits(channel: str, text: str) -> None:
    one = process(own_stack(code="first.acquire(); time.sleep(1); second.acquire()"), channel=channel)
    assert activity(one, one.threads[0]).text() == text


def test_data_is_read_whatever_the_dataset_does_meanwhile() -> None:
    socket = frame("readinto", f"{LIB}/socket.py", 700)
    assert words(socket, *reading()) == "reads data"
    lock = frame("acquire", f"{SITE}/filelock/_api.py", 700)
    assert words(lock, *reading()) == "waits for a file lock"


def test_native_frames_name_the_call() -> None:
    native = Frame("PMPI_Allreduce", "libmpi.so.40", 0, "libmpi.so.40", native=True)
    inner = Frame("opal_progress", "libopen-pal.so.40", 0, "libopen-pal.so.40", native=True)
    assert words(inner, native, *own_stack(), active=True) == "waits in MPI_Allreduce"


def test_the_source_line_says_more_than_what_it_calls_in_c() -> None:
    native = Frame("MPI_PyMPI_reduce_p2p", "MPI.so", 0, "MPI.so", native=True)
    assert words(native, *own_stack(code="return comm.allreduce(n)")) == "waits in allreduce"


def test_a_stack_that_says_nothing_names_the_function() -> None:
    assert words(*own_stack(), active=True) == "runs step"
    assert words(frame("<module>"), active=False) == "is in the main program"


@pytest.mark.parametrize(
    ("state", "channel", "text"),
    [
        ("R", "", "uses the CPU"),
        ("S", "hrtimer_nanosleep", "sleeps"),
        ("S", "do_wait", "waits for a process of its own"),
        ("S", "flock_lock_inode_wait", "waits for a file lock"),
        ("S", "futex_wait_queue", "waits for a lock or a thread"),
        ("S", "ep_poll", "waits for events"),
        ("S", "poll_schedule_timeout.constprop.0", "waits for events"),
        ("S", "sk_wait_data", "waits for the network"),
        ("D", "rpc_wait_bit_killable", "waits for storage"),
        ("D", "", "waits for storage"),
        ("T", "do_signal_stop", "is stopped (SIGSTOP)"),
        ("Z", "", "has ended"),
        ("S", "", "waits"),
    ],
)
def test_programs_without_frames_are_read_from_the_kernel(state: str, channel: str, text: str) -> None:
    one = process(source="proc", state=state, channel=channel)
    assert activity(one, one.threads[0]).text() == text


def test_a_call_of_c_that_nothing_else_names_is_read_from_the_kernel() -> None:
    one = process(own_stack(), channel="flock_lock_inode_wait")
    assert activity(one, one.threads[0]).text() == "waits for a file lock"
    # A library may wait for anything with a futex.
    one = process(own_stack(), channel="futex_wait_queue")
    assert activity(one, one.threads[0]).text() == "is in step"


def test_a_booster_that_waits_for_the_network_waits_for_its_team() -> None:
    update = frame("update", f"{SITE}/lightgbm/basic.py", 4266)
    one = process((update, *own_stack()), channel="wait_woken")
    assert activity(one, one.threads[0]).text() == "waits in update"
    one = process((update, *own_stack()), active=True)
    assert activity(one, one.threads[0]).text() == "is in update"
    native = Frame("LightGBM::Linkers::Recv", "lib_lightgbm.so", 0, "lib_lightgbm.so", native=True)
    assert words(native, update, *own_stack()) == "waits in Recv"


def test_a_program_that_starts_imports_modules() -> None:
    loading = frame("_find_and_load", "<frozen importlib._bootstrap>", 1176)
    torch = frame("<module>", f"{SITE}/torch/__init__.py", 3)
    assert words(torch, loading, frame("<module>", line=2), active=True) == "imports modules"


def test_a_stopped_program_is_stopped_wherever_it_stands() -> None:
    assert words(*all_reduce(), state="T") == "is stopped (SIGSTOP)"


def test_own_frames_are_those_of_no_library() -> None:
    assert [location(one) for one in own_frames(reading())] == ["data.py:31", "train.py:70", "train.py:120"]
    started = (
        frame("fit", f"{SITE}/trainer/loop.py", 3),
        frame("main", f"{SITE}/trainer/cli.py", 2),
        frame("<module>", "/venv/bin/train", 8),
    )
    assert [location(one) for one in own_frames(started)] == ["loop.py:3", "cli.py:2"]
    assert own_frames((frame("_bootstrap", f"{LIB}/threading.py", 9),)) == ()
    assert own_frames((frame("f", "<string>", 3),)) == (frame("f", "<string>", 3),)
    assert own_frames((frame("_run_module_as_main", "<frozen runpy>", 3),)) == ()


def test_paths_are_shown_without_what_is_the_same_everywhere() -> None:
    assert short_path(f"{SITE}/torch/nn/modules/module.py") == "torch/nn/modules/module.py"
    assert short_path(f"{LIB}/multiprocessing/process.py") == "multiprocessing/process.py"
    assert short_path("/code/train.py") == "/code/train.py"
