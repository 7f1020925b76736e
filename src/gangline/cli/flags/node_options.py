"""What can be said about the node on a command line, the same for every command that has one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class NodeOptions(NamedTuple):
    """As given: take them as keywords, `NodeOptions(**given)`. `local.node.choosing.settings` makes sense of them."""

    capacity: tuple[str, ...] = ()
    images: Path | None = None
    runtime: str = "process"
    network: str = "shared"

    def as_arguments(self) -> list[str]:
        """As they would be written on a command line."""
        found = [part for amount in self.capacity for part in ("--capacity", amount)]
        found += ["--images", str(self.images.absolute())] if self.images is not None else []
        return [*found, "--runtime", self.runtime, "--network", self.network]


def node_options(command: F) -> F:
    """The options, for a command that takes them as `**node`."""
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
