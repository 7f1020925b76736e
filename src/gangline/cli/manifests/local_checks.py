"""Checks of a job before a run on this machine: all that the server would refuse, and what could never start here."""

from collections.abc import Iterator, Mapping

from gangline.api.codec.documents import Document
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.api.quantity import ZERO, Quantity, QuantityError
from gangline.base.errors import InputError
from gangline.cli.manifests.lint import LintError, check_job
from gangline.why.diagnosis.wording import quantity_text


def check_local_job(document: Document, kind: JobKind, capacity: Mapping[str, Quantity]) -> None:
    """Raise `LintError` with all mistakes in a job, or `InputError` if a replica is larger than this machine."""
    findings = check_job(document, kind)
    if findings:
        raise LintError(findings)
    for replica_type, spec in document.body["spec"][kind.replicas].items():
        containers = spec["template"]["spec"].get("containers") or ()
        for index, container in enumerate(containers):
            for name, amount in _requests(container):
                offered = capacity.get(name, ZERO)
                if amount > offered:
                    where = ("spec", kind.replicas, replica_type, "template", "spec", "containers", index, "resources")
                    raise _capacity_error(document, where, name, amount, offered)


def _requests(container: JSON) -> Iterator[tuple[str, Quantity]]:
    """What a container needs by name: its requests, else its limits."""
    resources = container.get("resources") or {}
    for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
        try:
            yield name, Quantity.of(str(amount))
        except QuantityError:
            continue


def _capacity_error(
    document: Document, where: tuple[str | int, ...], name: str, amount: Quantity, offered: Quantity
) -> InputError:
    has = f"this machine has {quantity_text(offered)}" if offered > ZERO else "this machine has none"
    pretend = f"pretend that it has some: --capacity {name}={amount}"
    if not document.file:
        return InputError(f"--limit {name}={amount}: {has}; leave it out, or {pretend}")
    return document.error(f"a replica needs {name} {amount}, and {has}; change it with --set, or {pretend}", where)
