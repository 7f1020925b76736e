"""Defaults of a schema must fit the schema they stand in."""

from collections.abc import Iterator

from gangline.schema.cel.rules import rules_of
from gangline.schema.problems import Problem, ProblemKind
from gangline.schema.structural import embedded_objects
from gangline.schema.structural.correlation import same
from gangline.schema.structural.defaulting import copied
from gangline.schema.structural.embedded_objects import MetadataError
from gangline.schema.structural.nodes import META_FIELDS, Node
from gangline.schema.structural.pruning import prune
from gangline.schema.structural.validation import validate


def default_problems(node: Node, path: str) -> list[Problem]:
    """Defaults of a whole schema that do not fit it."""
    return list(_defaults(node, path, root=True, inside_meta=False))


def _defaults(node: Node, path: str, *, root: bool, inside_meta: bool) -> Iterator[Problem]:
    if not node.has_defaults:
        return
    resource = root or node.embedded
    if resource:
        inside_meta = False
    if node.has_default:
        yield from _default(node, f"{path}.default", resource=resource, inside_meta=inside_meta)
    if node.items is not None:
        yield from _defaults(node.items, f"{path}.items", root=False, inside_meta=inside_meta)
    for name, part in sorted(node.properties.items()):
        meta = inside_meta or (resource and name in META_FIELDS)
        yield from _defaults(part, f"{path}.properties[{name}]", root=False, inside_meta=meta)


def _default(node: Node, path: str, *, resource: bool, inside_meta: bool) -> Iterator[Problem]:
    value = copied(node.default)
    if not inside_meta:
        prune(value, node, root=resource)
        if not same(value, node.default):
            yield Problem(ProblemKind.INVALID, path, node.default, "must not have unknown fields")
    value = copied(node.default)
    try:
        embedded_objects.coerce(value, node, path, root=resource)
    except MetadataError as error:
        yield Problem(ProblemKind.INVALID, path, node.default, str(error))
        return
    wrong = embedded_objects.validate_embedded(value, node, path, root=resource) or validate(
        value, node, prefix=path
    )
    if not wrong and (rules := rules_of(node, root=resource)) is not None:
        wrong = rules.run(value, value, path=path).problems or rules.run(value, path=path).problems
    yield from wrong
