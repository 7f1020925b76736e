"""Build the images that the tests in a real cluster run, from what hack/testimages.sh has brought."""

import argparse
import os
import platform
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from hack.images import oci
from hack.images.base import MACHINES, SITE, Compiler, base_tree, read_debs
from hack.images.packages import read_wheel
from hack.images.tree import Tree, below, file, folder, link, size

BUSYBOX = "usr/bin/busybox"
APPLETS = (
    "[ awk basename cat chmod cp cut date dd df dirname du echo env expr false find free grep head hostname id ifconfig "
    "ip kill ln ls mkdir mktemp mv nc nohup nslookup ping printf ps pwd readlink realpath rm sed seq sh sleep sort stat "
    "stty sync tail tar tee test timeout top touch tr true uname uniq vi wc wget which whoami xargs yes"
)

# Headers, programs for tests, and the tools of the environment that the packages are taken from.
_NO_TORCH = re.compile(
    r"""
    .*/(__pycache__|include|tests)/ | .*\.(a|h|cuh|cpp|pyi|lib)$
    | torch/(test|share)/ | torch/bin/(?!torch_shm_manager$) | (pip|setuptools|pkg_resources|_distutils_hack)(-[^/]+)?/ | distutils-precedence\.pth
    """,
    re.VERBOSE,
)
# Perl, which only maintainer scripts need, and a transport whose library has its name from update-alternatives.
_NO_MPI = re.compile(
    r"""
    usr/share/(perl|perl5|bash-completion)/ | usr/lib/[^/]+/(perl|perl-base|libperl)[^a-z] | usr/bin/perl
    | usr/lib/.*\.a$ | .*/mca_mtl_psm\.so
    """,
    re.VERBOSE,
)

SSHD = """\
Port 22
HostKey /etc/ssh/host_key
PermitRootLogin yes
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile /run/sshd.pid
"""
# As mpi-operator's own images have it for jobs whose sshAuthMountPath is /home/mpiuser/.ssh.
USER_SSHD = """\
Port 2222
HostKey /home/mpiuser/.ssh/id_rsa
StrictModes no
UsePAM no
PidFile /home/mpiuser/sshd.pid
"""
SSH = """\
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
Match localuser mpiuser
    Port 2222
"""
MPI_USER = 1000


def shell(program: bytes) -> Tree:
    """Busybox and the commands that it knows."""
    return {BUSYBOX: file(program, 0o755)} | {f"usr/bin/{name}": link("busybox") for name in APPLETS.split()}


def pause(inputs: Path, _compiler: Callable[[], Compiler]) -> Tree:
    """A program that waits, and reaps what others leave to it. The root of every pod's namespaces."""
    return {"pause": file(inputs / "pause", 0o755)}


def busybox(inputs: Path, _compiler: Callable[[], Compiler]) -> Tree:
    """A shell and small commands, in one static program."""
    return base_tree([]) | shell((inputs / "busybox").read_bytes()) | {"bin": link("usr/bin")}


def python_torch(inputs: Path, compiler: Callable[[], Compiler]) -> Tree:
    """Python with torch and numpy, without CUDA."""
    installed = below(inputs / "site", SITE, lambda path: not _NO_TORCH.match(path.removeprefix(f"{SITE}/")))
    tree = base_tree(read_debs(inputs / "debs")) | shell((inputs / "busybox").read_bytes()) | dict(installed)
    return tree | compiler().compile(tree)


def openmpi(inputs: Path, compiler: Callable[[], Compiler]) -> Tree:
    """Open MPI, an SSH server and client as MPIJob v2beta1 wants them, and Python with mpi4py and numpy."""
    packages = {path: node for path, node in base_tree(read_debs(inputs / "debs")).items() if not _NO_MPI.match(path)}
    (wheel,) = (inputs / "wheels").glob("numpy-*.whl")
    accounts = f"sshd:x:100:65534::/run/sshd:/sbin/nologin\nmpiuser:x:{MPI_USER}:{MPI_USER}::/home/mpiuser:/bin/sh\n"
    settings = {
        "etc/ssh/sshd_config": file(SSHD),
        "etc/ssh/ssh_config": file(SSH),
        "etc/ssh/host_key": file(inputs / "host_key", 0o600),
        "etc/passwd": file(packages["etc/passwd"].read().decode() + accounts),
        "home/mpiuser": folder(0o755, MPI_USER),
        "home/mpiuser/.sshd_config": file(USER_SSHD),
        "run/sshd": folder(),
        "usr/bin/sh": link("busybox"),
    }
    settings |= {f"usr/bin/{name}": link(f"{name}.openmpi") for name in ("mpirun", "mpiexec")}
    numpy = read_wheel(wheel, SITE, lambda path: "/tests/" not in path)
    tree = shell((inputs / "busybox").read_bytes()) | packages | numpy.tree | settings
    return tree | compiler().compile(tree)


IMAGES: dict[str, Callable[[Path, Callable[[], Compiler]], Tree]] = {
    "pause": pause,
    "busybox": busybox,
    "python-torch": python_torch,
    "openmpi": openmpi,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=IMAGES)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    os.umask(0o022)
    here = MACHINES[platform.machine()]
    with tempfile.TemporaryDirectory(dir=options.inputs) as scratch:
        place = Path(scratch)
        tree = IMAGES[options.name](
            options.inputs, lambda: Compiler(base_tree(read_debs(options.inputs / "debs")), here, place)
        )
        layer = oci.write_layer(place / "layer.tar", options.name, tree, 0)
        config = {"Env": ["PATH=/usr/local/bin:/usr/bin:/usr/sbin", "LANG=C.UTF-8"], "Cmd": ["/bin/sh"]}
        if options.name == "pause":
            config = {"Entrypoint": ["/pause"]}
        archive = oci.write_archive(
            options.output, f"gangline-test/{options.name}:1", oci.Image(here, config, [layer]), 0
        )
    print(f"{archive} {size(tree.values()) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
