"""Validation of the defaults in a schema against the schema itself."""

from collections.abc import Iterator

from gangline.schema.cel.rules import compile_rules
from gangline.schema.correlation import json_equal
from gangline.schema.nodes import META_FIELDS, SchemaNode
from gangline.schema.problems import FieldProblem, invalid
from gangline.schema.structural import embedded_objects
from gangline.schema.structural.defaulting import deep_copy
from gangline.schema.structural.embedded_objects import MetadataError
from gangline.schema.structural.pruning import prune
from gangline.schema.structural.validation import validate


def default_problems(node: SchemaNode, path: str) -> list[FieldProblem]:
    """Problems of all defaults in a schema."""
    return list(_default_problems(node, path, root=True, inside_meta=False))


def _default_problems(node: SchemaNode, path: str, *, root: bool, inside_meta: bool) -> Iterator[FieldProblem]:
    if not node.has_defaults:
        return
    resource = root or node.embedded
    if resource:
        inside_meta = False
    if node.has_default:
        yield from _node_default_problems(node, f"{path}.default", resource=resource, inside_meta=inside_meta)
    if node.items is not None:
        yield from _default_problems(node.items, f"{path}.items", root=False, inside_meta=inside_meta)
    for name, part in sorted(node.properties.items()):
        meta = inside_meta or (resource and name in META_FIELDS)
        yield from _default_problems(part, f"{path}.properties[{name}]", root=False, inside_meta=meta)


def _node_default_problems(node: SchemaNode, path: str, *, resource: bool, inside_meta: bool) -> Iterator[FieldProblem]:
    value = deep_copy(node.default)
    if not inside_meta:
        prune(value, node, root=resource)
        if not json_equal(value, node.default):
            yield invalid(path, node.default, "must not have unknown fields")
    value = deep_copy(node.default)
    try:
        embedded_objects.coerce_metadata(value, node, path, root=resource)
    except MetadataError as error:
        yield invalid(path, node.default, str(error))
        return
    problems = embedded_objects.validate_embedded(value, node, path, root=resource) or validate(
        value, node, prefix=path
    )
    if not problems and (rules := compile_rules(node, root=resource)) is not None:
        problems = rules.run(value, value, path=path).problems or rules.run(value, path=path).problems
    yield from problems
