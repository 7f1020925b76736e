"""The bill of materials of an image, as CycloneDX JSON: what is in it, from which file, under which licence."""

import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import Message
from typing import Any
from urllib.parse import quote

from hack.images.packages import Package

Json = dict[str, Any]

_SPDX = re.compile(r"[A-Za-z0-9.+-]+(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def bill_of_materials(
    name: str,
    architecture: str,
    digest: str,
    epoch: int,
    *,
    debs: Sequence[Package],
    wheels: Sequence[Package],
    modules: Sequence[tuple[str, str]],
) -> Json:
    """What is in an image whose manifest has this digest. `modules` are the Go modules of the agent, with versions."""
    title, _, version = name.rpartition(":")
    root = f"pkg:oci/{quote(title.rpartition('/')[2])}@{quote(digest, safe='')}?arch={architecture}"
    components = [
        *(_deb(each, architecture) for each in debs),
        *(_wheel(each) for each in wheels),
        *(_module(path, version) for path, version in modules),
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "container",
                "bom-ref": root,
                "name": title,
                "version": version,
                "purl": root,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": sorted(components, key=lambda each: str(each["bom-ref"])),
    }


def _component(purl: str, package: Package, licenses: list[Json]) -> Json:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
        "licenses": licenses,
    }


def _deb(package: Package, architecture: str) -> Json:
    version = quote(package.version, safe="")
    kind = package.fields["Architecture"]
    purl = f"pkg:deb/debian/{quote(package.name)}@{version}?arch={architecture if kind == 'any' else kind}&distro=debian-12"
    return _component(purl, package, deb_licenses(package))


def deb_licenses(package: Package) -> list[Json]:
    """The short names in a machine-readable copyright file; where there is none, the place of the text."""
    node = package.tree.get(f"usr/share/doc/{package.name}/copyright")
    text = node.read().decode(errors="replace") if node is not None and node.content is not None else ""
    names: set[str] = set()
    if "copyright-format/1.0" in text:
        names = {each.strip() for each in re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE)}
    names = names or {f"see /usr/share/doc/{package.name}/copyright"}
    return [{"license": {"name": each}} for each in sorted(names)]


def _wheel(package: Package) -> Json:
    name = re.sub(r"[-_.]+", "-", package.name).lower()
    return _component(f"pkg:pypi/{name}@{quote(package.version, safe='')}", package, wheel_licenses(package.fields))


def wheel_licenses(fields: Message) -> list[Json]:
    """The expression of the metadata, if there is one; else the names in older fields."""
    if expression := fields["License-Expression"]:
        return [{"expression": expression}]
    names = [each.rpartition(" :: ")[2] for each in fields.get_all("Classifier", []) if each.startswith("License :: ")]
    older = (fields["License"] or "").strip()
    if not names and _SPDX.fullmatch(older):
        names = [older]
    return [{"license": {"name": each}} for each in names or ["see the METADATA of the package"]]


def _module(path: str, version: str) -> Json:
    purl = f"pkg:golang/{path}@{version}"
    return {"type": "library", "bom-ref": purl, "name": path, "version": version, "purl": purl}


def go_modules(text: str) -> list[tuple[str, str]]:
    """What a go.mod requires."""
    return re.findall(r"^(?:require)?\s*([\w./-]+\.[\w./-]+) (v\S+)", text, re.MULTILINE)
