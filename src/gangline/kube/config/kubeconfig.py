"""kubeconfig files as they are on disk: read, checked for shape, merged.

What their fields mean is decided in `gangline.kube.config.connection`. Types are strict: a token that YAML reads as a number
is an error with a remedy, not a guess. Unknown fields are ignored, as kubectl does.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from gangline.kube.config.files import read_config_file
from gangline.kube.errors import ConfigError

T = TypeVar("T")

_MAX_LISTED_NAMES = 10
"""How many names an error lists; people with many clusters have more."""


class KubeconfigSection(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """A mapping in the file. Its repr is its name alone: any of them may hold a secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


class KubeconfigExtension(KubeconfigSection, frozen=True):
    name: str = ""
    extension: Any = None


class KubeconfigCluster(KubeconfigSection, frozen=True):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: tuple[KubeconfigExtension, ...] = ()


class ExecEnvVar(KubeconfigSection, frozen=True):
    name: str = ""
    value: str = ""


class ExecConfig(KubeconfigSection, frozen=True, rename="camel"):
    """A credential plugin, as the user entry describes it."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecEnvVar, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(KubeconfigSection, frozen=True):
    name: str = ""


class KubeconfigUser(KubeconfigSection, frozen=True):
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
    exec: ExecConfig | None = None


class KubeconfigContext(KubeconfigSection, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(KubeconfigSection, frozen=True):
    name: str = ""
    cluster: KubeconfigCluster = KubeconfigCluster()


class NamedUser(KubeconfigSection, frozen=True):
    name: str = ""
    user: KubeconfigUser = KubeconfigUser()


class NamedContext(KubeconfigSection, frozen=True):
    name: str = ""
    context: KubeconfigContext = KubeconfigContext()


class KubeconfigDocument(KubeconfigSection, frozen=True):
    kind: str = "Config"
    clusters: tuple[NamedCluster, ...] = ()
    users: tuple[NamedUser, ...] = ()
    contexts: tuple[NamedContext, ...] = ()
    current_context: str = ""


class KubeconfigFile(NamedTuple):
    """A file, and how messages show it (`~/.kube/config`)."""

    path: Path
    display_path: str


class NamedEntry(NamedTuple, Generic[T]):
    """A named section and where it stands: for messages, and because relative paths start at its file."""

    file: KubeconfigFile
    path: str
    value: T

    def location_of(self, field: str) -> str:
        """The start of a message about one of its fields."""
        return f"{self.file.display_path}: {self.path}.{field}"


class Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    """One file, or several merged."""

    display_path: str
    clusters: Mapping[str, NamedEntry[KubeconfigCluster]] = {}
    users: Mapping[str, NamedEntry[KubeconfigUser]] = {}
    contexts: Mapping[str, NamedEntry[KubeconfigContext]] = {}
    current_context: str = ""
    current_context_in: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.clusters or self.users or self.contexts or self.current_context)


def read_kubeconfig(file: KubeconfigFile) -> Kubeconfig:
    """One file, checked for shape. An empty file is an empty Kubeconfig.

    Raises `ConfigError` when it cannot be read, is not YAML, or its fields have the wrong types.
    """
    document = _decode_document(_parse_yaml(file), file)
    if document.kind != "Config":
        raise ConfigError(f'{file.display_path}: kind: is "{document.kind}"; a kubeconfig has "Config"')
    return Kubeconfig(
        display_path=file.display_path,
        clusters=_entries_by_name(file, "clusters", "cluster", ((c.name, c.cluster) for c in document.clusters)),
        users=_entries_by_name(file, "users", "user", ((u.name, u.user) for u in document.users)),
        contexts=_entries_by_name(file, "contexts", "context", ((c.name, c.context) for c in document.contexts)),
        current_context=document.current_context,
        current_context_in=file.display_path,
    )


def merge_kubeconfigs(parts: Sequence[Kubeconfig]) -> Kubeconfig:
    """All of them as one: the first file to name a thing defines it whole."""
    current = next((part for part in parts if part.current_context), parts[0])
    return Kubeconfig(
        display_path=", ".join(part.display_path for part in parts),
        clusters=_first_wins(part.clusters for part in parts),
        users=_first_wins(part.users for part in parts),
        contexts=_first_wins(part.contexts for part in parts),
        current_context=current.current_context,
        current_context_in=current.current_context_in,
    )


def entry_named(table: Mapping[str, NamedEntry[T]], name: str, *, listed_in: str, where: str) -> NamedEntry[T]:
    """The entry of that name. Raises `ConfigError` with the names there are, nearest first."""
    if name not in table:
        raise ConfigError(f'{where}: names "{name}", which is not in {listed_in}; {known_names(table, name)}')
    return table[name]


def known_names(names: Iterable[str], wanted: str = "") -> str:
    """`known: a, b`, the likeliest first."""
    import difflib  # for people who mistyped only

    def likeness(name: str) -> float:
        return difflib.SequenceMatcher(None, wanted.lower(), name.lower()).ratio()

    nearest = sorted(names, key=likeness, reverse=True)
    more = f" and {len(nearest) - _MAX_LISTED_NAMES} more" if len(nearest) > _MAX_LISTED_NAMES else ""
    return f"known: {', '.join(nearest[:_MAX_LISTED_NAMES]) or 'none'}{more}"


def _first_wins(tables: Iterable[Mapping[str, NamedEntry[T]]]) -> dict[str, NamedEntry[T]]:
    merged: dict[str, NamedEntry[T]] = {}
    for table in tables:
        merged = {**table, **merged}
    return merged


def _entries_by_name(
    file: KubeconfigFile, plural: str, singular: str, named: Iterable[tuple[str, T]]
) -> dict[str, NamedEntry[T]]:
    table: dict[str, NamedEntry[T]] = {}
    for index, (name, value) in enumerate(named):
        if not name:
            raise ConfigError(f"{file.display_path}: {plural}[{index}].name: is missing; give the {singular} a name")
        if name in table:
            other = table[name].path.partition(".")[0]
            raise ConfigError(
                f'{file.display_path}: {plural}[{index}].name: "{name}" is also the name of {other}; rename one'
            )
        table[name] = NamedEntry(file, f"{plural}[{index}].{singular}", value)
    return table


def _parse_yaml(file: KubeconfigFile) -> Any:
    import yaml  # slow to import; commands that touch no server do without

    text = read_config_file(file.path, "kubeconfig")
    loader: Callable[[bytes], Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # type: ignore[arg-type]  # noqa: S506 - both loaders are safe
    # PyYAML quotes what it choked on, which may be a password: only the place is passed on.
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    except (yaml.YAMLError, ValueError, RecursionError):
        place = ""
    raise ConfigError(f"{file.display_path}: is not YAML{place}; correct it or write it anew with kubectl config")


def _decode_document(data: Any, file: KubeconfigFile) -> KubeconfigDocument:
    if data is None:
        return KubeconfigDocument()
    try:
        return msgspec.convert(_without_nulls(data), KubeconfigDocument)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file.display_path}: {_type_error_message(str(error))}") from None
    except RecursionError:
        raise ConfigError(f"{file.display_path}: refers to itself; write it without YAML aliases") from None


def _without_nulls(value: Any) -> Any:
    """A null field is an absent field: kubectl writes `users: null`."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


_TYPE_WORDS = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
_TYPE_MISMATCH = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`(?: - at (?:`key` in )?`\$\.?(.*)`)?$")


def _type_error_message(error: str) -> str:
    """The complaint of msgspec in a kubeconfig author's words. It names types and places, never values."""
    match = _TYPE_MISMATCH.match(error)
    if match is None:
        return error
    expected, found, path = match.groups()
    field = f"{path}: " if path else ""
    remedy = "; put it in quotes" if expected == "str" and found not in ("object", "array") else ""
    return f"{field}must be {_TYPE_WORDS.get(expected, expected)}, is {_TYPE_WORDS.get(found, f'a {found}')}{remedy}"
