"""Which frames are the user's own code, and how a place in it is written. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from gangline.stacks.model import Frame, ProcessStack

_PACKAGES = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_STANDARD_LIBRARY = re.compile(r"/lib(?:64)?/(?:python|pypy)3?[\d.]*/(?!.*/(?:site|dist)-packages/)|\bpython\d+\.zip/")
_PROGRAM_STARTERS = re.compile(r"^<frozen |/s?bin/[^/]+$|(?:^|/)runpy\.py$")
"""Where Python finds and starts a program: not a part of it."""
LIBRARY_PATHS = re.compile(
    r"(?:^|/)(?:torch|torchvision|tensorflow|jax|jaxlib|mpi4py|horovod|paddle|xgboost|lightgbm|deepspeed|accelerate"
    r"|transformers|lightning|pytorch_lightning|numpy|grpc|keras|ray)/[^/]+(?:/|\.py$)"
)
"""Libraries that are also met outside of site-packages: built from source, or in an image's own folder."""


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of the user's own code, innermost first.

    A program that is itself an installed package has none by its path: then the package that was started counts.
    """
    own = tuple(frame for frame in frames if is_own(frame))
    if own:
        return own
    package = next((name for frame in reversed(frames) if (name := _package(frame))), "")
    return tuple(frame for frame in frames if package and _package(frame) == package)


def is_own(frame: Frame) -> bool:
    """Whether a frame is in a file of the user's own."""
    path = frame.file
    if frame.native or not path or _PROGRAM_STARTERS.search(path):
        return False
    return not (_PACKAGES.search(path) or _STANDARD_LIBRARY.search(path) or LIBRARY_PATHS.search(path))


def _package(frame: Frame) -> str:
    """The installed package of a frame; empty for the standard library, native code and the user's own files."""
    match = _PACKAGES.search(frame.file)
    return match[1] if match is not None and not frame.native else ""


def location(frame: Frame) -> str:
    """`train.py:88`."""
    name = PurePosixPath(frame.file).name
    return f"{name}:{frame.line}" if frame.line else name


def short_path(file: str) -> str:
    """A path without what is the same everywhere: `torch/distributed/distributed_c10d.py`, `threading.py`."""
    for pattern in (_PACKAGES, _STANDARD_LIBRARY):
        match = pattern.search(file)
        if match is not None:
            start = match.start(1) if pattern is _PACKAGES else match.end()
            return file[start:]
    return file


def place(frame: Frame) -> tuple[str, str, int]:
    """What makes two frames the same."""
    return frame.function, frame.file, frame.line


def places(frames: Iterable[Frame]) -> tuple[tuple[str, str, int], ...]:
    return tuple(map(place, frames))


def short_name(frame: Frame) -> str:
    """The name of a function without its class, and of native code without the types of its arguments."""
    name = re.split(r"[<(\[]", frame.function, maxsplit=1)[0] or frame.function if frame.native else frame.function
    return name if frame.native else name.rpartition(".")[2]


def with_source(stack: ProcessStack, lines: Mapping[tuple[str, int], str]) -> ProcessStack:
    """A process with the source lines of its frames, as far as they are known by file and line."""
    if not lines:
        return stack
    threads = tuple(
        msgspec.structs.replace(thread, frames=tuple(_frame_with_source(frame, lines) for frame in thread.frames))
        for thread in stack.threads
    )
    return msgspec.structs.replace(stack, threads=threads)


def _frame_with_source(frame: Frame, lines: Mapping[tuple[str, int], str]) -> Frame:
    code = lines.get((frame.file, frame.line), "")
    return msgspec.structs.replace(frame, code=code) if code else frame
