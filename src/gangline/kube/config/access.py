"""How to reach an embedded control plane."""

from pathlib import Path

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

    def kubeconfig(self, namespace: str = "") -> JSON:
        """A kubeconfig for kubectl and other clients."""
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
            "users": [{"name": CONTEXT_NAME, "user": {"token": self.token}}],
            "contexts": [{"name": CONTEXT_NAME, "context": context}],
            "current-context": CONTEXT_NAME,
        }
