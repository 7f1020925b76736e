"""The fixtures for pytest need no configuration, and start only when a test uses them."""

import subprocess
import sys
from pathlib import Path

from gangline.api.core import ConfigMap, Namespace, Pod
from gangline.api.meta import Key
from gangline.testing import FakeClock, ThreadedCluster

EXAMPLES = Path(__file__).parents[3] / "examples" / "testing"


def test_a_test_without_an_event_loop_uses_the_cluster(
    gangline_cluster: ThreadedCluster, gangline_namespace: str
) -> None:
    body = {"metadata": {"name": "a"}, "data": {"told": "yes"}}
    gangline_cluster.run(lambda client: client.create(ConfigMap, body, namespace=gangline_namespace))
    stored = gangline_cluster.run(lambda client: client.get(ConfigMap, Key(gangline_namespace, "a")))
    assert stored.data == {"told": "yes"}


async def test_so_does_one_that_has_a_loop(gangline_cluster: ThreadedCluster, gangline_namespace: str) -> None:
    stored = gangline_cluster.run(lambda client: client.get(Namespace, Key("", gangline_namespace)))
    assert stored.metadata.name.startswith("test-so-does-one-that-has-a-loop-")
    assert not gangline_cluster.run(lambda client: client.list(Pod)).items


def test_the_clock_stands_still(fake_clock: FakeClock) -> None:
    assert fake_clock.monotonic() == 0


def outside(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Tests of another project in a folder of their own, without pytest-asyncio, which would need settings."""
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:asyncio",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True)


def test_the_example_passes_as_somebody_elses_tests(tmp_path: Path) -> None:
    text = (EXAMPLES / "test_submitting.py").read_text()
    (tmp_path / "test_submitting.py").write_text(text)
    done = outside(tmp_path, "-W", "error")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_who_asks_for_no_fixture_imports_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        "import sys\n"
        "def test_theirs():\n"
        "    ours = {name for name in sys.modules if name.startswith('gangline')}\n"
        "    assert ours == {'gangline', 'gangline.base', 'gangline.base.lazy_exports', 'gangline.testing',"
        " 'gangline.testing.plugin'}\n"
        "    assert 'asyncio' not in sys.modules and 'aiohttp' not in sys.modules\n"
    )
    done = outside(tmp_path, "-p", "no:anyio", "-p", "no:hypothesispytest", "-p", "no:xdist")
    assert done.returncode == 0, done.stdout
