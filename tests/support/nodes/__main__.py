"""The command behind hack/cluster.sh, and the first processes of the namespaces that it makes."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.nodes import control_plane, keeper, node
from support.nodes.layout import NODES, SERVERS, Layout
from support.nodes.machine import obstacle
from support.nodes.processes import ClusterError

PROGRAMS = ("kubernetes", "packages", "coredns", "pause", "busybox")  # what hack/cluster.sh brings
NOT_ALLOWED = 3  # the exit code of `up` where the machine cannot run nodes


def main(words: Sequence[str]) -> int:
    """Run one command. Returns its exit code."""
    arguments = _parser().parse_args(words)
    folder = Path(arguments.folder).absolute()
    try:
        return int(arguments.run(folder, arguments) or 0)
    except ClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cluster")
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: object) -> argparse.ArgumentParser:
        added = commands.add_parser(name)
        added.set_defaults(run=run)
        added.add_argument("folder")
        return added

    for name in ("check", "up"):
        added = command(name, _up if name == "up" else _check)
        for program in PROGRAMS:
            added.add_argument(f"--{program}", type=Path, required=True)
        added.add_argument("--server", choices=SERVERS, default=SERVERS[0])
    command("down", lambda folder, arguments: _down(folder))
    command("status", lambda folder, arguments: _status(folder))
    command("exec", _exec).add_argument("command", nargs=argparse.REMAINDER)
    command("load", _load).add_argument("archives", nargs="+", type=Path)
    command("keeper", lambda folder, arguments: keeper.keep(Layout.read(folder)))
    command("control-plane", lambda folder, arguments: control_plane.serve(Layout.read(folder)))
    command("power-on", _power_on).add_argument("name")
    command("node", _node).add_argument("name")
    return parser


def _layout(folder: Path, arguments: argparse.Namespace) -> Layout:
    return Layout(folder, **{program: getattr(arguments, program) for program in PROGRAMS}, server=arguments.server)


def _check(folder: Path, arguments: argparse.Namespace) -> int:
    reason = obstacle(folder, {**os.environ, **_layout(folder, arguments).service_env()})
    if reason is None:
        return 0
    sys.stderr.write(f"no nodes on this machine: {reason}\n")
    return NOT_ALLOWED


def _up(folder: Path, arguments: argparse.Namespace) -> int:
    with keeper.exclusive(folder):
        if keeper.keeper_pid(folder) is not None:
            return _status(folder)
        keeper.end(folder)  # what a crash left
        if code := _check(folder, arguments):
            return code
        keeper.start_keeper(_layout(folder, arguments))
    return _status(folder)


def _down(folder: Path) -> None:
    with keeper.exclusive(folder):
        keeper.end(folder)


def _status(folder: Path) -> int:
    if keeper.keeper_pid(folder) is None:
        sys.stdout.write("down\n")
        return 1
    sys.stdout.write(f"up: nodes {', '.join(item.name for item in NODES)}, files in {folder}\n")
    return 0


def _enter(folder: Path) -> tuple[Layout, list[str]]:
    """The words that bring a command into the cluster's namespaces, in this folder of the caller."""
    if keeper.keeper_pid(folder) is None:
        raise ClusterError("the cluster is down; run hack/cluster.sh up")
    layout = Layout.read(folder)
    first = (layout.pids / "control-plane").read_text()
    change = ["sh", "-c", 'cd "$0" && exec "$@"', os.fspath(Path.cwd())]
    return layout, ["nsenter", f"--target={first}", "--mount", "--net", "--pid", "--", *change]


def _exec(folder: Path, arguments: argparse.Namespace) -> int:
    layout, enter = _enter(folder)
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        raise ClusterError("exec needs a command: hack/cluster.sh exec -- kubectl get nodes")
    os.execvpe(enter[0], [*enter, *command], layout.user_env())


def _load(folder: Path, arguments: argparse.Namespace) -> None:
    layout, enter = _enter(folder)
    for archive in arguments.archives:
        if not archive.exists():
            raise ClusterError(f"{archive} does not exist")
    imports = []
    for item in NODES:
        inside = ["nsenter", f"--target={(layout.pids / item.name).read_text()}", "--mount", "--"]
        words = [*enter, *inside, *node.IMPORT]
        imports += [(words, archive.absolute()) for archive in arguments.archives]
    started = [
        subprocess.Popen(
            [*words, str(file)], env=layout.service_env(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        for words, file in imports
    ]
    errors = [errors.decode().strip() for _, errors in (process.communicate() for process in started)]
    for (_, file), process, text in zip(imports, started, errors, strict=True):
        if process.returncode:
            raise ClusterError(f"{file} cannot be loaded: {text}")


def _power_on(folder: Path, arguments: argparse.Namespace) -> None:
    control_plane.start_node(Layout.read(folder), node.node_address(arguments.name))
    control_plane.wait_for_node(Layout.read(folder), arguments.name)


def _node(folder: Path, arguments: argparse.Namespace) -> None:
    node.serve(Layout.read(folder), node.node_address(arguments.name))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
