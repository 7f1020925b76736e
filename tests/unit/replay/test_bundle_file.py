"""A bundle as a file: what is written is read again, and a file of somebody else is checked."""

import io
import zipfile
from datetime import UTC, datetime

import pytest

from gangline.base.errors import InputError
from gangline.replay.bundle import (
    CodeFile,
    FaultCause,
    JobBundle,
    LeftOut,
    Manifest,
    RecordedFault,
    RecordedVerdict,
    ReplicaRecord,
)
from gangline.replay.bundle_file import decode_bundle, encode_bundle

BUNDLE = JobBundle(
    manifest=Manifest(
        version=1,
        made_by="0.1",
        recorded_at=datetime(2026, 11, 18, 3, tzinfo=UTC),
        kind="PyTorchJob",
        namespace="default",
        name="bert",
        code="shipped",
        left_out=(LeftOut("Secret s", "secrets are recorded by name only"),),
    ),
    job={"metadata": {"name": "bert"}},
    verdict=RecordedVerdict("worker-1", 2, "python-exception", "it raised", "Failed"),
    faults=(RecordedFault("worker-1", FaultCause.EXIT, exit_code=1, step=12.0, after_seconds=3.5),),
    replicas=(ReplicaRecord("worker-1", log=("one", "", "two \N{SNOWMAN}")), ReplicaRecord("worker-0")),
    pods=({"metadata": {"name": "bert-worker-1"}},),
    config_maps=({"metadata": {"name": "c"}, "data": {"a": "b"}},),
    diagnosis={"summary": "failed"},
    code={"train.py": CodeFile(b"print(1)\n"), "bin/run.sh": CodeFile(b"#!/bin/sh\n", 0o755)},
)


def test_what_is_written_is_read_again() -> None:
    assert decode_bundle(encode_bundle(BUNDLE), "x.bundle") == BUNDLE


def test_equal_bundles_are_equal_files() -> None:
    assert encode_bundle(BUNDLE) == encode_bundle(decode_bundle(encode_bundle(BUNDLE), "x"))


def changed(name: str, content: bytes | None) -> bytes:
    """The file of the bundle with one part changed, or left out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(encode_bundle(BUNDLE))) as old, zipfile.ZipFile(buffer, "w") as new:
        for info in old.infolist():
            if info.filename != name:
                new.writestr(info, old.read(info))
        if content is not None:
            new.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"not a zip", "is not a whole bundle"),
        (encode_bundle(BUNDLE)[:-40], "is not a whole bundle"),
        (changed("manifest.json", None), "without manifest.json"),
        (changed("manifest.json", b'{"version": 9}'), "version 9"),
        (changed("faults.json", None), "has no faults.json"),
        (changed("faults.json", b'[{"replica": 1}]'), "faults.json"),
        (changed("code/../../evil", b"x"), "outside of its folder"),
        (changed("code//etc/passwd", b"x"), "outside of its folder"),
    ],
    ids=["no zip", "cut", "no manifest", "version", "no faults", "bad faults", "out of it", "absolute"],
)
def test_a_file_that_is_no_bundle_is_refused_in_one_line(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        decode_bundle(data, "job.bundle")
    assert str(caught.value).startswith("job.bundle: ")
    assert "\n" not in str(caught.value)
