"""kubeconfig files: reading, checking of types, merging.

`gangline.kube.config.connection` interprets the fields. Types are strict: a token that YAML reads as a number is an error.
Unknown fields are ignored, as in kubectl.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from gangline.kube.config.files import read_config_file
from gangline.kube.config.plain_yaml import NotPlain, parse_plain_yaml
from gangline.kube.errors import ConfigError

T = TypeVar("T")

_MAX_LISTED_NAMES = 10
"""The most names that an error message lists."""


class KubeconfigSection(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """A mapping in the file. Its repr has no values, because they may be secret."""

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
    """The exec plugin of a user entry."""

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
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
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
    """A file, and its path as shown in messages (`~/.kube/config`)."""

    path: Path
    display_path: str


class NamedEntry(NamedTuple, Generic[T]):
    """A named section and its place: for messages, and because paths in it are relative to its file."""

    file: KubeconfigFile
    path: str
    value: T

    def location_of(self, field: str) -> str:
        """File and path of a field: the beginning of messages about it."""
        return f"{self.file.display_path}: {self.path}.{field}"


class Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one file, or of several merged ones."""

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
    """The content of one file; an empty file is an empty Kubeconfig.

    Raises `ConfigError` if it cannot be read, is not YAML, or has fields of wrong types.
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
    """Merge files: of several entries with the same name the first is used."""
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
    """The entry with this name. Raises `ConfigError` that lists the known names, the most similar first."""
    if name not in table:
        raise ConfigError(f'{where}: names "{name}", which is not in {listed_in}; {known_names(table, name)}')
    return table[name]


def known_names(names: Iterable[str], similar_to: str = "") -> str:
    """`known: a, b`, the most similar names first."""
    import difflib  # only needed for this message

    def similarity(name: str) -> float:
        return difflib.SequenceMatcher(None, similar_to.lower(), name.lower()).ratio()

    nearest = sorted(names, key=similarity, reverse=True)
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
    text = read_config_file(file.path, "kubeconfig")
    try:
        return msgspec.json.decode(text) if text.startswith(b"{") else parse_plain_yaml(text)
    except (NotPlain, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        import yaml  # slow to import, and rarely needed

    loader: Callable[[bytes], Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # type: ignore[arg-type]  # noqa: S506 - both loaders are safe
    # The message of PyYAML quotes the text, which may be a password, so only the position is used.
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
    """The value without null fields, which mean absent ones: kubectl writes `users: null`."""
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
_TYPE_MISMATCH = r"Expected `(\w+)[^`]*`, got `(\w+)`(?: - at (?:`key` in )?`\$\.?(.*)`)?$"


def _type_error_message(error: str) -> str:
    """Msgspec's type error in words for people. It names types and fields, never values."""
    match = re.match(_TYPE_MISMATCH, error)
    if match is None:
        return error
    expected, actual, path = match.groups()
    field = f"{path}: " if path else ""
    remedy = "; put it in quotes" if expected == "str" and actual not in ("object", "array") else ""
    return f"{field}must be {_TYPE_WORDS.get(expected, expected)}, is {_TYPE_WORDS.get(actual, f'a {actual}')}{remedy}"
