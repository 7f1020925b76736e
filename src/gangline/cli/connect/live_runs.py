"""Runs that go on, on this machine: how another command finds the plane of a `gangline run`.

The plane is the run's own and goes with it, so its kubeconfig is in the run's own temporary folder, which goes with it
too, even if the run is killed. Only its owner can read it.
"""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from gangline.api.meta import Key
from gangline.base.files import write_private
from gangline.kube.config.access import PlaneAccess
from gangline.kube.config.connection import Connection
from gangline.local.paths import home_folder

KUBECONFIG_NAME = "run.kubeconfig"
JOBS_EXTENSION = "gangline.dev/jobs"


class LiveRun(NamedTuple):
    """A run that goes on, and its jobs."""

    kubeconfig: Path
    jobs: frozenset[Key]


async def publish_kubeconfig(state: Path, plane: Connection, jobs: Iterable[Key]) -> None:
    """Leave word in a run's folder of where its plane is."""
    token = (await plane.credentials.headers()).get("Authorization", "").removeprefix("Bearer ")
    config = PlaneAccess(plane.server, token).kubeconfig()
    names = [str(job) for job in jobs]
    config["extensions"] = [{"name": JOBS_EXTENSION, "extension": {"jobs": names, "home": str(home_folder(None))}}]
    write_private(state / KUBECONFIG_NAME, json.dumps(config).encode())


def live_runs(home: Path | None = None) -> Iterator[LiveRun]:
    """Those of this user, newest first: of the state folder that is meant, by default the user's own."""
    mine = str(home_folder(home))
    found = Path(tempfile.gettempdir()).glob(f"gangline-*/{KUBECONFIG_NAME}")
    for file in sorted(found, key=_modified_at, reverse=True):
        try:
            # Anybody may make a folder of that name.
            if file.parent.stat().st_uid != os.getuid():
                continue
            config = json.loads(file.read_bytes())
            told = config["extensions"][0]["extension"]
            if told["home"] == mine:
                yield LiveRun(file, frozenset(Key(*name.split("/", 1)) for name in told["jobs"]))
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            continue


def _modified_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def find_run_kubeconfig(namespace: str, name: str, home: Path | None = None) -> Path | None:
    """The kubeconfig of the run that has a job of that name, if one has."""
    return next((run.kubeconfig for run in live_runs(home) if Key(namespace, name) in run.jobs), None)
