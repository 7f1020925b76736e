"""How to reach a plane, as a value and as a kubeconfig."""

from pathlib import Path

import msgspec

from gangline.api.meta import JSON

CONTEXT_NAME = "gangline"


class PlaneAccess(msgspec.Struct, frozen=True):
    """The address of a plane and the right to use it. Its text shows no token."""

    server: str
    token: str
    ca: Path | None = None

    def __repr__(self) -> str:
        return f"Access({self.server!r})"

    def kubeconfig(self, namespace: str = "") -> JSON:
        """For kubectl and every other client."""
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
