"""The strategy of CustomResourceDefinitions."""

from collections.abc import Iterator
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.crd.decoding import normalize_crd_spec
from gangline.apiserver.kinds.crd.validation import crd_problems, crd_update_problems
from gangline.apiserver.kinds.machinery.metadata import MetadataRules
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.schema.formats import format_predicate
from gangline.schema.problems import FieldProblem


class CrdStrategy(Strategy):
    """Defaults and validation of a CRD."""

    namespaced = False
    has_status = True
    has_generation = True
    metadata_rules = MetadataRules

    def set_defaults(self, obj: JSON) -> None:
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            spec = obj["spec"] = {}
        normalize_crd_spec(spec)
        # A null is as good as nothing.
        for field in ("names", "conversion"):
            if spec.get(field) is None:
                spec.pop(field, None)
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("listKind", f"{names['kind']}List")
            names.setdefault("singular", names["kind"].lower())
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        storage = [v["name"] for v in obj["spec"].get("versions") or () if v.get("storage")]
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": storage[:1] or None,
        }

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        stored = (obj.get("status") or {}).get("storedVersions") or []
        storage = [v["name"] for v in obj["spec"].get("versions") or () if v.get("storage")]
        missing = [name for name in storage[:1] if name not in stored]
        if missing:
            obj["status"] = {**obj["status"], "storedVersions": [*stored, *missing]}

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return crd_problems(obj)

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        changed = obj["spec"] != old["spec"]
        problems = crd_problems(obj) if changed else []
        update_problems = crd_update_problems(obj, old) if changed else []
        # A changed group or plural no longer fits the name. This is reported once, as the change.
        own_problems = [problem for problem in problems if not (update_problems and problem.field == "metadata.name")]
        return [*self.metadata.validate_update(obj, old), *own_problems, *update_problems]

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        versions = obj["spec"].get("versions") or ()
        formats: dict[str, None] = {}
        for version in versions:
            formats |= dict.fromkeys(_unknown_formats((version.get("schema") or {}).get("openAPIV3Schema")))
        return [f'unrecognized format "{name}"' for name in formats]


def _unknown_formats(schema: Any) -> Iterator[str]:
    """String formats in the schema that the server does not validate, in the order of the schema."""
    # A loop, because definitions are large: a pod template alone has some 1,400 schemas.
    pending = [schema]
    while pending:
        part = pending.pop()
        if not isinstance(part, dict):
            continue
        name = part.get("format")
        if name and part.get("type") == "string" and format_predicate(name) is None:
            yield name
        if not _NESTED_KEYWORDS.isdisjoint(part):
            pending += reversed(list(_subschemas(part)))


_NESTED_KEYWORDS = frozenset({"items", "additionalProperties", "not", "allOf", "anyOf", "oneOf", "properties"})


def _subschemas(schema: JSON) -> Iterator[Any]:
    for name in ("items", "additionalProperties", "not"):
        yield schema.get(name)
    for name in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(name) or ()
    yield from (schema.get("properties") or {}).values()
