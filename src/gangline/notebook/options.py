"""The options of a `%%gangline` line. Pure."""

import argparse
import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from IPython.core.error import UsageError

from gangline.api.quantity import QuantityError, parse_resources
from gangline.sdk.train import FRAMEWORK_KINDS

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")


class CellOptions(NamedTuple):
    """How a cell is run."""

    nproc: int = 1
    framework: str = "pytorch"
    # Resource limits of each process by name.
    limits: Mapping[str, str] = {}
    max_restarts: int = 0
    name: str = ""
    context: str | None = None
    namespace: str | None = None
    image: str = ""
    # Variables of the notebook that the cell gets, and variables of the cell that the notebook gets.
    send: tuple[str, ...] = ()
    get: tuple[str, ...] = ()


class CellOptionParser(argparse.ArgumentParser):
    """Raises `UsageError`, which IPython shows as one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; %%gangline --help lists the options")


def _parser() -> CellOptionParser:
    parser = CellOptionParser(
        "%%gangline", description="Run the cell as a team of processes.", add_help=False, allow_abbrev=False
    )
    parser.add_argument("--nproc", "-n", type=int, default=1, metavar="N", help="The number of processes.")
    parser.add_argument("--framework", default="pytorch", metavar="NAME", help=f"One of {', '.join(FRAMEWORK_KINDS)}.")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=AMOUNT",
        help="A resource limit of each process, such as gpu=1 or memory=4Gi.",
    )
    parser.add_argument(
        "--max-restarts", type=int, default=0, metavar="N", help="How often the team is started again after a failure."
    )
    parser.add_argument("--name", default="", metavar="NAME", help="The name of the job.")
    parser.add_argument("--send", default="", metavar="A,B", help="Variables of the notebook that the cell gets.")
    parser.add_argument("--get", default="", metavar="A,B", help="Variables of rank 0 that the notebook gets.")
    parser.add_argument("--context", metavar="NAME", help="Run in this cluster instead of on this machine.")
    parser.add_argument("--namespace", metavar="NAME", help="The namespace; with --context.")
    parser.add_argument("--image", default="", metavar="IMAGE", help="The image; with --context.")
    return parser


def help_text() -> str:
    return _parser().format_help()


def parse_options(line: str) -> CellOptions:
    """The options of a line. Raises `UsageError` that says what to write."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line}: {error}") from error
    found = _parser().parse_args(words)
    if found.nproc < 1:
        raise UsageError(f"--nproc: is {found.nproc}; write 1 or more")
    if found.max_restarts < 0:
        raise UsageError(f"--max-restarts: is {found.max_restarts}; write 0 or more")
    if found.framework not in FRAMEWORK_KINDS:
        raise UsageError(f"--framework: is {found.framework!r}; write one of {', '.join(FRAMEWORK_KINDS)}")
    if found.name and not _NAME.fullmatch(found.name):
        raise UsageError(f"--name: is {found.name!r}; write small letters, digits and -, at most 52")
    for option in ("image", "namespace"):
        if getattr(found, option) and found.context is None:
            raise UsageError(f"--{option}: the cell runs on this machine; add --context NAME to run it in a cluster")
    return CellOptions(
        found.nproc,
        found.framework,
        dict(_limit(text) for text in found.limit),
        found.max_restarts,
        found.name,
        found.context,
        found.namespace,
        found.image,
        _variable_names("send", found.send),
        _variable_names("get", found.get),
    )


def _limit(text: str) -> tuple[str, str]:
    name, _, amount = text.partition("=")
    try:
        parse_resources({name: amount})
    except QuantityError:
        name = ""
    if not name:
        raise UsageError(f"--limit: is {text!r}; write NAME=AMOUNT, such as gpu=1 or memory=4Gi")
    return name, amount


def _variable_names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    wrong = [name for name in names if not name.isidentifier()]
    if wrong:
        raise UsageError(f"--{option}: {wrong[0]!r} is no variable; write names with commas, such as --{option} a,b")
    return names
