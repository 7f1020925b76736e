"""kubeconfig files as they are on disk: read, checked for shape, merged.

What their fields mean is decided in `gangline.kube.config.connection`. Types are strict: a token that YAML reads as a number
is an error with a remedy, not a guess. Unknown fields are ignored, as kubectl does.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from gangline.kube.config.files import read_bytes
from gangline.kube.errors import ConfigError

T = TypeVar("T")

_LISTED = 10
"""How many names an error lists; people with many clusters have more."""


class Section(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """A mapping in the file. Its repr is its name alone: any of them may hold a secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class Extension(Section, frozen=True):
    name: str = ""
    extension: Any = None


class Cluster(Section, frozen=True):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[Extension, ...] = ()


class EnvVar(Section, frozen=True):
    name: str = ""
    value: str = ""


class Exec(Section, frozen=True, rename="camel"):
    """A credential plugin, as the user entry describes it."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(Section, frozen=True):
    name: str = ""


class User(Section, frozen=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    as_: str = msgspec.field(name="as", default="")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}
    username: str = ""
    password: str = ""
    auth_provider: AuthProvider | None = None
    exec: Exec | None = None


class Context(Section, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(Section, frozen=True):
    name: str = ""
    cluster: Cluster = Cluster()


class NamedUser(Section, frozen=True):
    name: str = ""
    user: User = User()


class NamedContext(Section, frozen=True):
    name: str = ""
    context: Context = Context()


class Document(Section, frozen=True):
    kind: str = "Config"
    clusters: tuple[NamedCluster, ...] = ()
    users: tuple[NamedUser, ...] = ()
    contexts: tuple[NamedContext, ...] = ()
    current_context: str = ""


class File(NamedTuple):
    """A file, and how messages show it (`~/.kube/config`)."""

    path: Path
    shown: str


class Entry(NamedTuple, Generic[T]):
    """A named section and where it stands: for messages, and because relative paths start at its file."""

    file: File
    path: str
    value: T

    def where(self, field: str) -> str:
        """The start of a message about one of its fields."""
        return f"{self.file.shown}: {self.path}.{field}"


class Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    """One file, or several merged."""

    shown: str
    clusters: Mapping[str, Entry[Cluster]] = {}
    users: Mapping[str, Entry[User]] = {}
    contexts: Mapping[str, Entry[Context]] = {}
    current_context: str = ""
    current_context_in: str = ""

    @property
    def empty(self) -> bool:
        return not (self.clusters or self.users or self.contexts or self.current_context)


def read(file: File) -> Kubeconfig:
    """One file, checked for shape. An empty file is an empty Kubeconfig.

    Raises `ConfigError` when it cannot be read, is not YAML, or its fields have the wrong types.
    """
    document = _convert(_parse(file), file)
    if document.kind != "Config":
        raise ConfigError(f'{file.shown}: kind: is "{document.kind}"; a kubeconfig has "Config"')
    return Kubeconfig(
        shown=file.shown,
        clusters=_table(file, "clusters", "cluster", ((c.name, c.cluster) for c in document.clusters)),
        users=_table(file, "users", "user", ((u.name, u.user) for u in document.users)),
        contexts=_table(file, "contexts", "context", ((c.name, c.context) for c in document.contexts)),
        current_context=document.current_context,
        current_context_in=file.shown,
    )


def merge(parts: Sequence[Kubeconfig]) -> Kubeconfig:
    """All of them as one: the first file to name a thing defines it whole."""
    current = next((part for part in parts if part.current_context), parts[0])
    return Kubeconfig(
        shown=", ".join(part.shown for part in parts),
        clusters=_first_wins(part.clusters for part in parts),
        users=_first_wins(part.users for part in parts),
        contexts=_first_wins(part.contexts for part in parts),
        current_context=current.current_context,
        current_context_in=current.current_context_in,
    )


def pick(table: Mapping[str, Entry[T]], name: str, *, listed_in: str, where: str) -> Entry[T]:
    """The entry of that name. Raises `ConfigError` with the names there are, nearest first."""
    if name not in table:
        raise ConfigError(f'{where}: names "{name}", which is not in {listed_in}; {known(table, name)}')
    return table[name]


def known(names: Iterable[str], wanted: str = "") -> str:
    """`known: a, b`, the likeliest first."""
    import difflib  # for people who mistyped only

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, wanted.lower(), name.lower()).ratio()

    nearest = sorted(names, key=likeness, reverse=True)
    more = f" and {len(nearest) - _LISTED} more" if len(nearest) > _LISTED else ""
    return f"known: {', '.join(nearest[:_LISTED]) or 'none'}{more}"


def _first_wins(tables: Iterable[Mapping[str, Entry[T]]]) -> dict[str, Entry[T]]:
    merged: dict[str, Entry[T]] = {}
    for table in tables:
        merged = {**table, **merged}
    return merged


def _table(file: File, plural: str, singular: str, named: Iterable[tuple[str, T]]) -> dict[str, Entry[T]]:
    table: dict[str, Entry[T]] = {}
    for index, (name, value) in enumerate(named):
        if not name:
            raise ConfigError(f"{file.shown}: {plural}[{index}].name: is missing; give the {singular} a name")
        if name in table:
            other = table[name].path.partition(".")[0]
            raise ConfigError(
                f'{file.shown}: {plural}[{index}].name: "{name}" is also the name of {other}; rename one'
            )
        table[name] = Entry(file, f"{plural}[{index}].{singular}", value)
    return table


def _parse(file: File) -> Any:
    import yaml  # slow to import; commands that touch no server do without

    text = read_bytes(file.path, "kubeconfig")
    loader: Callable[[bytes], Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # type: ignore[arg-type]  # noqa: S506 - both loaders are safe
    # PyYAML quotes what it choked on, which may be a password: only the place is passed on.
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    except (yaml.YAMLError, ValueError, RecursionError):
        place = ""
    raise ConfigError(f"{file.shown}: is not YAML{place}; correct it or write it anew with kubectl config")


def _convert(data: Any, file: File) -> Document:
    if data is None:
        return Document()
    try:
        return msgspec.convert(_without_nulls(data), Document)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file.shown}: {_explained(str(error))}") from None
    except RecursionError:
        raise ConfigError(f"{file.shown}: refers to itself; write it without YAML aliases") from None


def _without_nulls(value: Any) -> Any:
    """A null field is an absent field: kubectl writes `users: null`."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


_WORDS = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
_MISFIT = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`(?: - at (?:`key` in )?`\$\.?(.*)`)?$")


def _explained(error: str) -> str:
    """The complaint of msgspec in a kubeconfig author's words. It names types and places, never values."""
    match = _MISFIT.match(error)
    if match is None:
        return error
    expected, found, path = match.groups()
    field = f"{path}: " if path else ""
    remedy = "; put it in quotes" if expected == "str" and found not in ("object", "array") else ""
    return f"{field}must be {_WORDS.get(expected, expected)}, is {_WORDS.get(found, f'a {found}')}{remedy}"
