"""What `gangline up` is asked to start: options as a value, from which the settings of the plane are made."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gangline.base.errors import InputError
from gangline.cli.flags.access_options import AccessOptions
from gangline.cli.flags.audit_options import AuditOptions
from gangline.cli.flags.backup_options import BackupOptions
from gangline.cli.flags.dashboard_options import DashboardOptions
from gangline.cli.flags.history_options import HistoryOptions
from gangline.cli.flags.node_options import NodeOptions
from gangline.cli.flags.notify_options import absolute_option, notification_settings

if TYPE_CHECKING:
    from gangline.local.cluster import LocalSettings
    from gangline.local.home import PlaneHome
    from gangline.node.settings import NodeSettings


class UpRequest(NamedTuple):
    """The options of `gangline up`, as they are typed."""

    host: str
    port: int
    allowed_hosts: tuple[str, ...]
    default_scheduler: str
    """`fit`: the plane places pods that name no scheduler. `none`: it does not."""
    gang: bool
    authorization: str
    node: NodeOptions
    access: AccessOptions
    audit: AuditOptions
    backups: BackupOptions
    history: HistoryOptions
    dashboard: DashboardOptions = DashboardOptions()
    progress_endpoint: bool = True
    notify: tuple[str, ...] = ()
    hang_watch: bool = True
    hung_after: float = 60.0
    operator: str = "gangline"
    """`gangline`: the plane runs jobs. `none`: somebody else's operator does, with definitions of its own."""
    runs_pods: bool = True
    """Whether this machine is a node. If not, pods are left to kubelets and a scheduler of others."""
    warnings: bool = True
    """Whether clients are warned of objects that nothing acts on."""
    conformance: bool = False
    """Only what kube-apiserver has, answering as it does."""

    @property
    def runs_operator(self) -> bool:
        return self.operator == "gangline" and not self.conformance

    def check(self) -> None:
        """Raise `InputError` for options that cannot be used. Needs no folder of a plane."""
        self._node_settings()
        self.access.check()
        self.history.mirror(Path())
        notification_settings(self.notify)
        if not self.runs_operator:
            without = "--conformance" if self.conformance else "--operator none"
            for option, is_given in (("--gang", self.gang), ("--notify", bool(self.notify))):
                if is_given:
                    raise InputError(f"{option}: needs gangline's operator; leave out {option} or {without}")

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options."""
        arguments = ["--port", str(self.port), "--bind", self.host, "--default-scheduler", self.default_scheduler]
        arguments += ["--operator", self.operator, *([] if self.warnings else ["--no-warnings"])]
        arguments += ["--conformance"] if self.conformance else []
        arguments += [] if self.runs_pods else ["--no-node"]
        arguments += ["--authorization-mode", self.authorization, *(["--gang"] if self.gang else [])]
        arguments += [] if self.progress_endpoint else ["--no-progress-endpoint"]
        arguments += ["--hung-after", f"{self.hung_after:g}s", *([] if self.hang_watch else ["--no-hang-watch"])]
        arguments += [argument for name in self.allowed_hosts for argument in ("--allow-host", name)]
        for options in (self.node, self.access, self.audit, self.backups, self.history, self.dashboard):
            arguments += options.as_arguments()
        arguments += [argument for one in self.notify for argument in ("--notify", absolute_option(one))]
        return arguments

    def local_settings(self, home: "PlaneHome") -> "LocalSettings":
        """The settings of a plane in this home. Chooses its port, and creates its token if missing. Raises `InputError`."""
        import msgspec

        from gangline.apiserver.admission.service_account import ServiceAccountAdmission
        from gangline.cli.run.kept_files import state_artifacts
        from gangline.local.cluster import LocalSettings
        from gangline.local.plane import AuthorizationMode, PlaneSettings

        plane = PlaneSettings(
            host=self.host,
            port=home.choose_port(self.port),
            certificates=home.certificates,
            token=home.ensure_token(),
            service_account_key=home.service_account_key,
            audit=self.audit.settings(),
            allowed_hosts=self.allowed_hosts,
            authorization_mode=AuthorizationMode(self.authorization),
            warn_on_inert_kinds=self.warnings and not self.conformance,
        )
        plane = self.access.apply(plane)
        if self.conformance:
            disabled = (*plane.disabled_admission_plugins, ServiceAccountAdmission.name)
            plane = msgspec.structs.replace(plane, disabled_admission_plugins=disabled)
        return LocalSettings(
            folder=Path.cwd(),
            logs=home.pods,
            state=home.state,
            plane=plane,
            node=msgspec.structs.replace(self._node_settings(), artifacts=state_artifacts(home).pattern),
            default_scheduler_enabled=self.default_scheduler == "fit",
            node_enabled=self.runs_pods and not self.conformance,
        )

    def _node_settings(self) -> "NodeSettings":
        from gangline.node.options import node_settings

        return node_settings(**self.node._asdict())
