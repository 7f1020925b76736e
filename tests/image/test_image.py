"""The image that hack/image.sh builds: small, reproducible, described, and it runs where pods are restricted."""

import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from image.conftest import HERE, PLATFORMS, REQUIRED, ROOT, BuiltImage
from support.requirements import skip_or_fail

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200), pytest.mark.xdist_group("image")]

LIMIT = 150_000_000
SITE = "usr/local/lib/python3.11/dist-packages"
MACHINE = {"amd64": 62, "arm64": 183}
"""The numbers of processors in ELF files."""
# A read-only root with an empty /tmp, no network but loopback, and neither root nor any capability.
RESTRICTED = """
set -e
root=$1; shift
mount --bind "$root" "$root"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/tmp"
chmod 1777 "$root/tmp"
ip link set lo up
exec chroot --userspec=65532:65532 "$root" "$@"
"""


def run_inside(root: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    if os.geteuid():
        skip_or_fail("a container without an engine needs root", required=REQUIRED)
    unshare = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        RESTRICTED,
        "sh",
        str(root),
    ]
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8", **variables}
    return subprocess.run([*unshare, *command], env=environment, capture_output=True, text=True, check=False)


def test_a_second_build_from_nothing_has_the_same_digest(image: BuiltImage, tmp_path: Path) -> None:
    clone, cache = tmp_path / "elsewhere", tmp_path / "cache"
    subprocess.run(["cp", "-r", ROOT, clone], check=True)
    again = BuiltImage(tmp_path / "again")
    command = [str(clone / "hack" / "image.sh"), "--platforms", HERE, "--output", str(again.folder)]
    subprocess.run(
        ["sh", "-c", 'umask 077; exec "$@"', "sh", *command],
        env={**os.environ, "GANGLINE_CACHE": str(cache)},
        check=True,
    )
    assert again.digests()[f"linux/{HERE}"] == image.digests()[f"linux/{HERE}"]


@pytest.mark.parametrize("architecture", PLATFORMS)
def test_it_is_small(image: BuiltImage, architecture: str) -> None:
    total = sum(len(content) for _, content in image.entries(architecture).values())
    assert total < LIMIT, f"{total / 1e6:.1f} MB"


@pytest.mark.parametrize("architecture", PLATFORMS)
def test_all_programs_are_of_its_architecture(image: BuiltImage, architecture: str) -> None:
    machines = {
        path: struct.unpack_from("<H", content, 18)[0]
        for path, (_, content) in image.entries(architecture).items()
        if content.startswith(b"\x7fELF")
    }
    assert "usr/local/bin/gangline-agent" in machines
    assert "usr/bin/python3.11" in machines
    assert {path: machine for path, machine in machines.items() if machine != MACHINE[architecture]} == {}


@pytest.mark.parametrize("architecture", PLATFORMS)
def test_nothing_in_it_helps_an_intruder(image: BuiltImage, architecture: str) -> None:
    entries = image.entries(architecture)
    programs = {path for path, (info, _) in entries.items() if "bin" in path.split("/")[:-1] and not info.isdir()}
    local = {"gangline", "kubectl-gangline", "gangline-agent"}
    python = {"python", "python3", "python3.11"}
    assert programs == {f"usr/local/bin/{each}" for each in local} | {f"usr/bin/{each}" for each in python}
    assert [path for path, (info, _) in entries.items() if info.mode & 0o6000] == []
    writable = {path for path, (info, _) in entries.items() if info.mode & 0o022 and not info.issym()}
    assert writable == {"tmp", "var/tmp"}
    assert {path for path, (info, _) in entries.items() if info.uid != 0} == {"home/nonroot"}
    assert [path for path in entries if path.startswith((f"{SITE}/pip", f"{SITE}/setuptools"))] == []


@pytest.mark.parametrize("architecture", PLATFORMS)
def test_it_starts_as_an_ordinary_user_and_says_what_it_is(image: BuiltImage, architecture: str) -> None:
    config = image.config(architecture)
    assert config["architecture"] == architecture
    assert config["config"]["Entrypoint"] == ["gangline"]
    assert config["config"]["User"] == "65532:65532"
    labels = config["config"]["Labels"]
    commit = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert labels["org.opencontainers.image.revision"].removesuffix("-modified") == commit
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert set(labels) >= {f"org.opencontainers.image.{each}" for each in ("title", "description", "version", "vendor")}


def test_every_blob_has_the_content_of_its_name_and_the_index_names_both_platforms(image: BuiltImage) -> None:
    blobs = sorted((image.folder / "oci" / "blobs" / "sha256").iterdir())
    assert [hashlib.sha256(each.read_bytes()).hexdigest() for each in blobs] == [each.name for each in blobs]
    (entry,) = json.loads((image.folder / "oci" / "index.json").read_text())["manifests"]
    digests = image.digests()
    assert entry["digest"] == digests["index"]
    platforms = {each["platform"]["architecture"]: each["digest"] for each in image.blob(entry["digest"])["manifests"]}
    assert platforms == {each: digests[f"linux/{each}"] for each in PLATFORMS}


@pytest.mark.parametrize("architecture", PLATFORMS)
def test_the_bill_of_materials_lists_every_package_and_follows_the_schema(
    image: BuiltImage, architecture: str, validator: Path
) -> None:
    bill = json.loads(image.bill(architecture).read_text())
    entries = image.entries(architecture)
    packages: dict[str, set[tuple[str, str]]] = {each["purl"].partition("/")[0]: set() for each in bill["components"]}
    for each in bill["components"]:
        packages[each["purl"].partition("/")[0]].add((each["name"].replace("-", "_").lower(), each["version"]))
        assert each["purl"].startswith("pkg:golang/") or (each["hashes"] and each["licenses"])
    distributions = [path.split("/")[-2] for path in entries if path.endswith(".dist-info/METADATA")]
    installed = {
        (name.lower(), version)
        for name, version in (each.removesuffix(".dist-info").split("-") for each in distributions)
    }
    assert packages["pkg:pypi"] == installed
    debian = {
        path.rpartition("/")[2].replace("-", "_").lower()
        for path in entries
        if path.startswith("var/lib/dpkg/status.d/")
    }
    assert {name for name, _ in packages["pkg:deb"]} == debian
    assert image.digests()[f"linux/{architecture}"].replace(":", "%3A") in bill["metadata"]["component"]["purl"]
    checked = subprocess.run(
        [validator, "-c", VALIDATE, image.bill(architecture)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


VALIDATE = """
import pathlib, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(pathlib.Path(sys.argv[1]).read_text())
sys.exit(str(error) if error else 0)
"""


@pytest.fixture(scope="session")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the library that has the schemas of CycloneDX."""
    folder = tmp_path_factory.mktemp("cyclonedx")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r"]
    subprocess.run([folder / "bin/python", *install, ROOT / "requirements/sbom.txt"], check=True)
    return folder / "bin/python"


def test_a_demo_trains_in_it_without_root_on_a_read_only_root(container: Path) -> None:
    done = run_inside(container, "/usr/local/bin/gangline", "demo", "--runs", "/tmp/runs", HOME="/tmp")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["operator", "scheduler", "install", "doctor"])
def test_commands_for_a_cluster_are_there(container: Path, command: str) -> None:
    done = run_inside(container, "/usr/local/bin/gangline", command, "--help")
    assert done.returncode == 0, done.stdout + done.stderr


LOOK = """
import sys
import gangline.operator.main, gangline.operator.operator_process, gangline.operator.scheduler_process
import gangline.scheduler.scheduler
parts = [name for name in sys.modules if name.startswith("gangline.apiserver")]
import gangline.operator.progress.endpoint
import importlib.util, json, pathlib, ssl, zoneinfo
sources = {getattr(each, "__file__", None) or "" for each in list(sys.modules.values())}
slow = [each for each in sources if each.endswith(".py") and not pathlib.Path(importlib.util.cache_from_source(each)).exists()]
authorities = len(ssl.create_default_context().get_ca_certs())
print(json.dumps({"sources": len(sources), "slow": slow, "server": parts, "authorities": authorities, "zone": str(zoneinfo.ZoneInfo("Europe/Berlin"))}))
"""


def test_servers_load_byte_code_and_trust_the_usual_authorities(container: Path) -> None:
    done = run_inside(container, "/usr/bin/python3", "-c", LOOK)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["sources"] > 100
    assert seen["slow"] == []
    assert seen["server"] == []
    assert seen["authorities"] > 100
    assert seen["zone"] == "Europe/Berlin"


def test_the_scheduler_has_the_numpy_that_it_uses(container: Path) -> None:
    """`unique` loads a part of numpy on its first use: with gangs that are spread over zones, say."""
    done = run_inside(container, "/usr/bin/python3", "-c", "import numpy; print(numpy.unique([2, 1, 2]))")
    assert (done.returncode, done.stdout) == (0, "[1 2]\n"), done.stderr


def test_the_agent_runs_without_any_library(container: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    agent = container / "usr/local/bin/gangline-agent"
    (tmp_path / "agent").write_bytes(agent.read_bytes())
    (tmp_path / "agent").chmod(0o755)
    for each in ("dev", "proc", "tmp"):
        (tmp_path / each).mkdir()
    done = run_inside(tmp_path, "/agent", "--help")
    assert "agent" in done.stdout + done.stderr
    assert "No such file" not in done.stderr
