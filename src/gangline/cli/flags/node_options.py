"""The options of the node of this machine, the same for every command that starts one."""

from pathlib import Path
from typing import NamedTuple

import click

from gangline.base.options import choice_option, option_group


class NodeOptions(NamedTuple):
    """The node options, as given on the command line: `NodeOptions(**node)`."""

    capacity: tuple[str, ...] = ()
    images: Path | None = None
    image_map: tuple[str, ...] = ()
    runtime: str = "auto"
    network: str = "shared"

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options."""
        capacity = [argument for amount in self.capacity for argument in ("--capacity", amount)]
        images = ["--images", str(self.images.absolute())] if self.images is not None else []
        mappings = [argument for mapping in self.image_map for argument in ("--image-map", absolute_mapping(mapping))]
        return [*capacity, *images, *mappings, "--runtime", self.runtime, "--network", self.network]


def absolute_mapping(text: str) -> str:
    """The same `--image-map` in a process with another working directory."""
    name, _, value = text.partition("=")
    return f"{name}={Path(value).expanduser().absolute()}" if name.startswith("/") else text


node_options = option_group(
    click.option(
        "--capacity",
        multiple=True,
        metavar="NAME=AMOUNT",
        help="A resource to offer, such as nvidia.com/gpu=4; GPUs are detected.",
    ),
    click.option(
        "--images",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A mapping of images to environments of this machine, for pods that run as processes.",
    ),
    click.option(
        "--image-map",
        multiple=True,
        metavar="/FOLDER=FOLDER|IMAGE=COMMAND",
        help="Where a folder of the images is on this machine, or the command of an image.",
    ),
    choice_option(
        "--runtime",
        ["auto", "process", "podman", "docker"],
        "How to run containers: as processes of this machine, from their images, or as processes except where only "
        "the image has the files and podman or docker can run it.",
    ),
    choice_option(
        "--network",
        ["shared", "isolated"],
        "Whether pods share loopback, or each has its own network with the cluster's names and ports.",
    ),
)
"""Adds the node options to a command, which takes them as `**node`."""
