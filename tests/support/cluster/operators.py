"""Operators of kubeflow.org/v1 as processes on an API server: gangline, and the one it replaces.

Plain blocking code, as tests/support/servers/real.py is and for its reason. `hack/peer.sh` builds the peer.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trustme

from support.servers.real import (
    HOST,
    START_TIMEOUT,
    ApiServer,
    LoggedProcess,
    RealServerError,
    cache_dir,
    free_ports,
)
from support.yaml_files import load_all_yaml

PEER_VERSION = "1.9.0"  # as in hack/peer.sh
MPI_OPERATOR_VERSION = "0.8.0"  # as in hack/mpi-operator.sh
MPI_OPERATOR_NAMESPACE = "mpi-operator"
PEER_SOURCE = Path(__file__).parents[3] / "bench" / "peer"
PEER_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")  # it knows no other place
CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPLY_PATCH = "application/apply-patch+yaml"


class OperatorLaunch(NamedTuple):
    """What an operator is started with."""

    server: ApiServer
    kubeconfig: Path
    folder: Path  # for its log and its files
    probe_port: int  # the port its health probes must answer on
    extra_flags: Sequence[str]


def _probe_answers(launch: OperatorLaunch) -> bool:
    return is_ready(launch.probe_port)


class OperatorProgram(NamedTuple):
    """An operator that can be started. `missing` names what this machine lacks, or is None."""

    name: str
    missing: Callable[[], str | None]
    crds: Callable[[], list[Any]]
    start: Callable[[OperatorLaunch], LoggedProcess]
    is_ready: Callable[[OperatorLaunch], bool] = _probe_answers


@contextmanager
def run_operator(
    operator: OperatorProgram,
    server: ApiServer,
    folder: Path,
    *,
    kubeconfig: Path | None = None,
    extra: Sequence[str] = (),
) -> Iterator[LoggedProcess]:
    """Runs an operator, with its CRDs served, until the block ends. Raises RealServerError with its log's tail."""
    folder.mkdir(parents=True, exist_ok=True)
    install_crds(server, operator.crds())
    launch = OperatorLaunch(server, kubeconfig or server.kubeconfig, folder, free_ports(1)[0], extra)
    process = operator.start(launch)
    try:
        process.wait_until(lambda: operator.is_ready(launch))
        yield process
    finally:
        process.kill()


def install_crds(server: ApiServer, documents: Sequence[Any]) -> None:
    """Apply CRDs as their only owner and return when they are served."""
    for document in documents:
        name = document["metadata"]["name"]
        path = f"{CRDS_PATH}/{name}?fieldManager=tests&force=true"
        # Theirs are 0.6 MB each: too big for an annotation, fine for a patch.
        answer = server.call("PATCH", path, document, content_type=APPLY_PATCH, timeout=30)
        if answer.status not in (200, 201):
            raise RealServerError(f"{name}: {answer.status} {json.dumps(answer.body)[:2000]}")
    names = ", ".join(document["metadata"]["name"] for document in documents)
    _wait_until(lambda: all(_is_served(server, one) for one in documents), f"not all are served: {names}")


def _is_served(server: ApiServer, document: Any) -> bool:
    found = server.call("GET", f"{CRDS_PATH}/{document['metadata']['name']}")
    conditions = (found.body.get("status") or {}).get("conditions") or []
    if not any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
        return False
    spec = document["spec"]
    version = spec["versions"][0]["name"]
    path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"
    return server.call("GET", path).status == 200


def _wait_until(done: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not done():
        if time.monotonic() > deadline:
            raise RealServerError(complaint)
        time.sleep(0.02)


def is_ready(port: int) -> bool:
    """Whether the operator with its probes at this port says that it is ready."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:  # also HTTPError: it is up and not ready
        return False


# gangline


def _gangline_crds() -> list[Any]:
    done = subprocess.run([sys.executable, "-m", "gangline", "crds"], capture_output=True)
    if done.returncode:
        raise RealServerError(f"gangline crds: {done.stderr.decode(errors='replace')[-2000:]}")
    return _documents(done.stdout)


def _start_gangline(launch: OperatorLaunch) -> LoggedProcess:
    command = [sys.executable, "-m", "gangline", "operator", *_common_flags(launch)]
    return LoggedProcess(command, launch.folder / "gangline.log")


def _start_few_services(launch: OperatorLaunch) -> LoggedProcess:
    return _start_gangline(launch._replace(extra_flags=[*launch.extra_flags, "--services=per-job"]))


def _start_mpi_v2(launch: OperatorLaunch) -> LoggedProcess:
    return _start_gangline(launch._replace(extra_flags=[*launch.extra_flags, "--enable-scheme=mpijob.v2beta1"]))


def _start_both_mpi(launch: OperatorLaunch) -> LoggedProcess:
    flags = ["--enable-scheme=mpijob", "--enable-scheme=mpijob.v2beta1"]
    return _start_gangline(launch._replace(extra_flags=[*launch.extra_flags, *flags]))


def _common_flags(launch: OperatorLaunch) -> list[str]:
    return [
        f"--kubeconfig={launch.kubeconfig}",
        f"--health-probe-bind-address={HOST}:{launch.probe_port}",
        "--metrics-bind-address=0",
        *launch.extra_flags,
    ]


# The peer


def shipped_folder() -> Path:
    return cache_dir().parents[1] / f"training-operator-{PEER_VERSION}"


def lifted_program() -> Path:
    # As hack/peer.sh has it.
    text = b"".join((PEER_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    return cache_dir().parents[1] / f"peer-{hashlib.sha256(text).hexdigest()[:12]}"


def _peer_missing() -> str | None:
    there = shipped_folder().is_dir() and os.access(lifted_program(), os.X_OK)
    return None if there else "the peer was not found: run hack/peer.sh"


def peer_crds() -> list[Any]:
    """The CRDs of the peer, from its Go module."""
    files = sorted((shipped_folder() / "crds").glob("*.yaml"))
    return [document for file in files for document in _documents(file.read_bytes())]


def _documents(text: bytes) -> list[Any]:
    return [document for document in load_all_yaml(text) if document]


def _start_lifted(launch: OperatorLaunch) -> LoggedProcess:
    command = [str(lifted_program()), f"--kubeconfig={launch.kubeconfig}"]
    command += [f"--health-probe-bind-address={HOST}:{launch.probe_port}", *launch.extra_flags]
    return LoggedProcess(command, launch.folder / "lifted.log")


def _start_shipped(launch: OperatorLaunch) -> LoggedProcess:
    """It serves webhooks, so it wants a certificate in a folder, and writes one into a secret and a configuration that
    must be there. No webhook is registered: nobody calls them, so any certificate does."""
    namespace = "kubeflow"
    call = launch.server.call
    call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    secret = {"metadata": {"name": "training-operator-webhook-cert"}}
    call("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    call("POST", hooks, {"metadata": {"name": "validator.training-operator.kubeflow.org"}})
    PEER_CERTIFICATES.mkdir(parents=True, exist_ok=True)
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path(PEER_CERTIFICATES / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(PEER_CERTIFICATES / "tls.crt")
    command = [str(shipped_folder() / "training-operator"), *_common_flags(launch)]
    command.append(f"--webhook-server-port={free_ports(1)[0]}")
    return LoggedProcess(command, launch.folder / "shipped.log")


# mpi-operator


def mpi_operator_folder() -> Path:
    return cache_dir().parents[1] / f"mpi-operator-{MPI_OPERATOR_VERSION}"


def _mpi_operator_missing() -> str | None:
    there = os.access(mpi_operator_folder() / "mpi-operator", os.X_OK)
    return None if there else "mpi-operator was not found: run hack/mpi-operator.sh"


def _mpi_operator_crds() -> list[Any]:
    return _documents((mpi_operator_folder() / "crds" / "kubeflow.org_mpijobs.yaml").read_bytes())


def _start_mpi_operator(launch: OperatorLaunch) -> LoggedProcess:
    """It also listens on port 8080, which cannot be changed: only one can run at a time."""
    launch.server.call("POST", "/api/v1/namespaces", {"metadata": {"name": MPI_OPERATOR_NAMESPACE}})
    command = [str(mpi_operator_folder() / "mpi-operator"), f"-kubeConfig={launch.kubeconfig}"]
    command += [f"-lock-namespace={MPI_OPERATOR_NAMESPACE}", "-kube-api-qps=200", "-kube-api-burst=400"]
    command += ["-controller-queue-rate-limit=1000", "-controller-queue-burst=1000", "-threadiness=16"]
    command += launch.extra_flags
    return LoggedProcess(command, launch.folder / "mpi-operator.log")


def _leads(launch: OperatorLaunch) -> bool:
    """Whether mpi-operator holds its Lease: it has no readiness probe."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{MPI_OPERATOR_NAMESPACE}/leases"
    leases = launch.server.call("GET", path).body.get("items") or []
    return any(lease["spec"].get("holderIdentity") for lease in leases)


GANGLINE_OPERATOR = OperatorProgram("gangline", lambda: None, _gangline_crds, _start_gangline)
GANGLINE_MPI_V2 = GANGLINE_OPERATOR._replace(name="gangline, MPIJob v2beta1", start=_start_mpi_v2)
GANGLINE_BOTH_MPI = GANGLINE_OPERATOR._replace(name="gangline, both APIs of MPIJob", start=_start_both_mpi)
GANGLINE_PER_JOB_SERVICES = GANGLINE_OPERATOR._replace(name="gangline, one service per job", start=_start_few_services)
KUBEFLOW = OperatorProgram("peer", _peer_missing, peer_crds, _start_shipped)
KUBEFLOW_LIFTED = OperatorProgram("peer, lifted", _peer_missing, peer_crds, _start_lifted)
MPI_OPERATOR = OperatorProgram("mpi-operator", _mpi_operator_missing, _mpi_operator_crds, _start_mpi_operator, _leads)
