"""Values that look like secrets do not get into a bundle, and what is taken out is listed."""

import base64
from typing import Any

import msgspec
import pytest

from gangline.replay.bundle import CodeFile
from gangline.replay.scrub import Scrubber, config_map_names, secret_references

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----\n"


def text_of(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def pod(*env: dict[str, Any], **container: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "pytorch", "env": list(env), **container}]}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DB_PASSWORD", "hunter2"),
        ("HF_TOKEN", "abcdef123"),
        ("WANDB_API_KEY", "0123456789abcdef"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
        ("SETTINGS", f"token={TOKEN}"),
        ("CERT", KEY),
    ],
)
def test_the_value_of_a_variable_that_looks_like_a_secret_is_left_out(name: str, value: str) -> None:
    clean = Scrubber()
    body = clean.object(pod({"name": name, "value": value}), "the job")
    assert value not in text_of(body)
    assert body["spec"]["containers"][0]["env"] == [{"name": name, "value": ""}]
    assert [(one.what, value in one.why) for one in clean.left_out] == [(f"variable {name} of the job", False)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "4096"),
        ("TOKEN_COUNT", "512"),
        ("PASSWORD_FILE", "/run/secrets/password"),
        ("API_KEY", "$(OTHER)"),
        ("NCCL_DEBUG", "INFO"),
    ],
)
def test_an_ordinary_variable_stays(name: str, value: str) -> None:
    clean, body = Scrubber(), pod({"name": name, "value": value})
    assert clean.object(body, "the job") == body
    assert clean.left_out == ()


def test_a_secret_value_is_found_again_wherever_it_stands() -> None:
    clean = Scrubber()
    body = pod({"name": "DB_PASSWORD", "value": "hunter2-long"}, command=["train", "--db=postgres:hunter2-long"])
    clean.add_values(body)
    assert "hunter2-long" not in text_of(clean.object(body, "the job"))
    assert clean.lines(["connects with hunter2-long"], "the log") == ("connects with (left out)",)
    code = clean.code({"a.py": CodeFile(b"PASSWORD = 'hunter2-long'\n")})
    assert b"hunter2-long" not in code["a.py"].content


def test_tokens_assignments_and_logins_in_a_log_are_masked() -> None:
    clean = Scrubber()
    lines = clean.lines(
        [
            f"login with {TOKEN}",
            "password=s3cr3t!",
            "https://me:pass@host/x",
            "Authorization: Bearer abc.def.ghi",
            "ok",
        ],
        "the log of worker-0",
    )
    text = "\n".join(lines)
    for secret in (TOKEN, "s3cr3t!", "me:pass", "abc.def.ghi"):
        assert secret not in text
    assert lines[-1] == "ok"
    assert [one.what for one in clean.left_out] == ["parts of the log of worker-0"]


def test_code_in_a_command_stays_as_it_is() -> None:
    code = 'import os\ntoken = os.environ["X"]\napi_key = args.key\nfor token in tokens: print(token)\n'
    body = pod(command=["python", "-c", code])
    assert Scrubber().object(body, "the job") == body


def test_a_log_with_a_private_key_is_left_out_whole() -> None:
    clean = Scrubber()
    assert clean.lines(["start", *KEY.splitlines()], "the log of worker-0") == ()
    assert clean.left_out[0].what == "the log of worker-0"


def test_what_kubectl_applied_is_not_recorded() -> None:
    body = {
        "metadata": {"name": "p", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": TOKEN, "a": "b"}}
    }
    assert Scrubber().object(body, "the job")["metadata"]["annotations"] == {"a": "b"}


def test_a_config_map_keeps_its_keys_and_loses_its_secrets() -> None:
    clean = Scrubber()
    body = {
        "metadata": {"name": "settings"},
        "data": {"train.yaml": "lr: 0.1\n", "kubeconfig": "x", "db_password": "hunter2", "note": f"use {TOKEN}"},
        "binaryData": {"id_rsa": base64.b64encode(KEY.encode()).decode()},
    }
    kept = clean.config_map(body)
    assert kept["data"] == {"train.yaml": "lr: 0.1\n", "kubeconfig": "", "db_password": "", "note": "use (left out)"}
    assert kept["binaryData"] == {"id_rsa": ""}
    assert len(clean.left_out) == 4


def test_a_file_that_is_a_credential_is_not_packed() -> None:
    clean = Scrubber()
    files = {".env": CodeFile(b"A=1"), "train.py": CodeFile(b"print(1)\n"), "k8s.yaml": CodeFile(b"kind: Secret\n")}
    assert list(clean.code(files)) == ["train.py"]
    assert {one.what for one in clean.left_out} == {"file .env", "file k8s.yaml"}


def test_references_to_secrets_and_config_maps_are_found() -> None:
    spec = {
        "containers": [
            {
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s1", "key": "k"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c1", "key": "k"}}},
                ],
                "envFrom": [{"secretRef": {"name": "s2"}}, {"configMapRef": {"name": "c2"}}],
            }
        ],
        "volumes": [
            {"name": "v", "secret": {"secretName": "s3", "items": [{"key": "x", "path": "x"}]}},
            {"name": "w", "configMap": {"name": "c3"}},
            {"name": "p", "projected": {"sources": [{"secret": {"name": "s4"}}, {"configMap": {"name": "c4"}}]}},
        ],
    }
    assert secret_references(spec) == {"s1": {"k"}, "s2": set(), "s3": {"x"}, "s4": set()}
    assert config_map_names(spec) == {"c1", "c2", "c3", "c4"}
