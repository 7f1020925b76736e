"""What the flags of `gangline operator` mean."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.base.errors import InputError
from gangline.jobs.site import ServiceMode
from gangline.operator.gang_schedulers import site_from_flag
from gangline.operator.settings import OperatorProcessSettings, OperatorSettings

INIT_TEMPLATE_FILE = Path("/etc/config/initContainer.yaml")
"""Where a template for PyTorch's init container may be; the Kubeflow operator looks there too."""


def settings_from_flags(flags: Mapping[str, Any], environ: Mapping[str, str]) -> OperatorProcessSettings:
    """Raises `InputError`. `flags` by their names, with underscores, as `gangline operator` has them."""
    site = msgspec.structs.replace(
        site_from_flag(flags["gang_scheduler_name"], protect=flags["protect_gangs"]),
        services=ServiceMode(flags["services"]),
        legacy_labels=flags["legacy_labels"],
        domain=environ.get("CUSTOM_CLUSTER_DOMAIN", ""),
    )
    operator = OperatorSettings(
        kinds=canonical_kinds(flags["kinds"]),
        namespace=flags["namespace"],
        site=site,
        workers=flags["workers"],
        pytorch_init_image=flags["pytorch_init_container_image"],
        pytorch_init_tries=flags["pytorch_init_container_max_tries"],
        pytorch_init_template=init_template(Path(flags["pytorch_init_container_template_file"])),
        mpi_delivery_image=flags["mpi_kubectl_delivery_image"],
    )
    return OperatorProcessSettings(
        operator=operator,
        metrics_address=flags["metrics_bind_address"],
        probe_address=flags["health_probe_bind_address"],
        leader_elect=flags["leader_elect"],
        lease=flags["leader_election_id"],
        lease_namespace=flags["leader_election_namespace"],
        qps=flags["qps"],
        burst=flags["burst"],
        grace=timedelta(seconds=flags["grace"]),
        take_over=flags["take_over"],
        pod=environ.get("POD_NAME", ""),
        install_crds=flags["install_crds"],
    )


def canonical_kinds(asked: tuple[str, ...]) -> tuple[str, ...]:
    """The kinds by their proper names, in our order; all if none is asked for. Raises `InputError`."""
    known = {kind.kind.lower(): kind.kind for kind in TRAINING_KINDS}
    for name in asked:
        if name.lower() not in known:
            raise InputError(
                f"--enable-scheme: scheme {name} is not supported yet; write one of {', '.join(known.values())}"
            )
    wanted = {name.lower() for name in asked} or known.keys()
    return tuple(kind for name, kind in known.items() if name in wanted)


def init_template(file: Path) -> str | None:
    """The text of the file; None if it is the default one and does not exist. Raises `InputError`."""
    try:
        return file.read_text()
    except FileNotFoundError:
        if file == INIT_TEMPLATE_FILE:
            return None
        raise InputError(f"--pytorch-init-container-template-file: {file}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not text"
        raise InputError(f"--pytorch-init-container-template-file: {file}: {why}") from error
