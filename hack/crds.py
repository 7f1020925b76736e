"""Writes manifests/crds from the code: `python hack/crds.py`. tests/unit/schema/crds/test_job_crds.py fails when they differ."""

from pathlib import Path

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import GROUP
from gangline.cli.authoring.crds import as_yaml
from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_crd
from gangline.schema.crds.job_crds import crd

FOLDER = Path(__file__).parent.parent / "manifests" / "crds"
HEADER = "# Made by hack/crds.py from the types in gangline.api: do not edit.\n"


def files() -> dict[str, str]:
    """The text of every file, by name."""
    texts = {f"{GROUP}_{kind.plural}.yaml": HEADER + as_yaml([crd(kind)]) for kind in TRAINING_KINDS}
    texts |= {f"{one.group}_{one.plural}.yaml": HEADER + as_yaml([gang_crd(one)]) for one in GANG_RESOURCES}
    listed = "".join(f"- {name}\n" for name in texts)
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    return {**texts, "kustomization.yaml": HEADER + head + listed}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
