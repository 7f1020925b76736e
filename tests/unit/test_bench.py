"""The benchmark runs and keeps its word; its figures are not looked at here."""

import json
import subprocess
import sys
from pathlib import Path

from gangline.api.codec.codec import decode
from gangline.api.core import Pod
from gangline.kube.pages import read_page

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench" / "runtime_bench.py"


def python(code: str) -> bytes:
    """Run in a fresh interpreter that finds the bench, as the bench itself does."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    return done.stdout


def test_small_run_measures_every_way_of_caching(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH), "--parts=cache", "--pods=40", "--rounds=1", f"--json={figures}"]
    done = subprocess.run(command, capture_output=True, text=True)
    # 1 says that a ratio was missed, which forty pods on a busy machine may well do.
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(figures.read_text())
    assert set(found["cache"]["variants"]) == {
        "informer",
        "sharing",
        "dict_msgspec",
        "dict_json",
        "dict_trimmed",
    }
    assert found["machine"]["cores"]


def test_missed_promise_is_named() -> None:
    code = (
        "import sys; sys.path[:0] = ['.', 'tests']\n"
        "from bench.runtime_bench import broken_promises\n"
        "cache = {'pods': 40, 'smaller': {'informer': 4.9}, 'faster': {'informer': 3.0}}\n"
        "print('\\n'.join(broken_promises({'cache': cache, 'start': {'ratio': 2.6}})))"
    )
    memory, start = python(code).decode().splitlines()
    assert memory.startswith("4.9 times less memory")
    assert "2.6 bare interpreters" in start


def test_generated_pods_differ_and_decode_whole() -> None:
    page = read_page(python("from bench import pods; import sys; sys.stdout.buffer.write(pods.page(0, 70, 90))"), Pod)
    assert not page.unreadable
    assert page.metadata.remaining_item_count == 20
    assert len({pod.metadata.uid for pod in page.items}) == len({pod.status.pod_ip for pod in page.items}) == 70
    assert {pod.metadata.labels["training.kubeflow.org/job-name"] for pod in page.items} == {
        "resnet50-0000",
        "resnet50-0001",
        "resnet50-0002",
    }


def test_recorded_pod_is_what_a_server_stores() -> None:
    body = (ROOT / "bench" / "pod.json").read_bytes()
    assert {entry["manager"] for entry in json.loads(body)["metadata"]["managedFields"]} == {
        "gangline",
        "kubelet",
    }
    assert decode(body, Pod).status.container_statuses[0].ready


def test_missed_promise_of_the_operator_is_named() -> None:
    code = (
        "import sys; sys.path[:0] = ['.', 'tests']\n"
        "from bench.operator_bench import broken_promises\n"
        "one = {'created': 1.0, 'active': 1.0, 'cpu': 1.0, 'memory': 90, 'requests': {'create pods': 500}}\n"
        "peer = {'created': 3.1, 'active': 2.9, 'cpu': 2.0, 'memory': 80, 'requests': {'create pods': 500, 'get pods': 9}}\n"
        "print('\\n'.join(broken_promises({'1x500': {'gangline': one, 'peer, lifted': peer}})))"
    )
    active, memory = python(code).decode().splitlines()
    assert active == "1x500 active: times faster than the lifted peer: 2.90, promised 3.0"
    assert memory == "1x500 memory: the lifted peer's to ours: 0.89, promised 1.0"


def test_missed_promises_of_the_scheduler_are_named() -> None:
    code = (
        "import sys; sys.path[:0] = ['.', 'tests']\n"
        "from bench.scheduler_bench import broken_promises\n"
        # Of three rounds one was slow for both, and one for the other only.
        "ours = {'cpu': 2.0, 'bound': 1000, 'first': 0.6, 'nodes_used': 126}\n"
        "ours['runs'] = [{'rate': 70}, {'rate': 7}, {'rate': 80}]\n"
        "sides = {'gangline': ours, 'raw bindings, 32 in flight': {'runs': [{'rate': 100}, {'rate': 10}, {'rate': 40}]}}\n"
        "found = {'500': {'10x100': sides, 'idle': {'gangline': [0.03]}}, 'big': {'memory': 5e8}, 'rounds': 1}\n"
        "print('\\n'.join(broken_promises(found)))"
    )
    assert python(code).decode().splitlines() == [
        "500 nodes, 10x100: 0.70 of the raw rate, promised is 0.8",
        "500 nodes, 10x100: 2.00 ms CPU a pod, promised is 1.2",
        "500 nodes, 10x100: first pod after 0.60 s, promised is 0.5",
        "500 nodes, 10x100: 126 nodes used, 125 are enough",
        "500 nodes: 3.0% of a core when idle, promised is 2%",
        "500 MB with 50,000 pods, promised is 400 MB",
    ]
