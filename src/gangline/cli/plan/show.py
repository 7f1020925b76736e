"""`gangline plan`: prints planned objects as a tree, YAML, JSON or names."""

from collections.abc import Iterator, Sequence

from gangline.api.meta import JSON
from gangline.cli.output import formats, tables


def print_plan(plans: Sequence[tuple[JSON, list[JSON]]], form: str) -> None:
    """Print jobs with their planned objects; `form` is `tree`, `name`, `yaml` or `json`."""
    bodies = [body for _, objects in plans for body in objects]
    if form == "tree":
        tables.write_stdout("".join(f"{line}\n" for job, objects in plans for line in tree_lines(job, objects)))
    elif form == "name":
        tables.write_stdout("".join(f"{formats.object_name(body)}\n" for body in bodies))
    elif form == "yaml":
        tables.write_stdout("---\n".join(map(formats.as_yaml, bodies)))
    else:
        tables.write_stdout(formats.as_json(formats.list_object(bodies)))


def tree_lines(job: JSON, bodies: Sequence[JSON]) -> Iterator[str]:
    """The job, and below it its objects."""
    yield f"{formats.object_name(job)} in {job['metadata']['namespace']}"
    for number, body in enumerate(bodies):
        last = number == len(bodies) - 1
        yield f"{'└──' if last else '├──'} {body['kind'].lower()}/{body['metadata']['name']}{_object_details(body)}"
        indent = "    " if last else "│   "
        for line in _container_lines(body):
            yield f"{indent}  {line}"


def _object_details(body: JSON) -> str:
    spec = body.get("spec") or {}
    if body["kind"] == "Service":
        ports = ", ".join(f"{port.get('name', '')} {port['port']}" for port in spec.get("ports") or ())
        return f"  {ports}" if ports else ""
    if body["kind"] == "PodGroup":
        queue = f", queue {spec['queue']}" if spec.get("queue") else ""
        return f"  {spec['minMember']} pods at once or none{queue}"
    return f"  restart {spec['restartPolicy']}" if body["kind"] == "Pod" and spec.get("restartPolicy") else ""


def _container_lines(body: JSON) -> Iterator[str]:
    if body["kind"] != "Pod":
        return
    spec = body["spec"]
    for title, containers in (("init ", spec.get("initContainers") or ()), ("", spec.get("containers") or ())):
        for container in containers:
            limits = (container.get("resources") or {}).get("limits") or {}
            amounts = " ".join(f"{name}={value}" for name, value in sorted(limits.items()))
            yield f"{title}{container['name']}: {container.get('image', '')}{f'  {amounts}' if amounts else ''}"
            names = [str(variable["name"]) for variable in container.get("env") or ()]
            if names:
                yield f"  env {' '.join(names)}"
