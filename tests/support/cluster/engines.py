"""Real podman and docker, with a registry on loopback, from the packages that hack/engines.sh unpacks."""

import hashlib
import json
import os
import resource
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from support.requirements import skip_or_fail

HACK = Path(__file__).parents[3] / "hack" / "engines.sh"
REQUIRED = "GANGLINE_REQUIRE_ENGINES"
START_SECONDS = 30


def packages_folder() -> Path:
    """Where hack/engines.sh unpacks. Skips the test if it has not been run."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gangline"
    cache = Path(os.environ.get("GANGLINE_CACHE") or default)
    folder = cache / f"engines-{hashlib.sha256(HACK.read_bytes()).hexdigest()[:12]}"
    if not (folder / "complete").exists():
        skip_or_fail("podman and docker are not there; run hack/engines.sh", required=REQUIRED)
    if os.geteuid():
        skip_or_fail("containers of unpacked engines need root", required=REQUIRED)
    return folder


class Registry(NamedTuple):
    """A registry on loopback."""

    address: str

    def image(self, name: str) -> str:
        return f"{self.address}/{name}"


class Engine(NamedTuple):
    """A container engine whose storage is a folder of the test."""

    kind: str
    program: Path
    env: Mapping[str, str]

    def __call__(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [self.program, *words], env=self.env, capture_output=True, text=True, check=check, timeout=60
        )

    def containers(self) -> list[str]:
        """The names of all containers, also of those that have ended."""
        return self("ps", "--all", "--format", "{{.Names}}").stdout.split()


def library_env(packages: Path) -> dict[str, str]:
    libraries = ":".join(str(path) for path in (packages / "sys/usr/lib").glob("*-linux-gnu*"))
    programs = ":".join(str(packages / "sys/usr" / folder) for folder in ("bin", "sbin"))
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "PATH": f"{programs}:{os.environ['PATH']}"}


def write_program(path: Path, program: Path, env: Mapping[str, str]) -> Path:
    """A script that runs a program with variables of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = " ".join(f"{name}='{value}'" for name, value in env.items())
    path.write_text(f'#!/bin/sh\n{words} exec "{program}" "$@"\n')
    path.chmod(0o755)
    return path


@contextmanager
def podman(packages: Path, folder: Path) -> Iterator[Engine]:
    """Podman with its storage and configuration in a folder."""
    try:
        yield _podman(packages, folder)
    finally:
        unmount_below(folder)


def unmount_below(folder: Path) -> None:
    """Unmount what an engine leaves mounted in its storage, so that the folder can be removed."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", mount], check=True)


def _podman(packages: Path, folder: Path) -> Engine:
    usr, full = packages / "sys/usr", library_env(packages)
    libraries = {"LD_LIBRARY_PATH": full["LD_LIBRARY_PATH"]}
    conmon = write_program(folder / "helpers/conmon", usr / "bin/conmon", libraries)
    # Debian's crun refuses machines with both versions of cgroups.
    runc = next(path for path in (usr / "sbin/runc", usr / "bin/runc") if path.exists())
    # Podman raises limits by default, which a container around the tests may forbid.
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    (folder / "home/.config/containers").mkdir(parents=True)
    (folder / "home/.config/containers/policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (folder / "containers.conf").write_text(
        f'[containers]\npids_limit = 0\ndefault_ulimits = ["nofile={files}:{files}", "nproc=1024:1024"]\n'
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        f'conmon_path = ["{conmon}"]\n[engine.runtimes]\nrunc = ["{runc}"]\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    (folder / "registries.conf").write_text('[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n')
    env = libraries | {
        "HOME": str(folder / "home"),
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
    }
    return Engine("podman", write_program(folder / "bin/podman", usr / "bin/podman", env), os.environ)


@contextmanager
def docker(packages: Path, folder: Path) -> Iterator[Engine]:
    """Docker, with a daemon of its own."""
    usr, full = packages / "sys/usr", library_env(packages)
    host = f"unix://{folder}/docker.sock"
    words = ("--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid")
    network = ("--bridge", "none", "--iptables=false", "--ip6tables=false", "--userland-proxy=false")
    with (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [usr / "sbin/dockerd", "--host", host, *words, *network], env=full, stdout=log, stderr=log
        )
    env = {"LD_LIBRARY_PATH": full["LD_LIBRARY_PATH"], "DOCKER_HOST": host}
    engine = Engine("docker", write_program(folder / "bin/docker", usr / "bin/docker", env), os.environ)
    try:
        deadline = time.monotonic() + START_SECONDS
        while engine("version", check=False).returncode:
            if daemon.poll() is not None or time.monotonic() > deadline:
                skip_or_fail(f"dockerd does not start here: {_last_line(folder / 'log')}", required=REQUIRED)
            time.sleep(0.1)
        yield engine
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)
        unmount_below(folder)


@contextmanager
def registry(packages: Path, folder: Path) -> Iterator[Registry]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    configuration = {
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (folder / "config.yml").write_text(json.dumps(configuration))
    program = packages / "sys/usr/bin/docker-registry"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", folder / "config.yml"], env=library_env(packages), stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, _last_line(folder / "log")
            assert time.monotonic() < deadline, _last_line(folder / "log")
            time.sleep(0.05)
        yield Registry(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(timeout=30)


def check_runs(engine: Engine, image: str) -> None:
    """Skip the test where the engine cannot run containers, with its own words."""
    done = engine("run", "--rm", "--network", "host", "--entrypoint", "echo", image, check=False)
    if done.returncode:
        skip_or_fail(f"{engine.kind} runs no containers here: {done.stderr.strip()}", required=REQUIRED)


def image_archive(packages: Path, file: Path, files: Mapping[str, str]) -> Path:
    """A tar of an image's root: Python, busybox, and these files."""
    with tarfile.open(file, "w") as archive:
        archive.add(packages / "image", ".")
        for name, text in files.items():
            info = tarfile.TarInfo(name.lstrip("/"))
            info.size, info.mode = len(text.encode()), 0o755
            archive.addfile(info, BytesIO(text.encode()))
    return file


def import_image(engine: Engine, archive: Path, name: str, changes: Sequence[str] = ()) -> None:
    options = [word for change in changes for word in ("--change", change)]
    engine("import", *options, str(archive), name)


def _last_line(file: Path) -> str:
    return (file.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
