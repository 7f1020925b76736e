"""Live runs: how another command finds the control plane of a `gangline run` in progress.

The plane ends with its run. So its kubeconfig is in the run's temporary folder, which is removed with the run, even if
the run is killed. Only its owner can read it.
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
from gangline.local.paths import home_folder

KUBECONFIG_NAME = "run.kubeconfig"
JOBS_EXTENSION = "gangline.dev/jobs"


class LiveRun(NamedTuple):
    """A run in progress, and its jobs."""

    kubeconfig: Path
    jobs: frozenset[Key]


def publish_kubeconfig(state: Path, access: PlaneAccess, jobs: Iterable[Key]) -> None:
    """Write the kubeconfig of a run's plane, with the names of the run's jobs, into the run's folder."""
    config = access.kubeconfig()
    names = [str(job) for job in jobs]
    config["extensions"] = [{"name": JOBS_EXTENSION, "extension": {"jobs": names, "home": str(home_folder(None))}}]
    write_private(state / KUBECONFIG_NAME, json.dumps(config).encode())


def live_runs(home: Path | None = None) -> Iterator[LiveRun]:
    """The runs of this user that belong to a state folder (by default the user's own), newest first."""
    state_folder = str(home_folder(home))
    files = Path(tempfile.gettempdir()).glob(f"gangline-*/{KUBECONFIG_NAME}")
    for file in sorted(files, key=_modified_at, reverse=True):
        try:
            # Any user may create a folder of that name.
            if file.parent.stat().st_uid != os.getuid():
                continue
            config = json.loads(file.read_bytes())
            extension = config["extensions"][0]["extension"]
            if extension["home"] == state_folder:
                yield LiveRun(file, frozenset(Key(*name.split("/", 1)) for name in extension["jobs"]))
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            continue


def _modified_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def find_run_kubeconfig(namespace: str, name: str, home: Path | None = None) -> Path | None:
    """The kubeconfig of the newest run with a job of that name, if there is one."""
    return next((run.kubeconfig for run in live_runs(home) if Key(namespace, name) in run.jobs), None)
