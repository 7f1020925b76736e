"""A pod as the node needs it: all it takes to run one, beyond what controllers cache. Data only."""

import msgspec

from gangline.api import core
from gangline.api.meta import Object, ObjectMeta, Wire
from gangline.api.quantity import QuantityText
from gangline.api.scheme import Resource

# Environment


class KeyReference(Wire, frozen=True):
    """One key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldReference(Wire, frozen=True):
    field_path: str = ""


class ResourceReference(Wire, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: QuantityText = "0"


class EnvSource(Wire, frozen=True):
    field_ref: FieldReference | None = None
    resource_field_ref: ResourceReference | None = None
    config_map_key_ref: KeyReference | None = None
    secret_key_ref: KeyReference | None = None


class EnvVar(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvSource | None = None


class NameReference(Wire, frozen=True):
    name: str = ""
    optional: bool = False


class EnvFrom(Wire, frozen=True):
    prefix: str = ""
    config_map_ref: NameReference | None = None
    secret_ref: NameReference | None = None


# Actions: what probes and hooks do


class ExecAction(Wire, frozen=True):
    command: tuple[str, ...] = ()


class HttpHeader(Wire, frozen=True):
    name: str = ""
    value: str = ""


class HttpAction(Wire, frozen=True):
    path: str = "/"
    port: int | str = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpAction(Wire, frozen=True):
    port: int | str = 0
    host: str = ""


class SleepAction(Wire, frozen=True):
    seconds: int = 0


class Action(Wire, frozen=True):
    """Exactly one is set; the server sees to that."""

    exec: ExecAction | None = None
    http_get: HttpAction | None = None
    tcp_socket: TcpAction | None = None
    sleep: SleepAction | None = None


class Probe(Action, frozen=True):
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(Wire, frozen=True):
    post_start: Action | None = None
    pre_stop: Action | None = None


# Volumes


class KeyToPath(Wire, frozen=True):
    key: str = ""
    path: str = ""
    mode: int | None = None


class EmptyDir(Wire, frozen=True):
    medium: str = ""
    size_limit: QuantityText = "0"


class HostPath(Wire, frozen=True):
    path: str = ""
    type: str = ""


class ConfigMapVolume(Wire, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class SecretVolume(Wire, frozen=True):
    secret_name: str = ""
    # A projected source says `name` where a volume says `secretName`.
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class DownwardItem(Wire, frozen=True):
    path: str = ""
    mode: int | None = None
    field_ref: FieldReference | None = None
    resource_field_ref: ResourceReference | None = None


class DownwardVolume(Wire, frozen=True):
    items: tuple[DownwardItem, ...] = ()
    default_mode: int | None = None


class TokenSource(Wire, frozen=True):
    path: str = "token"


class Projection(Wire, frozen=True):
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(name="downwardAPI", default=None)
    service_account_token: TokenSource | None = None


class ProjectedVolume(Wire, frozen=True):
    sources: tuple[Projection, ...] = ()
    default_mode: int | None = None


class ClaimVolume(Wire, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class Volume(Wire, frozen=True):
    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    projected: ProjectedVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(name="downwardAPI", default=None)
    persistent_volume_claim: ClaimVolume | None = None


class VolumeMount(Wire, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


# Containers and pods


class RunContainer(core.Container, frozen=True):
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    lifecycle: Lifecycle = Lifecycle()
    termination_message_path: str = "/dev/termination-log"
    image_pull_policy: str = ""
    termination_message_policy: str = "File"


class ReadinessGate(Wire, frozen=True):
    condition_type: str = ""


class RunSpec(core.PodSpec, frozen=True):
    containers: tuple[RunContainer, ...] = ()
    init_containers: tuple[RunContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()
    service_account_name: str = ""
    hostname: str = ""
    subdomain: str = ""


class RunMeta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


class RunStatus(core.ContainerStatus, frozen=True):
    container_id: str = msgspec.field(name="containerID", default="")


class RunPodStatus(core.PodStatus, frozen=True):
    container_statuses: tuple[RunStatus, ...] = ()
    init_container_statuses: tuple[RunStatus, ...] = ()


class RunPod(Object, frozen=True):
    metadata: RunMeta = RunMeta()
    spec: RunSpec = RunSpec()
    status: RunPodStatus = RunPodStatus()


RUN_PODS = Resource("", "v1", "Pod", "pods", RunPod)
"""Pods once more, with all it takes to run them."""


def is_sidecar(container: core.Container) -> bool:
    """Whether an init container stays and runs beside the others."""
    return container.restart_policy == "Always"
