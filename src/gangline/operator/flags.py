"""Turns the flags of `gangline operator` into settings."""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.kubeflow.kinds import JOB_APIS, TRAINING_KINDS
from gangline.api.names import MAX_DNS_LABEL_LENGTH
from gangline.base.errors import InputError
from gangline.health.settings import watch_settings
from gangline.jobs.plan.recovery.bad_nodes import BadNodeLimits
from gangline.jobs.pods.progress_reporting import ProgressEndpoint
from gangline.jobs.site import ServiceMode
from gangline.operator.gang_schedulers import site_from_flag
from gangline.operator.go_flags import process_flags
from gangline.operator.settings import (
    ALL_V1,
    NOTIFICATIONS_VARIABLE,
    V1_INIT_IMAGE,
    OperatorProcessSettings,
    OperatorSettings,
    ProgressSettings,
)
from gangline.runtime.health import BindAddress
from gangline.schema.names import DNS_LABEL_PATTERN

if TYPE_CHECKING:
    from gangline.notify.plan.routes import NotificationSettings

INIT_TEMPLATE_FILE = Path("/etc/config/initContainer.yaml")
"""The default path of the template of PyTorch's init container, as in the Kubeflow operator."""


def settings_from_flags(flags: Mapping[str, Any], environ: Mapping[str, str]) -> OperatorProcessSettings:
    """The settings that flags and environment describe. `flags` are by name, with underscores. Raises `InputError`."""
    site = msgspec.structs.replace(
        site_from_flag(flags["gang_scheduler_name"], protect=flags["protect_gangs"]),
        services=ServiceMode(flags["services"]),
        legacy_labels=flags["legacy_labels"],
        domain=environ.get("CUSTOM_CLUSTER_DOMAIN", ""),
        progress=progress_endpoint(
            flags["progress_url"],
            flags["progress_bind_address"],
            flags["progress_cert_path"],
            every_job=flags["inject_progress"],
        ),
    )
    template = init_template(Path(flags["pytorch_init_container_template_file"]))
    operator = OperatorSettings(
        kinds=canonical_kinds(flags["kinds"]),
        namespaces=namespace_list(flags["namespaces"]),
        site=site,
        workers=flags["workers"],
        pytorch_init_image=init_image(flags["pytorch_init_container_image"], template, flags["agent_image"]),
        pytorch_init_tries=flags["pytorch_init_container_max_tries"],
        pytorch_init_template=template,
        mpi_launcher_account=flags["mpi_launcher_service_account"],
        hang_watch=watch_settings(flags["hung_after"]) if flags["hang_watch"] else None,
        bad_nodes=BadNodeLimits(
            forgive_after=timedelta(seconds=flags["bad_node_forgive_after"]), share=flags["bad_node_share"]
        ),
        hang_stacks=flags["hang_stacks"],
    )
    images = launcher_images(flags["mpi_kubectl_delivery_image"], flags["agent_image"])
    operator = msgspec.structs.replace(operator, **images)
    return OperatorProcessSettings(
        operator=operator,
        **process_flags(flags),
        qps=flags["qps"],
        burst=flags["burst"],
        grace=timedelta(seconds=flags["grace"]),
        take_over=flags["take_over"],
        pod=environ.get("POD_NAME", ""),
        progress=ProgressSettings(
            address=flags["progress_bind_address"],
            cert_path=flags["progress_cert_path"],
            log_streams=flags["progress_log_streams"],
        ),
        notifications=notification_settings(flags["notifications_file"], environ.get(NOTIFICATIONS_VARIABLE, "")),
    )


def progress_endpoint(url: str, address: str, cert_path: str, *, every_job: bool) -> ProgressEndpoint | None:
    """Where pods report progress; None: they are not told. Raises `InputError`."""
    listens = BindAddress.parse(address, "--progress-bind-address") is not None
    if cert_path and not listens:
        raise InputError("--progress-cert-path: is for the endpoint for progress; add --progress-bind-address")
    if not url:
        if every_job:
            raise InputError(
                "--inject-progress: pods must know where to report; add --progress-url http://SERVICE.NAMESPACE.svc:8082"
            )
        return None
    if not listens:
        raise InputError("--progress-url: nobody listens there; add --progress-bind-address :8082")
    scheme = "https" if cert_path else "http"
    if not re.fullmatch(rf"{scheme}://[^/\s?#@]+/?", url):
        raise InputError(f'--progress-url: is "{url}"; write {scheme}://HOST:PORT, as pods reach the operator')
    return ProgressEndpoint(url.rstrip("/"), _authority(Path(cert_path)) if cert_path else "", every_job)


def _authority(folder: Path) -> str:
    """The certificate authority in the folder of a certificate; empty if there is none: images then trust it already."""
    try:
        return (folder / "ca.crt").read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--progress-cert-path {folder}: ca.crt cannot be read: {error}") from error


def namespace_list(values: Iterable[str]) -> tuple[str, ...]:
    """The namespaces of a flag that may be repeated and may have commas, in order, each once. Raises `InputError`."""
    names = [name.strip() for value in values for name in value.split(",")] if any(values) else []
    for name in names:
        if len(name) > MAX_DNS_LABEL_LENGTH or not re.fullmatch(DNS_LABEL_PATTERN, name):
            raise InputError(
                f'--namespace: "{name}" is not the name of a namespace; write one, or several with commas: team-a,team-b'
            )
    return tuple(dict.fromkeys(names))


def canonical_kinds(names: tuple[str, ...]) -> tuple[str, ...]:
    """The kinds with these names in any case, in canonical spelling and order; the kinds of v1 if there are no names.

    `all` stands for the kinds of v1, too. Raises `InputError` for an unknown kind.
    """
    kinds = {kind.scheme.lower(): kind.scheme for kind in JOB_APIS}
    enabled = {name.lower() for name in names} or {ALL_V1}
    for name in names:
        if name.lower() not in (*kinds, ALL_V1):
            choices = ", ".join([*kinds.values(), ALL_V1])
            raise InputError(f"--enable-scheme: scheme {name} is not supported yet; write one of {choices}")
    if ALL_V1 in enabled:
        enabled |= {kind.kind.lower() for kind in TRAINING_KINDS}
    return tuple(kind for name, kind in kinds.items() if name in enabled)


def init_image(image: str | None, template: str | None, agent_image: str) -> str:
    """The image of PyTorch's init container; empty: none.

    An operator that knows its own image pulls no other. One that does not is exactly v1.
    """
    if image is not None:
        return image
    return "" if agent_image and template is None else V1_INIT_IMAGE


def launcher_images(delivery_image: str | None, agent_image: str) -> dict[str, str]:
    """The settings of the images for MPI launchers: v1's if asked for or if the agent's is not known, else the agent's."""
    if delivery_image is not None:
        return {"mpi_delivery_image": delivery_image}
    return {"agent_image": agent_image}


def notification_settings(file: Path | None, text: str) -> "NotificationSettings | None":
    """The settings of notifications in a file or, without one, in the text of a variable. Raises `InputError`."""
    if file is None and not text.strip():
        return None
    # Imported here: most operators notify nobody.
    from gangline.notify.plan.routes import parse_settings

    if file is None:
        return parse_settings(text, NOTIFICATIONS_VARIABLE)
    return parse_settings(_flag_file(file, "--notifications-file"), str(file))


def _flag_file(file: Path, flag: str) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise InputError(f"{flag}: {file}: {reason}") from error


def init_template(file: Path) -> str | None:
    """The text of the file; None if it is the default file and does not exist. Raises `InputError`."""
    try:
        return file.read_text()
    except FileNotFoundError:
        if file == INIT_TEMPLATE_FILE:
            return None
        raise InputError(f"--pytorch-init-container-template-file: {file}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise InputError(f"--pytorch-init-container-template-file: {file}: {reason}") from error
