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
import importlib.util
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

import msgspec

from gangline.api.codec.codec import decode_document, documents
from gangline.api.meta import ApiStruct
from gangline.base.errors import InputError
from gangline.base.invocation import shell_comes_first
from gangline.base.python_packages import distribution_of
from gangline.node.environment import expand
from gangline.node.pod_types import RunContainer
from gangline.node.runtime.paths import PathMapping
from gangline.node.settings import LOCAL_IMAGE

log = logging.getLogger(__name__)

SCRIPT_SUFFIXES = (".py", ".sh", ".bash", ".pl", ".r", ".jl", ".lua")


class ImageMapping(ApiStruct, frozen=True, forbid_unknown_fields=True):
    """One entry of the mapping file."""

    environment: str = ""
    path: tuple[str, ...] = ()
    paths: dict[str, str] = {}
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}


class MappedImage(msgspec.Struct, frozen=True):
    """An image on this machine: entries before and behind PATH, variables, its folders, its own command."""

    name: str
    # Whether the mapping file has an entry for it.
    is_mapped: bool
    path_prefixes: tuple[str, ...]
    env: Mapping[str, str]
    folders: Mapping[str, Path]
    command: tuple[str, ...] = ()
    path_suffixes: tuple[str, ...] = ()

    def search_path(self, path: str | None) -> str:
        """Where programs are looked up, given the PATH of the pod or the machine."""
        return os.pathsep.join((*self.path_prefixes, path or os.defpath, *self.path_suffixes))


class InlineMappings(msgspec.Struct, frozen=True):
    """The mappings of `--image-map`: folders of every image, and commands by image."""

    folders: Mapping[str, Path] = {}
    commands: Mapping[str, tuple[str, ...]] = {}


class ImageMappings:
    """The mapping of all images. Logs once per image what replaces it."""

    def __init__(
        self,
        mappings: Mapping[str, ImageMapping] | None = None,
        base: Path | None = None,
        inline: InlineMappings | None = None,
    ) -> None:
        self._mappings, self._inline = dict(mappings or {}), inline or InlineMappings()
        self._base = base or Path.cwd()
        self._logged: set[str] = set()

    @classmethod
    def load(cls, file: Path | None, inline: InlineMappings | None = None) -> "ImageMappings":
        """Read a mapping file, if there is one. Raises `InputError` with file, line and path."""
        if file is None:
            return cls(inline=inline)
        try:
            text = file.read_text()
        except OSError as error:
            raise InputError(f"--images {file}: {error.strerror}") from error
        parsed = documents(text, file=str(file))
        if len(parsed) > 1:
            raise InputError(f"{file}: has {len(parsed)} documents; write one mapping of images")
        mappings = decode_document(parsed[0], dict[str, ImageMapping]) if parsed else {}
        return cls(mappings, file.parent, inline)

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
        suffixes: list[str] = []
        env = dict(mapping.env)
        if mapping.environment:
            environment = self._local_path(mapping.environment)
            prefixes.append(str(environment / "bin"))
            env["VIRTUAL_ENV"] = str(environment)
        else:
            # A command of the user's finds the programs that it finds in the user's shell, also through a script.
            beside = suffixes if name == LOCAL_IMAGE and shell_comes_first(os.environ) else prefixes
            beside.append(str(Path(sys.executable).parent))
        folders = {prefix: self._local_path(real) for prefix, real in mapping.paths.items()}
        commands = (command for pattern, command in self._inline.commands.items() if image_matches(pattern, name))
        command = next(commands, mapping.command)
        folders |= self._inline.folders
        return MappedImage(name, entry is not None, tuple(prefixes), env, folders, command, tuple(suffixes))

    def _local_path(self, text: str) -> Path:
        return Path(os.path.normpath(self._base / Path(text).expanduser()))


def untagged(image: str) -> str:
    """An image without its tag or digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def image_matches(pattern: str, image: str) -> bool:
    """Whether a shell pattern matches an image: with or without its tag or digest, and its registry."""
    name = untagged(image)
    forms = {image, name, name.rpartition("/")[2], image.rpartition("/")[2]}
    registry, slash, rest = image.partition("/")
    if slash and ("." in registry or ":" in registry or registry == "localhost"):
        forms |= {rest, name.partition("/")[2]}
    return any(fnmatch.fnmatchcase(form, pattern) for form in forms)


def parse_image_map(texts: Iterable[str]) -> InlineMappings:
    """From repeated `--image-map /opt/app=./src` and `--image-map IMAGE='python train.py'`. Raises `InputError`."""
    folders: dict[str, Path] = {}
    commands: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise InputError(f"--image-map {text}: write /FOLDER/OF/IMAGE=FOLDER or IMAGE='COMMAND'")
        if not name.startswith("/"):
            try:
                commands[name] = tuple(shlex.split(value))
            except ValueError as error:
                raise InputError(f"--image-map {text}: {error}; write IMAGE='COMMAND'") from error
            continue
        folder = Path(os.path.normpath(Path.cwd() / Path(value).expanduser()))
        if not folder.exists():
            raise InputError(f"--image-map {text}: {folder} does not exist; name a folder of this machine")
        folders[name] = folder
    return InlineMappings(folders, commands)


class ImageNeed(msgspec.Struct, frozen=True):
    """Why a container cannot run as a process of this machine: it needs something that only its image has."""

    image: str
    # What is missing here.
    problem: str
    # What to do, in this order, so that it can run here.
    steps: tuple[str, ...] = ()

    def message(self, engines: str = "") -> str:
        """One line: what is missing, why, and what to write. `engines` tells why no container engine runs the image."""
        steps = " and ".join(self.steps)
        if self.image == LOCAL_IMAGE:
            return f'image "{self.image}": {self.problem}; {steps}'
        other = f"or run the image with podman or docker ({engines})" if engines else OTHER_REMEDY
        return f'image "{self.image}": {self.problem}{PROCESSES}; {steps}; {other}; see docs/node.md, Images'


CURLY_QUOTES = "“”‘’«»"
PROCESSES = " (pods run as processes of this machine)"
OTHER_REMEDY = "or run the image with --runtime podman or docker"


class LocalCommand(msgspec.Struct, frozen=True):
    """The command of a container as this machine would run it."""

    words: tuple[str, ...]
    image: MappedImage
    folder: Path
    # The pod's variables.
    env: Mapping[str, str]
    # Whether the pod or the mapping names a command: arguments alone are for the image's own.
    names_command: bool = True

    @property
    def path(self) -> str:
        """The search path of programs."""
        return self.image.search_path(self.env.get("PATH", os.environ.get("PATH")))


def image_need(command: LocalCommand) -> ImageNeed | None:
    """What the command needs and only the image has; None if it can run as a process of this machine."""
    words, image = command.words, command.image
    if not words or not command.names_command:
        return _command_need(command)
    needs = [need for need in (_program_need(command), *_script_needs(command), _module_need(command)) if need]
    if not needs:
        return None
    # One file is named, and all that is to be done.
    return ImageNeed(image.name, needs[-1].problem, tuple(step for need in needs for step in need.steps))


def template_need(container: RunContainer, images: ImageMappings, folder: Path) -> ImageNeed | None:
    """What a container of a pod template needs and only its image has, as far as that is known before there is a pod.

    Files below a mount are not known, and variables that the node sets.
    """
    image = images.resolve(container.image)
    paths = PathMapping(image.folders)
    env = {variable.name: paths.translate(variable.value) for variable in container.env if not variable.value_from}
    own_words = container.command or image.command
    words = tuple(paths.translate(expand(word, env)) for word in (*own_words, *container.args))
    work = folder / paths.translate(expand(container.working_dir, env))
    mounts = [mount.mount_path.rstrip("/") for mount in container.volume_mounts]
    texts = (*words, str(work))
    if any(f"{text}/".startswith(f"{mount}/") for mount in mounts for text in texts) or any(
        "$(" in text for text in texts
    ):
        return None
    return image_need(LocalCommand(words, image, work, env, names_command=bool(own_words)))


def _command_need(command: LocalCommand) -> ImageNeed:
    scripts = sorted(path.name for path in command.folder.glob("*.py"))
    usual = next((name for name in ("main.py", "train.py") if name in scripts), "train.py")
    script = scripts[0] if len(scripts) == 1 else usual
    steps = () if script in scripts else (f"put your script, such as {script}, into {command.folder}",)
    mapping = shlex.quote(f"{untagged(command.image.name)}=python {script}")
    problem = "the pod names no command, and the image's own is not known"
    return ImageNeed(command.image.name, problem, (*steps, f"add --image-map {mapping}"))


def _program_need(command: LocalCommand) -> ImageNeed | None:
    program, image = command.words[0], command.image
    if program.startswith("/"):
        return None if Path(program).exists() else _file_need(program, command)
    if "/" in program or image.name == LOCAL_IMAGE or shutil.which(program, path=command.path) is not None:
        return None
    problem = f'exec: "{program}": executable file not found in $PATH'
    return ImageNeed(image.name, problem, (_program_step(program),))


def _program_step(program: str) -> str:
    """What to do about a program that does not exist: most often the command is written wrong."""
    plain = program.translate(dict.fromkeys(map(ord, CURLY_QUOTES)))
    if plain != program:
        return f"write straight quotes or none: {plain}"
    if len(words := program.split()) > 1:
        return f"write every word by itself: [{', '.join(words)}]"
    return f"install {program}"


def _script_needs(command: LocalCommand) -> tuple[ImageNeed, ...]:
    scripts = [script for script in command_scripts(command.words) if not (command.folder / script).exists()]
    return tuple(_file_need(script, command) for script in scripts[:1])


def _module_need(command: LocalCommand) -> ImageNeed | None:
    """A module that is not installed, where that is sure: in the interpreter that runs gangline."""
    words, image = command.words, command.image
    is_python = Path(words[0]).name.rstrip("0123456789.") == "python" and "/" not in words[0]
    ours = image.path_prefixes == (str(Path(sys.executable).parent),)
    if not is_python or not ours or "-m" not in words[:-1] or "PYTHONPATH" in command.env:
        return None
    name = words[words.index("-m") + 1]
    module = name.partition(".")[0]
    here = any((command.folder / name).exists() for name in (module, f"{module}.py"))
    if here or not module.isidentifier() or importlib.util.find_spec(module) is not None:
        return None
    step = f"install it: {shlex.quote(sys.executable)} -m pip install {distribution_of(name)}"
    return ImageNeed(image.name, f"module {module} is not installed in {sys.prefix}", (step,))


def command_scripts(command: Sequence[str]) -> Iterator[str]:
    """The script after each interpreter of a command line, also behind a launcher such as mpirun."""
    for position, word in enumerate(command):
        if Path(word).name.rstrip("0123456789.") in _INTERPRETERS:
            yield from _script_of(command[position + 1 :])


def _script_of(arguments: Sequence[str]) -> Iterator[str]:
    """The script in the arguments of an interpreter; those in the text after `-c` if that is one plain command."""
    for position, word in enumerate(arguments):
        if _CODE_OPTION.fullmatch(word):
            text = "".join(arguments[position + 1 : position + 2])
            yield from command_scripts(shlex.split(text)) if _PLAIN_COMMAND.fullmatch(text) else ()
            return
        if not word.startswith("-"):
            yield from (word,) if word.lower().endswith(SCRIPT_SUFFIXES) else ()
            return


def _file_need(file: str, command: LocalCommand) -> ImageNeed:
    """The need for a file, with the flag that maps its folder to the nearest file of that name."""
    image, folder, path = command.image.name, command.folder, PurePosixPath(file)
    if image == LOCAL_IMAGE:
        place = path.parent if path.is_absolute() else folder
        return ImageNeed(image, f"{path.name} is not in {place}", ("correct the command, or put it there",))
    if not path.is_absolute() and folder.is_dir():
        return ImageNeed(image, f"{file} is not in the folder of the job", (_script_step(file, folder),))
    # A relative script of an image is in the working directory, which is then in the image too.
    source = path.parent if path.is_absolute() else PurePosixPath(folder)
    here = Path.cwd()
    existing = _nearest(here, path.name)
    target = os.path.relpath(existing.parent, here) if existing is not None else "."
    steps = () if existing is not None else (f"put {path.name} into this folder",)
    mapping = f"add --image-map {shlex.quote(f'{source}={target}')}"
    return ImageNeed(image, f"{file} exists only in the image", (*steps, mapping))


def _script_step(file: str, folder: Path) -> str:
    """What to do about a script that is not in the folder: most often its name is misspelt."""
    place = folder / PurePosixPath(file).parent
    names = [path.name for path in place.glob(f"*{PurePosixPath(file).suffix}")]
    similar = get_close_matches(PurePosixPath(file).name, names, 1, 0.7)
    if similar:
        return f"write {PurePosixPath(file).parent / similar[0]}, which is there"
    return f"put {file} into {folder}, or write the folder that has it into workingDir"


def _nearest(folder: Path, name: str) -> Path | None:
    """A file of this name in the folder or the two levels below it; the nearest first."""
    for pattern in (name, f"*/{name}", f"*/*/{name}"):
        matches = sorted(path for path in folder.glob(pattern) if path.is_file())
        if matches:
            return matches[0]
    return None


_INTERPRETERS = frozenset({"python", "sh", "bash", "perl", "Rscript", "julia", "lua", "torchrun"})
_CODE_OPTION = re.compile("-[a-z]*[cm]")
# Without quotes, variables and operators, so that nothing in it can create the script.
_PLAIN_COMMAND = re.compile(r"[\w./=:, -]*")
