"""Answers that do not fit into one piece."""

from gangline.api.core import ConfigMap
from gangline.api.meta import Key, Selector
from gangline.kube.client import Client
from support.builders.objects import config_map_body


async def test_list_of_megabytes_arrives_whole(client: Client, namespace: str) -> None:
    # Namespaces may have config maps of their own.
    texts = {f"part-{index}": f"{index}é" * 50_000 for index in range(8)}
    for name, text in texts.items():
        await client.create(ConfigMap, config_map_body(name, namespace, text=text))
    found = await client.list(ConfigMap, Selector(namespace))
    assert {item.metadata.name: item.data["text"] for item in found.items if "text" in item.data} == texts
    # The connection is in order afterwards.
    again = await client.get(ConfigMap, Key(namespace, "part-0"))
    assert again.data["text"] == texts["part-0"]
