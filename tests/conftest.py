"""Fixtures and rules for every test."""

import asyncio
import gc
import logging
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import NoReturn

import hypothesis
import psutil
import pytest

from gangline.base.host_features import PORTABLE_VARIABLE
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets

# Some machines forbid bytecode. But these tests start Python hundreds of times, and without it every start compiles
# hundreds of modules: most of what many tests would take.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Whoever imports aiohttp reads all the authorities that this machine trusts: a tenth of what a short command takes. No
# test talks to anybody outside, and servers of tests have authorities of their own.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)
# And numpy starts a thread for each core, in every member of a job.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Texts name the command as the shell can run it; a shell in which this environment is activated runs `gangline`.
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))

# What a shell starts in its background ignores Ctrl-C, and so would all that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a test that starts processes or a plane waits for them, and a core is idle."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len(allowed) + 1


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are made here and live to the end: Python need not look through them for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


# How long an example takes says something about the machine only. What decides whether a change lands is the same every
# time (.ci/run). People's runs look further: everyone's are others.
NO_DEADLINE = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("other", NO_DEADLINE)
hypothesis.settings.register_profile("same", NO_DEADLINE, derandomize=True, database=None)
hypothesis.settings.load_profile(os.environ.get("GANGLINE_EXAMPLES", "other"))


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker and xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the real server is marked so, and runs on one worker: that one starts one server."""
    for item in items:
        if isinstance(item, pytest.Function) and "real_server" in item.fixturenames:
            item.add_marker(pytest.mark.real)
            item.add_marker(pytest.mark.xdist_group("real"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped, and why: one line for each reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.items():
        terminalreporter.write_line(f"skipped {count}: {reason}")


@pytest.fixture(scope="session", autouse=True)
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads what the user's own runs left, or leaves anything among it."""
    os.environ["GANGLINE_HOME"] = str(tmp_path_factory.mktemp("home"))


@pytest.fixture(params=["linux", "portable"])
def each_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs twice: as on Linux, and with what only Linux has switched off, as on macOS."""

    def forbidden(process: psutil.Process) -> NoReturn:
        raise psutil.AccessDenied(process.pid)

    host = str(request.param)
    if host == "portable":
        monkeypatch.setenv(PORTABLE_VARIABLE, "1")
        monkeypatch.setattr(psutil.Process, "memory_full_info", forbidden)
    return host


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A running kube-apiserver, shared by the session. Tests keep apart by namespace (`real_namespace`).

    A test may kill, restart or suspend it, and leaves it running.
    """
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    with RealServer(directory=tmp_path_factory.mktemp("real")) as server:
        yield server


@pytest.fixture
def real_namespace(real_server: RealServer) -> str:
    """The name of a new namespace on the real server, which is well even if an earlier test broke it."""
    real_server.revive()
    name = f"test-{uuid.uuid4().hex[:12]}"
    answer = real_server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert answer.status == 201, answer.body
    return name


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A command that is run in this process sets logging up as for a process of its own; the next test has none of it."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(autouse=True)
def no_leaked_tasks(request: pytest.FixtureRequest) -> None:
    """Every asynchronous test ends with no task but its own. First to be set up, so last to look."""
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("leaked_tasks_fail_the_test")


@pytest.fixture
async def leaked_tasks_fail_the_test() -> AsyncIterator[None]:
    """Looks at the loop of the test after the test's other fixtures are torn down."""
    before = asyncio.all_tasks()
    yield
    leaked = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not leaked, f"tasks outlived the test: {sorted(map(repr, leaked))}"
