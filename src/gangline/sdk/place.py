"""Which server the SDK speaks to: the one asked for, else the one there is, else one that it starts."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gangline.apiserver.store.folder_lock import lock_holder
from gangline.kube.config.connection import SERVICE_ACCOUNT, Connection, load_connection
from gangline.kube.config.credentials import Anonymous, BasicAuth, Credentials, StaticToken
from gangline.kube.config.tls import TLS, ClientCertificate, Pem
from gangline.local.paths import home_folder


def resolve_server(
    config_file: str | None, context: str | None, environ: Mapping[str, str], home: Path
) -> Connection | None:
    """The server that is configured, or runs on this machine; None if there is none. Raises `ConfigError`."""
    if not (config_file or context or environ.get("KUBECONFIG")):
        plane = home_folder(environ=environ)
        if (plane / "pid").exists() and lock_holder(plane) is not None:
            return load_connection(kubeconfig=str(plane / "kubeconfig"), environ=environ, home=home)
        inside = "KUBERNETES_SERVICE_HOST" in environ and SERVICE_ACCOUNT.exists()
        if not inside and not (home / ".kube" / "config").exists():
            return None
    return load_connection(kubeconfig=config_file, context=context, environ=environ, home=home)


def connection_from_configuration(given: Any) -> Connection:
    """A connection from a `Configuration` of the Kubernetes client. Raises `ValueError`."""
    host = getattr(given, "host", None)
    if not isinstance(host, str) or not host:
        raise ValueError("client_configuration: has no host; write a kubernetes.client.Configuration")
    return Connection(
        server=host.rstrip("/"),
        source="client_configuration",
        tls=_tls(given) if host.startswith("https:") else None,
        proxy=getattr(given, "proxy", None),
        credentials=_credentials(given),
    )


def _tls(given: Any) -> TLS:
    pair = getattr(given, "cert_file", None), getattr(given, "key_file", None)
    client = None
    if all(pair):
        certificate, key = (_pem(name, file) for name, file in zip(("cert_file", "key_file"), pair, strict=True))
        client = ClientCertificate(certificate, key)
    ca = getattr(given, "ssl_ca_cert", None)
    return TLS(
        ca=_pem("ssl_ca_cert", ca) if ca else None,
        client=client,
        server_name=getattr(given, "tls_server_name", None) or None,
        insecure=getattr(given, "verify_ssl", True) is False,
    )


def _pem(name: str, file: Any) -> Pem:
    return Pem(f"client_configuration: {name}", file=Path(os.fspath(file)))


def _credentials(given: Any) -> Credentials:
    keys = getattr(given, "api_key", None) or {}
    prefixes = getattr(given, "api_key_prefix", None) or {}
    token = keys.get("authorization") or keys.get("BearerToken")
    if token:
        # `Bearer x` in one, or the word apart.
        bare = token.removeprefix(f"{prefixes.get('authorization', 'Bearer')} ").removeprefix("Bearer ")
        return StaticToken(bare, "client_configuration: api_key")
    user, password = getattr(given, "username", None), getattr(given, "password", None)
    return BasicAuth(user, password) if user and password else Anonymous()
