"""Discovery of our server beside that of a real one: the same groups, versions, resources, subresources and verbs."""

import json
import ssl
import urllib.request
from typing import Any

from gangline.apiserver.http import discovery
from gangline.apiserver.registry.resources import builtin_resources
from support.servers.real import RealServer

JSON = dict[str, Any]
NOT_SERVED = {("", "v1", "componentstatuses")}
"""They are deprecated, and say what nobody can know of other programs."""


def rows(groups: list[JSON]) -> list[tuple[Any, ...]]:
    """One row for each resource, in the order of the document."""
    return [
        (
            group["metadata"].get("name", ""),
            version["version"],
            item["resource"],
            item["scope"],
            item["singularResource"],
            tuple(item["verbs"]),
            tuple(item.get("shortNames", ())),
            tuple(item.get("categories", ())),
            tuple(
                (part["subresource"], part["responseKind"]["kind"], tuple(part["verbs"]))
                for part in item.get("subresources", ())
            ),
        )
        for group in groups
        for version in group["versions"]
        for item in version["resources"]
    ]


def aggregated(server: RealServer, path: str) -> list[JSON]:
    headers = {"Authorization": f"Bearer {server.token}", "Accept": discovery.AGGREGATED_MEDIA_TYPE}
    request = urllib.request.Request(server.url + path, headers=headers)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=server.ca)),
    )
    with opener.open(request, timeout=30) as response:
        found: list[JSON] = json.load(response)["items"]
        return found


def test_all_default_groups_are_served_in_the_same_order(real_server: RealServer) -> None:
    for path, core in (("/api", True), ("/apis", False)):
        ours = rows(discovery.group_discovery_list(builtin_resources(), core=core)["items"])
        # Other tests have installed groups of their own.
        real = [row for row in rows(aggregated(real_server, path)) if "." not in row[0] or row[0].endswith(".k8s.io")]
        assert ours == [row for row in real if row[:3] not in NOT_SERVED]
