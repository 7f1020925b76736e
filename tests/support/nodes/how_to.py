"""Pages for readers who have a cluster, in the cluster of the tests."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.nodes.inside import NodeCluster
from support.readme import Person, PersonShell
from support.tutorials import make_environment

ROOT = Path(__file__).parents[3]
IN_CLUSTER: Mapping[str, tuple[str, ...]] = {
    "rehearse-faults": ("gangline submit ", "gangline wait ", "gangline delete "),
    "run-in-one-namespace": ("gangline crds ", "kubectl create ", "gangline install "),
    "share-gpus-fairly": (),
}
"""How-to pages whose blocks for a cluster are played, and what else of them is typed there."""
_OWN_NAMES = {
    "context gangline": "context nodes",
    "context prod": "context nodes",
    "image pytorch/pytorch": "image gangline-test/python-torch:1",
    "image: pytorch/pytorch": "image: gangline-test/python-torch:1",
}


def own_names(text: str) -> str:
    """A page with the context and the image that the reader has instead."""
    for there, here in _OWN_NAMES.items():
        text = text.replace(there, here)
    return text


@contextmanager
def shell_in_cluster(cluster: NodeCluster, namespace: str, folder: Path) -> Iterator[PersonShell]:
    """The shell of a reader whose kubeconfig leads to the cluster. It stands in `folder`/work."""
    config = folder / "kubeconfig"
    config.write_text(cluster.kubectl("config", "view", "--raw", "--flatten"))
    cluster.kubectl("config", "--kubeconfig", str(config), "set-context", "nodes", "--namespace", namespace)
    packages = [ROOT / "src", *(Path(path) for path in sys.path if Path(path).name == "site-packages")]
    programs = make_environment(folder / "try", Path(sys.executable), packages)
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    person = Person(home, os.getuid(), 0o022, f"{programs}:{os.environ['PATH']}", {"KUBECONFIG": str(config)})
    with PersonShell(person, work, 200) as shell:
        yield shell
