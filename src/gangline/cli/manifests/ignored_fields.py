"""Warnings about fields of jobs in files that have no effect. The operator says the same by an event."""

from collections.abc import Iterable

import click

from gangline.api.codec.documents import Document
from gangline.api.kubeflow.training import GROUP


def print_ignored_fields(documents: Iterable[Document]) -> None:
    """Print a warning for each field of the training jobs among the documents that has no effect."""
    jobs = [document for document in documents if str(document.body.get("apiVersion")).startswith(f"{GROUP}/")]
    if not jobs:
        return
    # Imported here: schemas and their rules load slowly.
    from gangline.cli.manifests.lint import ignored_field_findings

    for document in jobs:
        for finding in ignored_field_findings(document):
            click.echo(f"warning: {finding}", err=True)
