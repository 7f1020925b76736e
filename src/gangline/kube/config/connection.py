"""How to reach a server: from a kubeconfig, or from inside a pod.

Sources in order: the file given, `KUBECONFIG` (a list of files that are merged, the first wins), `~/.kube/config`, the
pod's service account. An error message is one line with file, field, problem and remedy, and never has a credential.
"""

import base64
import binascii
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import quote, urlsplit

import msgspec

from gangline.base.clock import Clock, SystemClock
from gangline.kube.config.credentials import Anonymous, BasicAuth, Credentials, StaticToken, TokenFile
from gangline.kube.config.files import read_config_file
from gangline.kube.config.kubeconfig import (
    Kubeconfig,
    KubeconfigCluster,
    KubeconfigContext,
    KubeconfigFile,
    KubeconfigUser,
    NamedEntry,
    entry_named,
    known_names,
    merge_kubeconfigs,
    read_kubeconfig,
)
from gangline.kube.config.proxy import proxy_from_environment, redacted_url, validated_proxy
from gangline.kube.config.tls import TLS, ClientCertificate, Pem
from gangline.kube.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Impersonation(msgspec.Struct, frozen=True):
    """A user to act as; the server decides whether that is allowed."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers. Several groups are several headers with the same name, so these do not fit into a dict."""
        return (
            ("Impersonate-User", self.user),
            *((("Impersonate-Uid", self.uid),) if self.uid else ()),
            *(("Impersonate-Group", group) for group in self.groups),
            *(
                # Header names allow few characters; the server decodes percent-encoding.
                (f"Impersonate-Extra-{quote(name, safe='')}", value)
                for name, values in self.extra.items()
                for value in values
            ),
        )


SocketOpener = Callable[[], Awaitable[socket.socket]]


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to connect to one server. Its repr has no credentials."""

    server: str
    """`scheme://host:port/base-path`, without a trailing slash."""
    namespace: str = "default"
    context: str = ""
    source: str = ""
    """The file it comes from, for messages."""
    tls: TLS | None = None
    """None for plain HTTP."""
    proxy: str | None = None
    impersonate: Impersonation | None = None
    credentials: Credentials = Anonymous()
    open_socket: SocketOpener | None = None
    """Connects to a server in this process, instead of host and port of `server`, and without TLS."""

    def __repr__(self) -> str:
        return (
            f"Connection(server={self.server!r}, namespace={self.namespace!r}, context={self.context!r}, "
            f"source={self.source!r}, tls={self.tls!r}, proxy={self.proxy and redacted_url(self.proxy)!r}, "
            f"impersonate={self.impersonate!r}, credentials={self.credentials!r})"
        )


def load_connection(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    cluster: str | None = None,
    user: str | None = None,
    namespace: str | None = None,
    environ: Mapping[str, str],
    home: Path,
    service_account: Path = SERVICE_ACCOUNT,
    interactive: bool | None = None,
    clock: Clock | None = None,
) -> Connection:
    """The connection described by flags, environment and files. Raises `ConfigError`.

    Reads files, but starts no exec plugin (the first request does) and does not connect. `interactive` allows a plugin to
    ask the user; by default that is allowed if standard input is a terminal.
    """
    clock = clock or SystemClock()
    files = _kubeconfig_files(kubeconfig, environ, home)
    if not files:
        flags = {"--context": context, "--cluster": cluster, "--user": user}
        _require_service_account(flags, environ)
        return in_cluster_connection(environ=environ, root=service_account, namespace=namespace, clock=clock)
    config = merge_kubeconfigs([read_kubeconfig(file) for file in files])
    if config.is_empty:
        raise ConfigError(f"{config.display_path}: is empty; add a cluster with kubectl config or pass --kubeconfig")
    context_name, context_entry = _selected_context(config, context, cluster)
    cluster_entry = _selected_cluster(config, context_entry, cluster)
    user_entry = _selected_user(config, context_entry, user)
    server, tls = _server_url(cluster_entry), _tls_settings(cluster_entry, user_entry)
    return Connection(
        server=server,
        namespace=namespace or context_entry.value.namespace or "default",
        context=context_name,
        source=context_entry.file.display_path,
        tls=tls if server.startswith("https:") else None,
        proxy=_proxy_url(cluster_entry, server, environ),
        impersonate=_impersonation(user_entry),
        credentials=_credentials(user_entry, cluster_entry, tls, environ, _is_interactive(interactive), clock),
    )


def in_cluster_connection(
    *,
    environ: Mapping[str, str],
    root: Path = SERVICE_ACCOUNT,
    namespace: str | None = None,
    clock: Clock | None = None,
) -> Connection:
    """The connection of a pod to its own cluster. Raises `ConfigError` if this process does not run in a pod."""
    if not environ.get("KUBERNETES_SERVICE_HOST") or not environ.get("KUBERNETES_SERVICE_PORT"):
        raise ConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is not a pod")
    where = "service account (does the pod set automountServiceAccountToken: false?)"
    token = TokenFile(root / "token", where, clock or SystemClock())
    token.read()
    return msgspec.structs.replace(
        in_cluster_server(environ=environ, root=root),
        namespace=namespace or read_config_file(root / "namespace", where).decode(errors="replace").strip(),
        credentials=token,
    )


def in_cluster_server(*, environ: Mapping[str, str], root: Path = SERVICE_ACCOUNT) -> Connection:
    """How a pod reaches the server of its own cluster, without credentials. Raises `ConfigError`."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is not a pod")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    ca = Pem("service account (does the pod set automountServiceAccountToken: false?)", file=root / "ca.crt")
    ca.read()
    return Connection(
        server=server,
        context="in-cluster",
        source=str(root),
        tls=TLS(ca=ca),
        proxy=proxy_from_environment(server, environ),
    )


def untrusted_certificate_message(connection: Connection, address: str, reason: str) -> str:
    """The error for a server certificate that is not trusted: where the CA is configured, and what to write."""
    ca = connection.tls.ca if connection.tls else None
    location = ca.location if ca else f"{connection.source or connection.server}: certificate-authority"
    return (
        f"{location}: does not vouch for {address} ({reason}); "
        "give the CA that signed the server's certificate, or tls-server-name if only the name differs"
    )


def _kubeconfig_files(kubeconfig: str | None, environ: Mapping[str, str], home: Path) -> list[KubeconfigFile]:
    """The files to read. Empty if there is only the default file, and that does not exist."""
    if kubeconfig:
        return [_kubeconfig_file(Path(kubeconfig), home)]
    listed = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    present = [_kubeconfig_file(path, home) for path in listed if _exists(path)]
    if listed and not present:
        names = ", ".join(_kubeconfig_file(path, home).display_path for path in listed)
        raise ConfigError(f"KUBECONFIG: {names}: no such file; correct the variable or unset it")
    default = home / ".kube" / "config"
    return present or ([_kubeconfig_file(default, home)] if _exists(default) else [])


def _exists(path: Path) -> bool:
    """Whether the file exists, or its existence cannot be determined: reading it then reports the problem."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _kubeconfig_file(path: Path, home: Path) -> KubeconfigFile:
    display_path = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
    return KubeconfigFile(path, display_path)


def _require_service_account(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> None:
    for flag, value in flags.items():
        if value:
            raise ConfigError(f'{flag}: names "{value}", but there is no kubeconfig; pass --kubeconfig')
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        raise ConfigError(
            "~/.kube/config: no such file, KUBECONFIG is not set and this is not a pod; pass --kubeconfig"
        )


def _selected_context(
    config: Kubeconfig, flag: str | None, cluster: str | None
) -> tuple[str, NamedEntry[KubeconfigContext]]:
    if flag:
        return flag, entry_named(config.contexts, flag, listed_in="contexts", where=f"{config.display_path}: --context")
    name, where = config.current_context, f"{config.current_context_in}: current-context"
    if name:
        return name, entry_named(config.contexts, name, listed_in="contexts", where=where)
    if cluster and cluster in config.clusters:
        return "", NamedEntry(config.clusters[cluster].file, "", KubeconfigContext())
    raise ConfigError(
        f"{config.display_path}: current-context: is not set; pass --context; {known_names(config.contexts)}"
    )


def _reference(
    config: Kubeconfig, context: NamedEntry[KubeconfigContext], field: Literal["cluster", "user"], flag: str | None
) -> tuple[str, str]:
    """The name that a flag or else the context gives, and where it stands."""
    if flag:
        return flag, f"{config.display_path}: --{field}"
    return getattr(context.value, field), context.location_of(field)


def _selected_cluster(
    config: Kubeconfig, context: NamedEntry[KubeconfigContext], flag: str | None
) -> NamedEntry[KubeconfigCluster]:
    name, where = _reference(config, context, "cluster", flag)
    if not name:
        raise ConfigError(f"{where}: is missing; name a cluster; {known_names(config.clusters)}")
    return entry_named(config.clusters, name, listed_in="clusters", where=where)


def _selected_user(
    config: Kubeconfig, context: NamedEntry[KubeconfigContext], flag: str | None
) -> NamedEntry[KubeconfigUser]:
    name, where = _reference(config, context, "user", flag)
    if not name:
        return NamedEntry(context.file, "users", KubeconfigUser())
    return entry_named(config.users, name, listed_in="users", where=where)


def _server_url(cluster: NamedEntry[KubeconfigCluster]) -> str:
    where, url = cluster.location_of("server"), cluster.value.server
    if not url:
        raise ConfigError(f"{where}: is missing; write https://HOST:PORT")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    # A URL with an @ may contain a password, so the message does not contain the URL.
    if "@" in url:
        raise ConfigError(f"{where}: has a user or an @ in it; write https://HOST:PORT")
    if not usable or not url.isprintable() or " " in url:
        raise ConfigError(f'{where}: is "{url}", which is not an http or https URL; write https://HOST:PORT')
    if "?" in url or "#" in url:
        raise ConfigError(f'{where}: is "{url}"; leave out everything from the ? or # on')
    return url.rstrip("/")


def _tls_settings(cluster: NamedEntry[KubeconfigCluster], user: NamedEntry[KubeconfigUser]) -> TLS:
    value = cluster.value
    ca = _pem(cluster, "certificate-authority", value.certificate_authority, value.certificate_authority_data)
    if ca and value.insecure_skip_tls_verify:
        raise ConfigError(
            f"{cluster.location_of('insecure-skip-tls-verify')}: is true although there is a certificate-authority; "
            "remove one of them"
        )
    return TLS(
        ca=ca,
        client=_client_certificate(user),
        server_name=value.tls_server_name or None,
        insecure=value.insecure_skip_tls_verify,
    )


def _client_certificate(user: NamedEntry[KubeconfigUser]) -> ClientCertificate | None:
    value = user.value
    certificate = _pem(user, "client-certificate", value.client_certificate, value.client_certificate_data)
    key = _pem(user, "client-key", value.client_key, value.client_key_data)
    if certificate and key:
        return ClientCertificate(certificate, key)
    for pem, field, missing_field in (
        (certificate, "client-certificate", "client-key"),
        (key, "client-key", "client-certificate"),
    ):
        if pem:
            raise ConfigError(f"{user.location_of(missing_field)}: is missing; {field} needs it")
    return None


def _pem(
    entry: NamedEntry[KubeconfigCluster] | NamedEntry[KubeconfigUser], field: str, path: str, data: str
) -> Pem | None:
    """The PEM of a field. Inline data takes precedence over a file, as in kubectl. A file is read once to check it."""
    if data:
        where = entry.location_of(f"{field}-data")
        try:
            return Pem(where, data=base64.b64decode("".join(data.split()), validate=True))
        except (binascii.Error, ValueError):
            raise ConfigError(f"{where}: is not base64; encode the PEM file with base64") from None
    if path:
        pem = Pem(entry.location_of(field), file=_path_beside(entry.file, path))
        pem.read()
        return pem
    return None


def _path_beside(file: KubeconfigFile, path: str) -> Path:
    return file.path.parent / path


def _proxy_url(cluster: NamedEntry[KubeconfigCluster], server: str, environ: Mapping[str, str]) -> str | None:
    if cluster.value.proxy_url:
        return validated_proxy(cluster.value.proxy_url, cluster.location_of("proxy-url"))
    return proxy_from_environment(server, environ)


def _impersonation(user: NamedEntry[KubeconfigUser]) -> Impersonation | None:
    value = user.value
    if not value.as_:
        if value.as_uid or value.as_groups or value.as_user_extra:
            raise ConfigError(f"{user.location_of('as')}: is missing; as-uid, as-groups and as-user-extra need it")
        return None
    impersonation = Impersonation(value.as_, value.as_groups, value.as_uid, value.as_user_extra)
    for name, text in impersonation.headers():
        if not text.isprintable():
            raise ConfigError(f"{user.location_of('as')}: {name} would hold a line break or control character")
    return impersonation


def _credentials(
    user: NamedEntry[KubeconfigUser],
    cluster: NamedEntry[KubeconfigCluster],
    tls: TLS,
    environ: Mapping[str, str],
    interactive: bool,
    clock: Clock,
) -> Credentials:
    """The credentials of a user entry. A token takes precedence over an exec plugin, a token file over an inline token."""
    value = user.value
    if value.auth_provider is not None:
        raise ConfigError(
            f'{user.location_of("auth-provider")}: is "{value.auth_provider.name}", which Kubernetes has removed; '
            "use the exec plugin of that provider"
        )
    if (value.token or value.token_file) and (value.username or value.password):
        raise ConfigError(f"{user.location_of('token')}: stands beside username and password; remove one of them")
    if value.token_file:
        file = TokenFile(_path_beside(user.file, value.token_file), user.location_of("tokenFile"), clock)
        file.read()
        return file
    if value.token:
        return StaticToken(value.token.strip(), user.location_of("token"))
    if value.username or value.password:
        return BasicAuth(value.username, value.password)
    if value.exec is not None:
        # Imported here: asyncio takes long to import, and only plugins need it.
        from gangline.kube.config.exec_plugin import ExecPlugin, cluster_info

        info = cluster_info(cluster, tls.ca) if value.exec.provide_cluster_info else {}
        return ExecPlugin(user, value.exec, cluster=info, environ=environ, interactive=interactive, clock=clock)
    return Anonymous()


def _is_interactive(interactive: bool | None) -> bool:
    # sys.stdin is None in a process without standard input.
    return interactive if interactive is not None else bool(sys.stdin and sys.stdin.isatty())
