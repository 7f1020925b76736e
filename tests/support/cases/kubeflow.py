"""Scenarios of jobs, the recorded results of the Kubeflow training operator, and their comparison.

A scenario is a YAML file: `job`, the object to create, and `steps`, a list of one-key maps. After the creation and after
each step the world is left to settle, and what is there is one shot (tests/support/cases/kubeflow_play.py). The folder has

    scenarios/NAME.yaml     what is played
    golden/NAME.json.xz     the shots of the training operator
    known.txt               where being different is right: a prefix of places, `#`, a defect of contract.md section 10
"""

import json
import lzma
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from support.yaml_files import load_yaml

DATA_FOLDER = Path(__file__).parents[2] / "data" / "drop-in"
MPI_V2_FOLDER = DATA_FOLDER.with_name("mpi-v2beta1")  # the same of mpi-operator, for MPIJobs of kubeflow.org/v2beta1

# For people: texts, which events there were, and a selector that the peer writes at random (contract.md, appendix).
IGNORED_PLACES = re.compile(r"(\.message$|\.events|\.selector$)")

# The peer writes the ports of a service in random order (contract.md, 3.2).
PORT_LISTS = re.compile(r"\.services/[^.]*\.spec\.ports$")


class Scenario(NamedTuple):
    """A scenario: a job, and the steps played on it."""

    name: str
    job: Any
    steps: Sequence[Any]

    @property
    def wait_seconds(self) -> float:
        """The total seconds of its `wait` steps."""
        return float(sum(step.get("wait", 0) for step in self.steps))


class Difference(NamedTuple):
    """A path such as `tf-ttl[2].job.completed`, and the value on either side."""

    place: str
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.place}: {json.dumps(self.theirs)[:160]} != {json.dumps(self.ours)[:160]}"


class ExpectedDifference(NamedTuple):
    """Differences below this path are intended. One that begins with `*` is a pattern, of places in every scenario."""

    prefix: str
    reason: str

    @property
    def everywhere(self) -> bool:
        return self.prefix.startswith("*")

    def covers(self, place: str) -> bool:
        return fnmatchcase(place, f"{self.prefix}*") if self.everywhere else place.startswith(self.prefix)


def load_scenarios(folder: Path = DATA_FOLDER / "scenarios") -> list[Scenario]:
    return [load_scenario(file) for file in sorted(folder.glob("*.yaml"))]


def load_scenario(file: Path) -> Scenario:
    content = load_yaml(file.read_text())
    return Scenario(file.stem, content["job"], content.get("steps") or [])


def load_golden(name: str, folder: Path = DATA_FOLDER / "golden") -> list[Any]:
    """The recorded shots, one more than there are steps."""
    shots: list[Any] = json.loads(lzma.decompress((folder / f"{name}.json.xz").read_bytes()))
    return shots


def save_golden(name: str, shots: list[Any], folder: Path = DATA_FOLDER / "golden") -> None:
    text = json.dumps(shots, indent=1, sort_keys=True)
    (folder / f"{name}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))


def expected_differences(file: Path = DATA_FOLDER / "known.txt") -> list[ExpectedDifference]:
    lines = (line.partition("#") for line in file.read_text().splitlines())
    return [ExpectedDifference(prefix.strip(), why.strip()) for prefix, _, why in lines if prefix.strip()]


def differences(name: str, theirs: Any, ours: Any) -> list[Difference]:
    """All differences that count, below the path `name`."""
    places = (Difference(name + at, one, other) for at, one, other in _compare(theirs, ours, ""))
    return [place for place in places if not IGNORED_PLACES.search(place.place)]


def unexpected_differences(places: Iterable[Difference], meant: Iterable[ExpectedDifference]) -> list[Difference]:
    """The differences that are not intended."""
    expected = list(meant)
    return [place for place in places if not any(one.covers(place.place) for one in expected)]


def is_settled(at: str, places: Iterable[Difference], meant: Iterable[ExpectedDifference]) -> bool:
    """Whether the shot at that place, such as `tf-ttl[2]`, is all that it will be: what is meant to differ does, no more."""
    found = list(places)
    awaited = (one.prefix for one in meant if one.prefix.startswith(at))
    there = all(any(place.place.startswith(prefix) for place in found) for prefix in awaited)
    return there and not unexpected_differences(found, meant)


def _compare(one: Any, other: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if key in one and key in other:
                yield from _compare(one[key], other[key], f"{at}.{key}")
            else:
                yield f"{at}.{key}", one.get(key), other.get(key)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        if PORT_LISTS.search(at):
            one, other = (sorted(ports, key=lambda port: str(port.get("name"))) for ports in (one, other))
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _compare(left, right, f"{at}[{index}]")
    elif one != other and not _same_json(one, other):
        yield at, one, other


def _same_json(one: Any, other: Any) -> bool:
    """Text that is JSON, such as TF_CONFIG, is compared by its decoded value."""
    if not (isinstance(one, str) and isinstance(other, str) and one[:1] in ("{", "[")):
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False
