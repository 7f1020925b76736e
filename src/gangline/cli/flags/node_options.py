"""The options of the node of this machine, the same for every command that starts one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class NodeOptions(NamedTuple):
    """The node options, as given on the command line: `NodeOptions(**node)`."""

    capacity: tuple[str, ...] = ()
    images: Path | None = None
    runtime: str = "process"
    network: str = "shared"

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options."""
        capacity = [argument for amount in self.capacity for argument in ("--capacity", amount)]
        images = ["--images", str(self.images.absolute())] if self.images is not None else []
        return [*capacity, *images, "--runtime", self.runtime, "--network", self.network]


def node_options(command: F) -> F:
    """Add the node options to a command, which takes them as `**node`."""
    options = (
        click.option(
            "--capacity",
            multiple=True,
            metavar="NAME=AMOUNT",
            help="A resource to offer, such as nvidia.com/gpu=4.",
        ),
        click.option(
            "--images",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="What stands for images on this machine, where they are not pulled.",
        ),
        click.option(
            "--runtime",
            type=click.Choice(["process", "podman", "docker"]),
            default="process",
            show_default=True,
            help="What runs containers: processes of this machine, or real images.",
        ),
        click.option(
            "--network",
            type=click.Choice(["shared", "isolated"]),
            default="shared",
            show_default=True,
            help="Whether pods share loopback, or each has a network of its own with the cluster's names and ports.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
