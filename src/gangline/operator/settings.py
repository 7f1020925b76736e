"""The settings of the operator, and of operator and scheduler as processes."""

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from gangline.api.kubeflow.kinds import JOB_APIS, TRAINING_KINDS
from gangline.frameworks.mpi import KUBECTL_DELIVERY_IMAGE
from gangline.health.settings import WatchSettings, watch_settings
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.plan.recovery.bad_nodes import BadNodeLimits
from gangline.jobs.site import Site

if TYPE_CHECKING:
    from gangline.notify.plan.routes import NotificationSettings

V1_INIT_IMAGE = "alpine:3.10"

LOCAL_MPI_AGENT = '"$GANGLINE_AGENT"'
"""The command of the local node that runs another command in a pod, as `kubectl exec` does in a cluster."""

ALL_V1 = "all"
"""The value of `--enable-scheme` that stands for all kinds of v1, which is the default."""

KUBEFLOW_LEASE = "1ca428e5.training-operator.kubeflow.org"
"""The Lease of the Kubeflow operator, and by default ours: of all operators that compete for it, one acts."""
MPI_OPERATOR_LEASE = "mpi-operator"
"""The Lease of mpi-operator, which serves MPIJobs of v2beta1."""

NOTIFICATIONS_VARIABLE = "GANGLINE_NOTIFICATIONS"
"""The environment variable with the text of a file for `--notifications-file`."""
NOTIFICATIONS_SUFFIX = "-notifications"
"""The ConfigMap beside a Lease that says which notifications were delivered has the Lease's name and this."""


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which kinds of jobs to run, where, and how."""

    # By their schemes. MPIJob.v2beta1 is on request: mpi-operator may serve it, and it needs to create Secrets.
    kinds: tuple[str, ...] = tuple(kind.scheme for kind in TRAINING_KINDS)
    # Empty: all namespaces.
    namespaces: tuple[str, ...] = ()
    site: Site = Site()
    # Jobs of one kind that are reconciled at the same time.
    workers: int = 16
    # Empty: no such init container.
    pytorch_init_image: str = V1_INIT_IMAGE
    pytorch_init_tries: int = 100
    pytorch_init_template: str | None = None
    # The image with the agent by which MPI launchers reach workers; empty: they use a kubectl, as in v1.
    agent_image: str = ""
    # The image that brings that kubectl; empty: no such init container.
    mpi_delivery_image: str = KUBECTL_DELIVERY_IMAGE
    # The command of the node that starts a process in an MPI worker.
    mpi_agent: str | None = None
    # An existing service account for MPI launchers; empty: each has its own, with a role.
    mpi_launcher_account: str = ""
    # How patient the watch over running jobs is; None: there is none.
    hang_watch: WatchSettings | None = WatchSettings()
    # In a cluster: whether the watch runs py-spy in the pods of a job that it suspects.
    hang_stacks: bool = False
    # On an embedded plane: whether pods report progress to it, on loopback. In a cluster `site.progress` says it.
    receives_progress: bool = False
    # Module and function that make the reader of causes for jobs with a recovery policy; empty: exit codes must do.
    # By name: `why` is above this package, and only loaded when such a job fails.
    cause_reader: str = "gangline.why.causes:cause_reader"
    # Which nodes jobs with a recovery policy avoid, because jobs of others failed there.
    bad_nodes: BadNodeLimits = BadNodeLimits()


LOCAL_SETTINGS = OperatorSettings(
    kinds=tuple(kind.scheme for kind in JOB_APIS),
    site=Site(
        shared_host=True,
        legacy_labels=True,
        gang_scheduler=GanglineScheduler(protect=False),
        gangs_on_request=True,
        restarts_in_place=True,
    ),
    workers=8,
    pytorch_init_image="",
    mpi_delivery_image="",
    mpi_agent=LOCAL_MPI_AGENT,
    receives_progress=True,
)
"""On one machine no images are pulled, so no init containers are added. Gang scheduling is on request."""


LOCAL_GANG_SETTINGS = msgspec.structs.replace(
    LOCAL_SETTINGS, site=msgspec.structs.replace(LOCAL_SETTINGS.site, gangs_on_request=False)
)
"""The same with gang scheduling for every job."""


LOCAL_WATCH_PERIOD = 5.0
"""How often a job is looked at on one machine, in seconds: nobody has to be asked for it."""


def local_settings(*, gang: bool = False, progress: bool = True, hung_after: float | None = 60.0) -> OperatorSettings:
    """The settings of the operator of a plane on this machine, with or without gangs for every job and the endpoint.

    After `hung_after` seconds a job without signs of life is looked into; None: never.
    """
    watch = watch_settings(hung_after, LOCAL_WATCH_PERIOD) if hung_after is not None else None
    settings = LOCAL_GANG_SETTINGS if gang else LOCAL_SETTINGS
    return msgspec.structs.replace(settings, receives_progress=progress, hang_watch=watch)


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What operator and scheduler have in common as processes of their own."""

    metrics_address: str = ":8080"
    probe_address: str = ":8081"
    # Whether metrics are served by TLS to those who may read them; with a certificate in this folder, or one of our own.
    metrics_secure: bool = False
    metrics_cert_path: str = ""
    leader_elect: bool
    lease: str
    # Empty: the namespace that is served if it is one, else that of the connection.
    lease_namespace: str = ""
    install_crds: bool = False


class ProgressSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an operator in a cluster receives progress of jobs. What pods get for it is in the site."""

    # Where the endpoint listens; "0": there is none.
    address: str = "0"
    # A folder with tls.crt and tls.key; empty: plain HTTP.
    cert_path: str = ""
    # Most pods whose logs are read for progress; 0: none.
    log_streams: int = 0


class OperatorProcessSettings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of an operator that runs as a process of its own."""

    operator: OperatorSettings = OperatorSettings()
    leader_elect: bool = False
    lease: str = KUBEFLOW_LEASE
    # Requests per second; 0: no limit on our side.
    qps: float = 0.0
    burst: int = 0
    grace: timedelta = timedelta(seconds=10)
    take_over: bool = False
    # The name of the pod in which this process runs; empty: the host name.
    pod: str = ""
    progress: ProgressSettings = ProgressSettings()
    # Who hears of the states of jobs; None: nobody.
    notifications: "NotificationSettings | None" = None
