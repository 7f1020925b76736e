"""The options that `install`, `upgrade` and `handover` share, and the request that they make."""

from typing import TYPE_CHECKING, Any

import click

from gangline.base.errors import InputError
from gangline.base.options import option_group
from gangline.cli.flags.commands import completed_by
from gangline.cli.flags.durations import duration_option

if TYPE_CHECKING:
    from gangline.cli.install.request import InstallRequest

namespace_option = click.option(
    "-n",
    "--namespace",
    "install_namespace",
    metavar="NAME",
    help="Namespace of the operator.  [default: gangline, or the first of --scope namespace=...]",
    shell_complete=completed_by("namespaces"),
)
wait_options = option_group(
    click.option(
        "--wait/--no-wait", default=True, help="Return when the operator is ready, or at once.  [default: wait]"
    ),
    duration_option("--timeout", "5m", "How long to wait for that."),
)
value_options = option_group(
    click.option(
        "--scope",
        default="",
        metavar="SCOPE",
        help="Whose jobs to serve. cluster: those of all namespaces. namespace=a,b: those of a and b only, which needs no right"
        " in the whole cluster.  [default: cluster]",
    ),
    click.option(
        "--with",
        "components",
        default="",
        metavar="NAMES",
        help="What to install beside the operator: scheduler, dashboard.",
    ),
    click.option("--image", default="", metavar="REF", help="Image of all components.  [default: gangline:VERSION]"),
    click.option(
        "-f",
        "--values",
        "value_files",
        multiple=True,
        metavar="FILE",
        help="Values of the Helm chart from a file; - is standard input; may be repeated.",
    ),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="NAME=VALUE",
        help="One value of the Helm chart, as in logLevel=debug or image.tag=0.1.0; may be repeated.",
    ),
    click.option("--force-conflicts", "force", is_flag=True, help="Also change fields that another tool has set."),
)


def install_request(params: dict[str, Any]) -> "InstallRequest":
    """The request of `value_options` and `wait_options`; without a namespace where none is given. Raises `InputError`."""
    from gangline.cli.install.flag_values import ValueFlags, given_values
    from gangline.cli.install.request import InstallRequest, install_values

    files = [(name, content) for name in params["value_files"] for content in _read_values(name)]
    values = given_values(
        ValueFlags(files, params["assignments"], params["scope"], params["components"], params["image"])
    )
    install_values(values)
    check_namespace(params["install_namespace"] or "")
    return InstallRequest(
        namespace=params["install_namespace"] or "",
        values=values,
        dry_run=params["dry_run"],
        wait=params["wait"],
        timeout=params["timeout"],
        force=params["force"],
    )


def check_namespace(name: str) -> None:
    """Raise `InputError` if no namespace can have this name. An empty name is one that is not given."""
    from gangline.schema.names import dns_label_errors

    if name and dns_label_errors(name):
        raise InputError(f'--namespace: "{name}" cannot be a namespace; write lower-case letters, digits and dashes')


def _read_values(name: str) -> list[Any]:
    import yaml

    from gangline.cli.manifests.files import file_text

    try:
        content = yaml.safe_load(file_text(name))
    except yaml.YAMLError as error:
        raise InputError(f"{name}: {' '.join(str(error).split())}") from error
    return [content] if content is not None else []
