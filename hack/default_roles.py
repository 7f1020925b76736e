"""Saves the roles and bindings that a real kube-apiserver creates at its start. The same bytes every time.

    python hack/default_roles.py    needs hack/kubernetes.sh to have run; a few seconds

Writes src/gangline/apiserver/data/default_roles.json.z: the objects without what differs from server to
server (uid, resourceVersion, times). NOTICE there says whose work it is.
"""

import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.servers import real  # noqa: E402

DATA = ROOT / "src" / "gangline" / "apiserver" / "data" / "default_roles.json.z"
GROUP = "rbac.authorization.k8s.io"
KINDS = {
    "clusterroles": "ClusterRole",
    "clusterrolebindings": "ClusterRoleBinding",
    "roles": "Role",
    "rolebindings": "RoleBinding",
}


def main() -> None:
    with real.RealServer(controller_manager=True) as server:
        objects = aggregated_objects(server)
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_bytes(zlib.compress(json.dumps(objects, separators=(",", ":")).encode(), 9))
    print(f"{len(objects)} objects, {DATA.stat().st_size:,} bytes")


def aggregated_objects(server: real.RealServer) -> list[Any]:
    """All roles and bindings, when the rules of aggregated roles are there and nothing changes any more."""
    before: list[Any] = []
    while True:
        objects = [
            template(kind, item)
            for kind in KINDS
            for item in server.call("GET", f"/apis/{GROUP}/v1/{kind}").body["items"]
        ]
        waiting = [role for role in objects if "aggregationRule" in role and not role.get("rules")]
        if objects == before and not waiting:
            return objects
        before = objects
        time.sleep(1)


def template(plural: str, item: Any) -> Any:
    metadata = item["metadata"]
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        del metadata[field]
    for entry in metadata["managedFields"]:
        del entry["time"]
    return {"kind": KINDS[plural], "apiVersion": f"{GROUP}/v1", **item}


if __name__ == "__main__":
    main()
