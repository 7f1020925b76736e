"""One slow or broken job never delays the others: how long twenty small jobs take alone, beside a huge one, and beside
one whose pods are all refused."""

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.joblife import Namespace, namespace, post_all, session_of
from bench.measure import Figures, median, seconds, show, times

from support.cluster.operators import OperatorProgram, run_operator
from support.servers.real import RealServer

KIND = "PyTorchJob"  # of a huge TFJob every pod names all the others: that would measure the disk
SMALL, PODS, HUGE = 20, 2, 2_000
ALONE, SLOW, BROKEN = "alone", f"beside one of {HUGE:,} pods", "beside one over its quota"
CASES = (ALONE, SLOW, BROKEN)


def measure(folder: Path, sides: Sequence[OperatorProgram], rounds: int, patience: float) -> Figures:
    """Seconds until all small jobs run, by side and by case."""
    found: dict[str, dict[str, list[float | None]]] = {side.name: {case: [] for case in CASES} for side in sides}
    for turn in range(rounds):
        for side in sides if turn % 2 == 0 else list(reversed(sides)):
            for case in CASES:
                taken = _run(side, case, Path(tempfile.mkdtemp(prefix="run-", dir=folder)), patience)
                found[side.name][case].append(taken)
                shown = "not at all" if taken is None else seconds(taken)
                print(f"  small jobs {case}, round {turn + 1}, {side.name}: {shown}", flush=True)
    return {name: {case: _middle(many) for case, many in one.items()} for name, one in found.items()}


def _middle(many: Sequence[float | None]) -> float | None:
    return None if None in many else median(value for value in many if value is not None)


def _run(side: OperatorProgram, case: str, folder: Path, patience: float) -> float | None:
    with RealServer(directory=folder / "server", durable=True) as server, run_operator(side, server, folder):
        return asyncio.run(_measure(server, case, patience))


async def _measure(server: RealServer, case: str, patience: float) -> float | None:
    async with (
        session_of(server, server.token) as session,
        namespace(session, "small", KIND) as small,
        namespace(session, "other", KIND) as other,
    ):
        await small.submit(["warm"], PODS)
        await small.wait_for(lambda: "warm" in small.jobs_running, patience)
        await _disturb(session, other, case, patience)
        names = [f"job-{number:02d}" for number in range(SMALL)]
        began = time.perf_counter()
        await small.submit(names, PODS)
        if not await small.wait_for(lambda: all(name in small.jobs_running for name in names), patience):
            return None
        return max(small.jobs_running[name] for name in names) - began


async def _disturb(session: Any, other: Namespace, case: str, patience: float) -> None:
    """The other job is already being worked on when the small ones come."""
    if case == SLOW:
        await other.submit(["huge"], HUGE)
        await other.wait_for(lambda: len(other.created) > 0, patience)
    elif case == BROKEN:
        await _forbid_pods(session, other.name)
        await other.submit(["broken"], 50)
        await asyncio.sleep(1)  # it has been refused by now, a few times


async def _forbid_pods(session: Any, where: str) -> None:
    """A quota of no pods. Its status is a controller's work, which we do here: there is none."""
    path, hard = f"/api/v1/namespaces/{where}/resourcequotas", {"pods": "0"}
    body = {"metadata": {"name": "none"}, "spec": {"hard": hard}}
    await post_all(session, [(path, json.dumps(body).encode())])
    headers = {"Content-Type": "application/merge-patch+json"}
    status = json.dumps({"status": {"hard": hard, "used": {"pods": "0"}}})
    async with session.patch(f"{path}/none/status", data=status, headers=headers) as response:
        assert response.status == 200, await response.text()


def report(found: Mapping[str, Mapping[str, float | None]]) -> None:
    rows = []
    for name, one in found.items():
        alone = one[ALONE]
        cells = [seconds(one[case] or 0) if one[case] is not None else "-" for case in CASES]
        ratios = [times(value / alone) if alone and (value := one[case]) is not None else "-" for case in CASES[1:]]
        rows.append((name, *cells, *ratios))
    head = ("", *CASES, "slow/alone", "broken/alone")
    show(f"{SMALL} {KIND}s of {PODS} pods, until all run", head, rows)
