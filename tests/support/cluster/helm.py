"""The real Helm, built by hack/helm.sh."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from support.requirements import skip_or_fail
from support.servers.real import cache_dir

HELM_VERSION = "3.22.0"  # as in hack/helm.sh
CHART = Path(__file__).parents[3] / "charts" / "gangline"


def find_helm() -> Path:
    """The program. Skips the test where it was not built."""
    found = cache_dir().parents[1] / "helm" / HELM_VERSION / "helm"
    if not os.access(found, os.X_OK):
        skip_or_fail("Helm not found: run hack/helm.sh")
    return found


class Helm:
    """Helm with folders of its own, on a cluster if it has a kubeconfig."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._program = find_helm()
        self._folder = folder
        homes = {f"HELM_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        self._env = {**os.environ, **homes, "KUBECONFIG": str(kubeconfig or os.devnull)}

    def __call__(self, *arguments: str | Path, values: JSON | None = None) -> str:
        """What a command prints. It must succeed."""
        done = self.run(*arguments, values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *arguments: str | Path, values: JSON | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, with values on its standard input."""
        command: list[str] = [str(self._program), *map(str, arguments)]
        if values is not None:
            command += ["--values", "-"]
        text = None if values is None else json.dumps(values, ensure_ascii=False)
        return subprocess.run(
            command, input=text, capture_output=True, text=True, env=self._env, cwd=CHART.parents[1], timeout=120
        )

    def template(self, values: JSON, name: str = "gangline", namespace: str = "gangline") -> list[JSON]:
        """The objects that the chart has for some values, without its tests.

        Raises:
            InputError: what the chart says of values that contradict each other.
        """
        done = self.run("template", name, CHART, "--namespace", namespace, "--skip-tests", values=values)
        if refusal := re.search(r"execution error at \(gangline/templates/requirements.yaml:\S+\): (.+)", done.stderr):
            raise InputError(refusal[1])
        assert done.returncode == 0, done.stderr
        return documents(done.stdout)


def documents(text: str) -> list[JSON]:
    """The objects of a YAML stream."""
    loaded: Sequence[Any] = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    return [one for one in loaded if one is not None]


def by_identity(objects: Iterable[JSON]) -> dict[str, JSON]:
    """Objects by what they are; Helm prints them in an order of its own."""
    return {f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}": one for one in objects}
