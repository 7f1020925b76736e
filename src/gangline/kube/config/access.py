"""How to reach an embedded control plane."""

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gangline.api.meta import JSON

CONTEXT_NAME = "gangline"


class PlaneAccess(msgspec.Struct, frozen=True):
    """The URL of a plane and a token for it. The repr does not show the token."""

    server: str
    token: str
    ca: Path | None = None

    def __repr__(self) -> str:
        return f"PlaneAccess({self.server!r})"

    def ca_text(self) -> str:
        """The CA of the plane as PEM; empty without TLS."""
        return self.ca.read_text() if self.ca is not None else ""

    def in_cluster_env(self) -> dict[str, str]:
        """The variables by which clients inside a container find the API server."""
        parts = urlsplit(self.server)
        return {"KUBERNETES_SERVICE_HOST": parts.hostname or "", "KUBERNETES_SERVICE_PORT": str(parts.port or 443)}

    def kubeconfig(self, namespace: str = "", user: JSON | None = None) -> JSON:
        """A kubeconfig for kubectl and other clients, with the token of this access, or with another user's credentials."""
        cluster: JSON = {"server": self.server}
        if self.ca is not None:
            cluster["certificate-authority"] = str(self.ca.absolute())
        context: JSON = {"cluster": CONTEXT_NAME, "user": CONTEXT_NAME}
        if namespace:
            context["namespace"] = namespace
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CONTEXT_NAME, "cluster": cluster}],
            "users": [{"name": CONTEXT_NAME, "user": {"token": self.token} if user is None else user}],
            "contexts": [{"name": CONTEXT_NAME, "context": context}],
            "current-context": CONTEXT_NAME,
        }
