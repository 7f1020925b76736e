"""Manifests of `-f`: read into documents that know the line of every field, and resolved to resources of the server."""

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gangline.api.codec.documents import Document, documents
from gangline.api.codec.errors import FieldPath as Steps
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerTarget
from gangline.cli.resources.lookup import BUILTIN_RESOURCES
from gangline.kube.client import Client

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")
NO_OBJECTS = "holds no object"
"""The error for a file that is empty or has only comments."""
_PATH_STEP = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def read_files(names: Sequence[str], *, recursive: bool = False) -> list[Document]:
    """Every object in the files and folders, in order. Raises `InputError`."""
    return [
        document
        for name in names
        for file in files_in(name, recursive=recursive)
        for document in documents(file_text(file), file=file if file != STDIN else "stdin")
    ]


def files_in(name: str, *, recursive: bool = False) -> Iterator[str]:
    """A file itself, or the manifests in a folder. Raises `InputError` for a folder without any."""
    path = Path(name)
    if name == STDIN or not path.is_dir():
        yield name
        return
    entries = sorted(path.rglob("*") if recursive else path.iterdir())
    files = [str(file) for file in entries if file.suffix in SUFFIXES and file.is_file()]
    if not files:
        raise InputError(
            f"{name}: holds no {', '.join(SUFFIXES)} file" + ("" if recursive else "; look deeper with -R")
        )
    yield from files


def file_text(name: str) -> str:
    """The text of a file, or of standard input. Raises `InputError`."""
    try:
        return sys.stdin.read() if name == STDIN else Path(name).read_text()
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: {encoding_hint(Path(name))}") from error


def encoding_hint(file: Path) -> str:
    """How to save a file that is not UTF-8."""
    start = file.read_bytes()[:1000] if file.is_file() else b""
    if b"\0" in start and not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "is not text"
    encoding = "utf-16" if b"\0" in start else "latin1"
    return f"is not UTF-8; convert it: iconv -f {encoding} -t utf-8 {shlex.quote(str(file))} > utf8-{shlex.quote(file.name)}"


def path_steps(field: str, body: Any = None) -> Steps:
    """The steps of a path as a server writes it: `spec.containers[0].name`.

    A server does not quote keys with dots, as in `limits.nvidia.com/gpu`: a key that the body has is one step.
    """
    path = tuple(
        int(index) if index.isdigit() else name or index.strip("\"'") for name, index in _PATH_STEP.findall(field)
    )
    steps: list[str | int] = []
    while path:
        count = _key_length(path, body)
        step = path[0] if count == 1 else ".".join(map(str, path[:count]))
        body, path = value_at(body, (step,)), path[count:]
        steps.append(step)
    return tuple(steps)


def _key_length(path: Steps, body: Any) -> int:
    """How many of the first steps make one key of the body: 1, unless the body has no such key but has a joined one."""
    if not isinstance(body, dict) or path[0] in body:
        return 1
    several = (count for count in range(2, len(path) + 1) if ".".join(map(str, path[:count])) in body)
    return next(several, 1)


def value_at(value: Any, path: Steps) -> Any:
    """The value at a path; None if there is none."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def field_line(document: Document, field: str) -> int | None:
    """The line of a field that a server names in an error."""
    return document.line(path_steps(field, document.body) if field != "<nil>" else ())


class ResourceFinder:
    """Finds the resource of a manifest. Kinds that are not built in are discovered, again for each unknown kind."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources = {(kind.api_version, kind.kind): kind for kind, _ in BUILTIN_RESOURCES}

    async def find(self, version: str, kind: str) -> Resource[JSON] | None:
        """The resource of an apiVersion and kind; None if the server has no such kind."""
        if (version, kind) not in self._resources:
            from gangline.kube.discovery import server_resources

            for served in await server_resources(self._client):
                resource = served.resource
                self._resources.setdefault((resource.api_version, resource.kind), resource)
        return self._resources.get((version, kind))


async def resolve_manifest(
    finder: ResourceFinder, document: Document, target: ServerTarget
) -> tuple[Resource[JSON], Key, JSON]:
    """The resource and key of a manifest, and its body with the namespace set. Raises `InputError` with file and line."""
    body = document.body
    version, kind = _required_text(document, "apiVersion"), _required_text(document, "kind")
    resource = await finder.find(version, kind)
    if resource is None:
        raise document.error(f'the server has no kind "{kind}" in "{version}"', ("kind",))
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise document.error("required field is missing", ("metadata",))
    manifest_namespace = metadata.get("namespace") or ""
    namespace = (manifest_namespace or target.object_namespace) if resource.namespaced else ""
    if (
        resource.namespaced
        and manifest_namespace
        and target.flag_namespace
        and manifest_namespace != target.flag_namespace
    ):
        raise document.error(
            f'is "{manifest_namespace}", but --namespace is "{target.flag_namespace}"; leave one of them out',
            ("metadata", "namespace"),
        )
    name = metadata.get("name") or ""
    if not name and not metadata.get("generateName"):
        raise document.error("required field is missing", ("metadata", "name"))
    if namespace:
        body = {**body, "metadata": {**metadata, "namespace": namespace}}
    return resource, Key(namespace, str(name)), body


def _required_text(document: Document, field: str) -> str:
    value: Any = document.body.get(field)
    if not isinstance(value, str) or not value:
        raise document.error("required field is missing", (field,))
    return value
