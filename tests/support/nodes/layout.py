"""Where a cluster keeps its files, which programs it runs, and which addresses it has."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[3]
GATEWAY = "10.99.0.1"  # the control plane, on the bridge between the nodes
API_SERVER = f"https://{GATEWAY}:6443"
SERVICE_RANGE = "10.96.0.0/12"
DNS_SERVICE = "10.96.0.10"
SERVERS = ("kube-apiserver", "gangline")  # whose API the nodes of a cluster use

# A user's token is its name and "-token". Whoever has no group has no rights but those that a test gives.
USERS: Mapping[str, tuple[str, str]] = {
    "admin": ("admin", "system:masters"),
    "setup": ("setup", "system:masters"),
    "coredns": ("coredns", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "n1": ("system:node:n1", "system:nodes"),
    "n2": ("system:node:n2", "system:nodes"),
    "tenant": ("tenant", ""),
}


@dataclass(frozen=True)
class NodeAddress:
    """A node's name and its place in the network."""

    name: str
    address: str
    pods: str  # its range of pod addresses
    link: str  # the control plane's end of its cable


NODES = (
    NodeAddress("n1", "10.99.0.11", "10.244.1.0/24", "to-n1"),
    NodeAddress("n2", "10.99.0.12", "10.244.2.0/24", "to-n2"),
)


def cgroup_prefix(folder: Path) -> str:
    """How the names of a cluster's control groups begin; another folder's begin otherwise."""
    return f"gangline-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Layout:
    """The folders of one cluster: its own, and those of the programs (see hack/cluster.sh)."""

    folder: Path
    kubernetes: Path
    packages: Path
    coredns: Path
    pause: Path  # archives of images that every node has
    busybox: Path
    server: str = SERVERS[0]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The layout of a cluster that was started. Raises FileNotFoundError if there is none."""
        read = json.loads((folder / "layout.json").read_text())
        server = read.pop("server")
        return cls(**{name: Path(value) for name, value in read.items()}, server=server)

    def write(self) -> None:
        text = json.dumps({name: str(value) for name, value in asdict(self).items()})
        (self.folder / "layout.json").write_text(text)

    @property
    def feature_gates(self) -> Mapping[str, bool]:
        """What tests need and this version of Kubernetes has off: restart in place is alpha in 1.35."""
        alpha = ("NodeDeclaredFeatures", "RestartAllContainersOnContainerExits")
        return dict.fromkeys(alpha, True) if self.kubernetes.name.startswith("1.35.") else {}

    @property
    def gate_flags(self) -> list[str]:
        """The feature gates as a flag of a program of the control plane."""
        gates = ",".join(f"{name}=true" for name in self.feature_gates)
        return [f"--feature-gates={gates}"] if gates else []

    @property
    def authority(self) -> Path:
        """The certificate with which clients verify the API server."""
        if self.server == "gangline":
            return self.folder / "plane" / "certificates" / "ca.crt"
        return self.folder / "api" / "apiserver.crt"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def pids(self) -> Path:
        """Files with the first processes: keeper and control-plane as seen from outside, nodes as seen from inside."""
        return self.folder / "pids"

    @property
    def kubeconfig(self) -> Path:
        return self.kubeconfig_of("admin")

    def kubeconfig_of(self, user: str) -> Path:
        """The kubeconfig of one of USERS."""
        return self.folder / f"{user}.kubeconfig"

    def cgroup(self, node: str) -> str:
        """The name of a node's control group."""
        return f"{cgroup_prefix(self.folder)}-{node}"

    def program(self, name: str) -> Path:
        """A program of Kubernetes, or CoreDNS."""
        return self.coredns if name == "coredns" else self.kubernetes / name

    def service_env(self) -> dict[str, str]:
        """The environment of what runs as a part of the cluster: unpacked programs come first, with their libraries."""
        usr = self.packages / "usr"
        folders = [usr / "sbin", usr / "bin", self.packages / "sbin", self.packages / "bin"]
        libraries = [path for lib in (usr / "lib", self.packages / "lib") for path in sorted(lib.glob("*-linux-gnu*"))]
        return {
            "PATH": ":".join(map(str, [*folders, os.environ["PATH"]])),
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "XTABLES_LIBDIR": next((str(path / "xtables") for path in libraries if (path / "xtables").exists()), ""),
            "PYTHONPATH": ":".join(str(ROOT / name) for name in ("tests", "src")),
            "HOME": str(self.folder),  # where kubectl keeps what it has learned
        }

    def user_env(self) -> dict[str, str]:
        """The environment of a command that uses the cluster: kubectl, and who one is."""
        return {
            **os.environ,
            "PATH": f"{self.kubernetes}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.kubeconfig),
            "GANGLINE_CLUSTER_DIR": str(self.folder),
        }
