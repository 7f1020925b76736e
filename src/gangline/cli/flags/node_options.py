"""The options of the node of this machine, the same for every command that starts one."""

from pathlib import Path
from typing import NamedTuple

import click

from gangline.base.options import choice_option, option_group


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


node_options = option_group(
    click.option(
        "--capacity", multiple=True, metavar="NAME=AMOUNT", help="A resource to offer, such as nvidia.com/gpu=4."
    ),
    click.option(
        "--images",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A mapping of images to environments of this machine, for pods that run as processes.",
    ),
    choice_option(
        "--runtime",
        ["process", "podman", "docker"],
        "How to run containers: as processes of this machine, or from their images.",
    ),
    choice_option(
        "--network",
        ["shared", "isolated"],
        "Whether pods share loopback, or each has its own network with the cluster's names and ports.",
    ),
)
"""Adds the node options to a command, which takes them as `**node`."""
