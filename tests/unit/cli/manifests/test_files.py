"""Manifests given with -f."""

import io
from pathlib import Path
from typing import Any

import pytest

from gangline.api.codec.documents import documents
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerTarget
from gangline.cli.manifests.files import ResourceFinder, field_line, path_steps, read_files, resolve_manifest
from gangline.cli.manifests.server_errors import located_error
from gangline.kube.config.connection import Connection
from gangline.kube.errors import Invalid, Status, StatusCause, StatusDetails

MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n"


def server_target(namespace: str = "ns", flag_namespace: str = "") -> ServerTarget:
    return ServerTarget(Connection(server="https://x", namespace=namespace), namespace, flag_namespace=flag_namespace)


def names(parsed: list[Any]) -> list[str]:
    return [document.body["metadata"]["name"] for document in parsed]


def test_files_folders_and_lists_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(MAP.format("b") + "---\n" + MAP.format("c"))
    (tmp_path / "a.json").write_text('{"metadata": {"name": "a"}}')
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.yml").write_text(MAP.format("d"))
    assert names(read_files([str(tmp_path)])) == ["a", "b", "c"]
    assert names(read_files([str(tmp_path)], recursive=True)) == ["a", "b", "c", "d"]


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(MAP.format("x")))
    (parsed,) = read_files(["-"])
    assert (parsed.file, names([parsed])) == ("stdin", ["x"])


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_files([str(tmp_path / "none.yaml")])
    with pytest.raises(InputError, match=r"holds no \.yaml.*-R"):
        read_files([str(tmp_path)])


def test_paths_of_a_server_have_lines() -> None:
    assert path_steps("spec.containers[0].name") == ("spec", "containers", 0, "name")
    assert path_steps("metadata.labels[a.b/c]") == ("metadata", "labels", "a.b/c")
    (parsed,) = documents(MAP.format("x"))
    assert field_line(parsed, "metadata.name") == 4
    assert field_line(parsed, "metadata.labels[x]") == 3
    assert field_line(parsed, "<nil>") == 1


async def test_the_namespace_is_that_of_the_object_or_of_the_server_options() -> None:
    catalogue = ResourceFinder(None)  # type: ignore[arg-type] # not asked: the kinds are known by heart
    (plain,) = documents(MAP.format("x"))
    _, key, body = await resolve_manifest(catalogue, plain, server_target())
    assert (str(key), body["metadata"]["namespace"]) == ("ns/x", "ns")
    (written,) = documents(MAP.format("x") + "  namespace: other\n")
    assert str((await resolve_manifest(catalogue, written, server_target()))[1]) == "other/x"
    with pytest.raises(InputError, match="--namespace"):
        await resolve_manifest(catalogue, written, server_target(flag_namespace="ns"))
    (cluster,) = documents("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    assert str((await resolve_manifest(catalogue, cluster, server_target()))[1]) == "x"


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod\nmetadata: {name: x}",
        "apiVersion: v1\nkind: Pod",
        "apiVersion: v1\nkind: Pod\nmetadata: {}",
    ],
)
async def test_an_object_without_a_kind_or_name_is_an_error_with_its_line(text: str) -> None:
    (parsed,) = documents(text, file="f.yaml")
    with pytest.raises(InputError, match=r"f\.yaml:\d: .*required field is missing"):
        await resolve_manifest(ResourceFinder(None), parsed, server_target())  # type: ignore[arg-type]


def test_every_cause_of_a_rejection_has_its_line() -> None:
    (parsed,) = documents(MAP.format("X"), file="f.yaml")
    causes = (StatusCause(field="metadata.name", message="bad"), StatusCause(field="data", message="worse"))
    error = Invalid(Status(code=422, details=StatusDetails(kind="ConfigMap", causes=causes)))
    assert located_error(parsed, error) == "error: f.yaml:4: metadata.name: bad\nerror: f.yaml:1: data: worse"
