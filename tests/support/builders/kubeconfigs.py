"""kubeconfig files for tests, by default with one cluster and one user."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gangline.base.clock import Clock
from gangline.kube.config.connection import Connection, load_connection

SERVER_URL = "https://api.example:6443"


def kubeconfig_document(cluster: Mapping[str, Any] = {}, user: Mapping[str, Any] = {}, /, **top: Any) -> dict[str, Any]:
    """Context `dev` of cluster `kind` and user `me`; `top` replaces whole top-level fields."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "contexts": [{"name": "dev", "context": {"cluster": "kind", "user": "me"}}],
        "clusters": [{"name": "kind", "cluster": {"server": SERVER_URL, **cluster}}],
        "users": [{"name": "me", "user": dict(user)}],
        **top,
    }


def write_kubeconfig(home: Path, content: Mapping[str, Any] | str, name: str = ".kube/config") -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def connection_from(
    home: Path,
    cluster: Mapping[str, Any] = {},
    user: Mapping[str, Any] = {},
    *,
    clock: Clock | None = None,
    **flags: Any,
) -> Connection:
    """Write a kubeconfig to the default path and load it."""
    write_kubeconfig(home, kubeconfig_document(cluster, user))
    return load_connection(environ=flags.pop("environ", {}), home=home, clock=clock, interactive=False, **flags)


def base64_text(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
