"""Environments and folders of this machine that replace images, where images are not pulled.

The mapping file is YAML, by image (shell patterns, with or without registry and tag)::

    example.org/tf-mnist:
      environment: ~/envs/tensorflow     # a virtual environment
      path: [./bin]                      # before PATH
      paths: {/var/tf_mnist: ./src}      # folders of the image on this machine
      command: [python, train.py]        # the command of the image

Relative paths start at the file. An image that is not mapped gets the interpreter that gangline runs on.
"""

import fnmatch
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gangline.api.codec.codec import decode_document, documents
from gangline.api.meta import ApiStruct
from gangline.base.errors import InputError
from gangline.node.runtime.runtime import StartFailed

log = logging.getLogger(__name__)

SCRIPT_SUFFIXES = (".py", ".sh", ".bash", ".pl", ".r", ".jl", ".lua")
REMEDY = "map it in the images file, or run the real image with --runtime podman or docker"


class ImageMapping(ApiStruct, frozen=True, forbid_unknown_fields=True):
    """One entry of the mapping file."""

    environment: str = ""
    path: tuple[str, ...] = ()
    paths: dict[str, str] = {}
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}


class MappedImage(msgspec.Struct, frozen=True):
    """An image on this machine: entries before PATH, variables, its folders, its own command."""

    name: str
    # Whether the mapping file has an entry for it.
    is_mapped: bool
    path_prefixes: tuple[str, ...]
    env: Mapping[str, str]
    folders: Mapping[str, Path]
    command: tuple[str, ...] = ()


class ImageMappings:
    """The mapping of all images. Logs once per image what replaces it."""

    def __init__(self, mappings: Mapping[str, ImageMapping] | None = None, base: Path | None = None) -> None:
        self._mappings = dict(mappings or {})
        self._base = base or Path.cwd()
        self._logged: set[str] = set()

    @classmethod
    def load(cls, file: Path) -> "ImageMappings":
        """Read a mapping file. Raises `InputError` with file, line and path."""
        try:
            text = file.read_text()
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}") from error
        parsed = documents(text, file=str(file))
        if len(parsed) > 1:
            raise InputError(f"{file}: has {len(parsed)} documents; write one mapping of images")
        mappings = decode_document(parsed[0], dict[str, ImageMapping]) if parsed else {}
        return cls(mappings, file.parent)

    def resolve(self, name: str) -> MappedImage:
        """The mapped image; the default environment for an image without mapping."""
        mapping = next((mapping for pattern, mapping in self._mappings.items() if image_matches(pattern, name)), None)
        image = self._mapped_image(name, mapping)
        if name not in self._logged:
            self._logged.add(name)
            using = mapping.environment if mapping is not None and mapping.environment else sys.prefix
            log.info("image is not pulled, processes use this machine", extra={"image": name, "using": using})
        return image

    def _mapped_image(self, name: str, entry: ImageMapping | None) -> MappedImage:
        mapping = entry or ImageMapping()
        prefixes = [str(self._local_path(path)) for path in mapping.path]
        env = dict(mapping.env)
        if mapping.environment:
            environment = self._local_path(mapping.environment)
            prefixes.append(str(environment / "bin"))
            env["VIRTUAL_ENV"] = str(environment)
        else:
            prefixes.append(str(Path(sys.executable).parent))
        folders = {prefix: self._local_path(real) for prefix, real in mapping.paths.items()}
        return MappedImage(name, entry is not None, tuple(prefixes), env, folders, mapping.command)

    def _local_path(self, text: str) -> Path:
        return Path(os.path.normpath(self._base / Path(text).expanduser()))


def image_matches(pattern: str, image: str) -> bool:
    """Whether a shell pattern matches an image: with or without its tag or digest, and its registry."""
    untagged = image.partition("@")[0]
    head, slash, last = untagged.rpartition("/")
    untagged = f"{head}{slash}{last.partition(':')[0]}"
    forms = {image, untagged, untagged.rpartition("/")[2], image.rpartition("/")[2]}
    registry, slash, rest = image.partition("/")
    if slash and ("." in registry or ":" in registry or registry == "localhost"):
        forms |= {rest, untagged.partition("/")[2]}
    return any(fnmatch.fnmatchcase(form, pattern) for form in forms)


def check_command(command: tuple[str, ...], image: MappedImage, folder: Path) -> None:
    """Raise `StartFailed`, with a message of one line, for a command whose file is in the image only."""
    if not command:
        raise StartFailed(
            f'image "{image.name}": the pod names no command, and the image\'s own is not known in process mode; '
            f"give it one, or {REMEDY}"
        )
    if command[0].startswith("/") and not Path(command[0]).exists():
        raise StartFailed(f'image "{image.name}": {command[0]} exists only in the image; {REMEDY}')
    script = next((word for word in command[1:] if not word.startswith("-")), "")
    interpreted = Path(command[0]).name.rstrip("0123456789.") in _INTERPRETERS
    if interpreted and script.lower().endswith(SCRIPT_SUFFIXES) and not (folder / script).exists():
        problem = "exists only in the image" if script.startswith("/") else f"is not in {folder}"
        raise StartFailed(f'image "{image.name}": {script} {problem}; {REMEDY}')


_INTERPRETERS = frozenset({"python", "sh", "bash", "perl", "Rscript", "julia", "lua", "torchrun"})
