"""Plays drop-in scenarios against an operator on a real API server of its own.

    python hack/dropin.py check [NAME...] [--operator gangline|peer|lifted]   print every difference; exit 1 if there is one
    python hack/dropin.py record NAME...                                      write what the peer makes of them
    python hack/dropin.py random --api v2beta1 [--seed 1] [--count 20]        play random jobs with both, and compare

The scenarios are those of kubeflow.org/v1 (tests/data/drop-in), whose peer is the training operator, or with
`--api v2beta1` those of MPIJobs (tests/data/mpi-v2beta1), whose peer is mpi-operator. hack/kubernetes.sh, hack/peer.sh and
hack/mpi-operator.sh build what it needs. The training operator is slow, so few are played at once with it.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gangline.base.clock import SystemClock
from support.cases import kubeflow
from support.cases.kubeflow import Scenario
from support.cases.kubeflow_play import (
    CHECK_TIMES,
    JOB_PATHS,
    MPI_V2_PATHS,
    RECORD_TIMES,
    SettleTimes,
    scenario_player,
)
from support.cases.mpi_random import random_scenarios
from support.cluster.operators import (
    GANGLINE_MPI_V2,
    GANGLINE_OPERATOR,
    KUBEFLOW,
    KUBEFLOW_LIFTED,
    MPI_OPERATOR,
    OperatorProgram,
    run_operator,
)
from support.servers.real import RealServer

SLOW = SettleTimes(quiet_seconds=1.5)


class Suite(NamedTuple):
    """Scenarios with their recordings, and the operators that can play them."""

    folder: Path
    operators: Mapping[str, OperatorProgram]
    job_paths: Mapping[str, str]


SUITES = {
    "v1": Suite(
        kubeflow.DATA_FOLDER,
        {"gangline": GANGLINE_OPERATOR, "peer": KUBEFLOW, "lifted": KUBEFLOW_LIFTED},
        JOB_PATHS,
    ),
    "v2beta1": Suite(kubeflow.MPI_V2_FOLDER, {"gangline": GANGLINE_MPI_V2, "peer": MPI_OPERATOR}, MPI_V2_PATHS),
}


def main() -> int:
    asked = _arguments()
    suite = SUITES[asked.api]
    if asked.what == "random":
        return compare_random(suite, asked)
    scenarios = kubeflow.load_scenarios(suite.folder / "scenarios")
    chosen = [one for one in scenarios if not asked.names or one.name in asked.names]
    operator = suite.operators[asked.operator]
    missing = operator.missing()
    if missing:
        print(missing, file=sys.stderr)
        return 2
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gangline-drop-in-") as folder:
        found = play(suite, chosen, asked, Path(folder))
        if asked.log:
            for log in Path(folder).glob("operator/*.log"):
                asked.log.write_bytes(log.read_bytes())
    print(f"played {len(found)} in {time.perf_counter() - began:.0f} s")
    if asked.what == "record":
        for name, shots in found.items():
            kubeflow.save_golden(name, shots, asked.golden)
        return 0
    return report(found, asked.golden, _known_differences(suite, asked))


def _known_differences(suite: Suite, asked: argparse.Namespace) -> list[kubeflow.ExpectedDifference]:
    return kubeflow.expected_differences(suite.folder / "known.txt") if asked.operator == "gangline" else []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=("check", "record", "random"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--api", choices=SUITES, default="v1")
    parser.add_argument("--operator", choices=("gangline", "peer", "lifted"))
    parser.add_argument("--at-once", type=int, help="how many are played at once (64; with the peer 6)")
    parser.add_argument("--golden", type=Path, help="where recordings are")
    parser.add_argument("--log", type=Path, help="keep the operator's log there")
    parser.add_argument("--seed", type=int, default=1, help="of random jobs")
    parser.add_argument("--count", type=int, default=20, help="how many random jobs")
    asked = parser.parse_args()
    if asked.what == "random" and asked.api != "v2beta1":
        parser.error("there are random jobs of --api v2beta1 only")
    if asked.what == "record" and asked.operator == "gangline":
        parser.error("what gangline makes is not what it is held against")
    asked.operator = asked.operator or ("gangline" if asked.what == "check" else "peer")
    if asked.operator not in SUITES[asked.api].operators:
        parser.error(f"--operator {asked.operator} does not serve {asked.api}")
    asked.golden = asked.golden or SUITES[asked.api].folder / "golden"
    asked.at_once = asked.at_once or (64 if asked.operator == "gangline" else 6)
    return asked


Case = tuple[Scenario, list[object] | None]
"""A scenario, and the shots to expect if they are known."""


def play(suite: Suite, chosen: list[Scenario], asked: argparse.Namespace, folder: Path) -> dict[str, list[object]]:
    record = asked.what == "record"
    patience = RECORD_TIMES if record else CHECK_TIMES if asked.operator == "gangline" else SLOW
    cases: list[Case] = [(one, None if record else kubeflow.load_golden(one.name, asked.golden)) for one in chosen]
    known = _known_differences(suite, asked)
    return play_cases(suite, asked.operator, cases, patience, known, asked.at_once, folder)


def play_cases(
    suite: Suite,
    operator: str,
    cases: list[Case],
    patience: SettleTimes,
    known: list[kubeflow.ExpectedDifference],
    at_once: int,
    folder: Path,
) -> dict[str, list[object]]:
    """The shots of each scenario, with an operator on a server of its own."""

    async def all_of_them() -> dict[str, list[object]]:
        async with scenario_player(server, SystemClock(), known, suite.job_paths) as player:
            return await player.play_all(cases, patience, at_once)

    with (
        RealServer(directory=folder / "server") as server,
        run_operator(suite.operators[operator], server, folder / "operator"),
    ):
        server.start_controller_manager()  # now that it can see the jobs
        return asyncio.run(all_of_them())


def compare_random(suite: Suite, asked: argparse.Namespace) -> int:
    """Play the same random jobs with the peer, then with gangline, and print the differences."""
    scenarios = random_scenarios(asked.seed, asked.count)
    known = [one for one in kubeflow.expected_differences(suite.folder / "known.txt") if one.everywhere]
    with tempfile.TemporaryDirectory(prefix="gangline-drop-in-") as folder:
        cases: list[Case] = [(one, None) for one in scenarios]
        theirs = play_cases(suite, "peer", cases, RECORD_TIMES, known, asked.at_once, Path(folder) / "peer")
        cases = [(one, theirs[one.name]) for one in scenarios]
        ours = play_cases(suite, "gangline", cases, CHECK_TIMES, known, asked.at_once, Path(folder) / "gangline")
    differing = 0
    for name, shots in sorted(ours.items()):
        places = kubeflow.unexpected_differences(kubeflow.differences(name, theirs[name], shots), known)
        differing += bool(places)
        for place in places:
            print(place)
    print(f"{len(ours) - differing} of {len(ours)} random jobs the same")
    return 1 if differing else 0


def report(found: dict[str, list[object]], golden: Path, meant: list[kubeflow.ExpectedDifference]) -> int:
    same = 0
    for name, shots in sorted(found.items()):
        places = kubeflow.differences(name, kubeflow.load_golden(name, golden), shots)
        unmeant = kubeflow.unexpected_differences(places, meant)
        same += not unmeant
        for place in unmeant:
            print(place)
    print(f"{same} of {len(found)} scenarios the same")
    return 0 if same == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
