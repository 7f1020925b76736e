"""Everything about the operator that can be set, as one value."""

from datetime import timedelta

import msgspec

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.site import Site

LOCAL_MPI_AGENT = '"$GANGLINE_AGENT"'
"""What the local node offers in place of kubectl: a command that runs another in a pod."""

KUBEFLOW_LEASE = "1ca428e5.training-operator.kubeflow.org"
"""The Lease of the Kubeflow operator, and by default ours: of those that compete for it one acts."""


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which kinds to run, where, and how."""

    kinds: tuple[str, ...] = tuple(kind.kind for kind in TRAINING_KINDS)
    # Empty: all namespaces.
    namespace: str = ""
    site: Site = Site()
    # Jobs of one kind that are worked on at the same time.
    workers: int = 16
    # Empty images: no such container.
    pytorch_init_image: str = "alpine:3.10"
    pytorch_init_tries: int = 100
    pytorch_init_template: str | None = None
    mpi_delivery_image: str = "kubeflow/kubectl-delivery:latest"
    # The command that starts a process in an MPI worker, where there is no kubectl.
    mpi_agent: str | None = None


LOCAL_SETTINGS = OperatorSettings(
    site=Site(
        shared_host=True,
        legacy_labels=True,
        gang_scheduler=GanglineScheduler(protect=False),
        gangs_on_request=True,
    ),
    workers=8,
    pytorch_init_image="",
    mpi_delivery_image="",
    mpi_agent=LOCAL_MPI_AGENT,
)
"""On one machine: no images are pulled, so nothing is added that needs one. A job that asks for it starts as a gang."""


LOCAL_GANG_SETTINGS = msgspec.structs.replace(
    LOCAL_SETTINGS, site=msgspec.structs.replace(LOCAL_SETTINGS.site, gangs_on_request=False)
)
"""The same, with every job as a gang."""


class OperatorProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What only an operator with a process of its own needs."""

    operator: OperatorSettings = OperatorSettings()
    metrics_address: str = ":8080"
    probe_address: str = ":8081"
    leader_elect: bool = False
    lease: str = KUBEFLOW_LEASE
    # Empty: the namespace that is watched, else the one of the connection.
    lease_namespace: str = ""
    # Requests per second; 0 is no limit but the server's own.
    qps: float = 0.0
    burst: int = 0
    grace: timedelta = timedelta(seconds=10)
    take_over: bool = False
    # The pod this process runs in, by which it knows itself; empty: named like the host, as pods are.
    pod: str = ""
    install_crds: bool = False
