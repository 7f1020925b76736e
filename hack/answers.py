"""Records what a real kube-apiserver answers to the requests in tests/data/answers, for tests/contract/test_answers.py.

    python hack/answers.py    needs hack/kubernetes.sh to have run, and the API oracle beside the project; two minutes

Every case is played twice on a real server and once on ours. An answer is kept where all three are the same; the other
steps are printed.
"""

import asyncio
import json
import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gangline.apiserver.store.store import Store  # noqa: E402
from gangline.base.clock import SystemClock  # noqa: E402
from gangline.local.plane import PlaneSettings, control_plane  # noqa: E402
from support.cases.answers import RECORDED, recorded_cases  # noqa: E402
from support.cases.apiserver import ApiOracle, OraclePlayer, oracle_session  # noqa: E402
from support.servers import real  # noqa: E402

ORACLE = ROOT.parent / "shared" / "api-oracle"
# Those of the oracle's own recordings.
real.CONTROLLERS = "garbage-collector-controller,namespace-controller,serviceaccount-controller,root-ca-certificate-publisher-controller"


async def _play(url: str, token: str, ca: Path) -> dict[str, list[Any]]:
    shots: dict[str, list[Any]] = {}
    async with oracle_session(url, token, ca) as session:
        player, turns = OraclePlayer(ApiOracle(ORACLE), session, SystemClock()), asyncio.Semaphore(6)

        async def play(name: str, case: Any) -> None:
            async with turns:
                shots[name] = json.loads(json.dumps(await player.play(case)))

        async with asyncio.TaskGroup() as group:
            for name, case in recorded_cases():
                group.create_task(play(name, case))
    return shots


async def _play_ours() -> dict[str, list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        settings = PlaneSettings(
            certificates=Path(folder), warn_on_inert_kinds=False, disabled_admission_plugins=("ServiceAccount",)
        )
        async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
            assert plane.certificates is not None
            return await _play(plane.url, plane.token, plane.certificates.ca)


def main() -> None:
    recordings = []
    for _ in range(2):
        with real.RealServer(controller_manager=True) as server:
            recordings.append(asyncio.run(_play(server.url, server.token, server.ca)))
    ours = asyncio.run(_play_ours())
    first, second = recordings
    answers: dict[str, list[Any]] = {}
    for name in sorted(first):
        answers[name] = []
        for index, shot in enumerate(first[name]):
            is_same = shot == second[name][index] == ours[name][index]
            answers[name].append(shot if is_same else None)
            if not is_same:
                print(f"{name}[{index}] {shot.get('step', 'events')}")
    RECORDED.write_bytes(lzma.compress(json.dumps(answers, sort_keys=True).encode(), preset=9))


if __name__ == "__main__":
    main()
