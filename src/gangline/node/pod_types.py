"""Pods with all the fields that a node needs to run them, beyond those that controllers cache. Data only."""

import msgspec

from gangline.api import core
from gangline.api.meta import ApiStruct, Object, ObjectMeta
from gangline.api.quantity import QuantityText
from gangline.api.scheme import Resource

# Environment


class ConfigKeyRef(ApiStruct, frozen=True):
    """One key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldRef(ApiStruct, frozen=True):
    field_path: str = ""


class ResourceFieldRef(ApiStruct, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: QuantityText = "0"


class EnvVarSource(ApiStruct, frozen=True):
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: ConfigKeyRef | None = None
    secret_key_ref: ConfigKeyRef | None = None


class EnvVar(ApiStruct, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class ConfigNameRef(ApiStruct, frozen=True):
    name: str = ""
    optional: bool = False


class EnvFromSource(ApiStruct, frozen=True):
    prefix: str = ""
    config_map_ref: ConfigNameRef | None = None
    secret_ref: ConfigNameRef | None = None


# Actions: what probes and hooks do


class ExecAction(ApiStruct, frozen=True):
    command: tuple[str, ...] = ()


class HttpHeader(ApiStruct, frozen=True):
    name: str = ""
    value: str = ""


class HttpAction(ApiStruct, frozen=True):
    path: str = "/"
    port: int | str = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpAction(ApiStruct, frozen=True):
    port: int | str = 0
    host: str = ""


class SleepAction(ApiStruct, frozen=True):
    seconds: int = 0


class Action(ApiStruct, frozen=True):
    """What a probe or hook does. The server makes sure that exactly one field is set."""

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


class Lifecycle(ApiStruct, frozen=True):
    post_start: Action | None = None
    pre_stop: Action | None = None


# Volumes


class KeyToPath(ApiStruct, frozen=True):
    key: str = ""
    path: str = ""
    mode: int | None = None


class EmptyDir(ApiStruct, frozen=True):
    medium: str = ""
    size_limit: QuantityText = "0"


class HostPath(ApiStruct, frozen=True):
    path: str = ""
    type: str = ""


class ConfigMapVolume(ApiStruct, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class SecretVolume(ApiStruct, frozen=True):
    secret_name: str = ""
    # A projected source has `name` where a volume has `secretName`.
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class DownwardItem(ApiStruct, frozen=True):
    path: str = ""
    mode: int | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None


class DownwardVolume(ApiStruct, frozen=True):
    items: tuple[DownwardItem, ...] = ()
    default_mode: int | None = None


class TokenSource(ApiStruct, frozen=True):
    path: str = "token"
    audience: str = ""
    expiration_seconds: int = 3600


class Projection(ApiStruct, frozen=True):
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(name="downwardAPI", default=None)
    service_account_token: TokenSource | None = None


class ProjectedVolume(ApiStruct, frozen=True):
    sources: tuple[Projection, ...] = ()
    default_mode: int | None = None


class ClaimVolume(ApiStruct, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class Volume(ApiStruct, frozen=True):
    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    projected: ProjectedVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(name="downwardAPI", default=None)
    persistent_volume_claim: ClaimVolume | None = None


class VolumeMount(ApiStruct, frozen=True):
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
    env_from: tuple[EnvFromSource, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    lifecycle: Lifecycle = Lifecycle()
    termination_message_path: str = "/dev/termination-log"
    image_pull_policy: str = ""
    termination_message_policy: str = "File"
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class ReadinessGate(ApiStruct, frozen=True):
    condition_type: str = ""


class RunPodSpec(core.PodSpec, frozen=True):
    containers: tuple[RunContainer, ...] = ()
    init_containers: tuple[RunContainer, ...] = ()
    ephemeral_containers: tuple[RunContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()
    service_account_name: str = ""
    hostname: str = ""


class RunPodMeta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


class RunContainerStatus(core.ContainerStatus, frozen=True):
    container_id: str = msgspec.field(name="containerID", default="")


class RunPodStatus(core.PodStatus, frozen=True):
    container_statuses: tuple[RunContainerStatus, ...] = ()
    init_container_statuses: tuple[RunContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[RunContainerStatus, ...] = ()


class RunPod(Object, frozen=True):
    metadata: RunPodMeta = RunPodMeta()
    spec: RunPodSpec = RunPodSpec()
    status: RunPodStatus = RunPodStatus()


RUN_PODS = Resource("", "v1", "Pod", "pods", RunPod)
"""Pods, decoded to `RunPod`."""


def is_sidecar(container: core.Container) -> bool:
    """Whether an init container keeps running beside the main containers."""
    return container.restart_policy == "Always"
