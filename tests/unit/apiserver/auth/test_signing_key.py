"""The key of service account tokens: kept in a private file, refused when damaged."""

import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gangline.apiserver.auth.signing_key import SignatureError, SigningKey
from gangline.base.errors import InputError


class Claims(msgspec.Struct):
    name: str


@pytest.mark.parametrize("only_for_us", [False, True])
def test_token_is_verified_by_the_key_that_signed_it_and_by_no_other(only_for_us: bool) -> None:
    key = SigningKey()
    token = key.sign(Claims("x"), only_for_us=only_for_us)
    key.verify(token)
    with pytest.raises(SignatureError, match="no keys found"):
        SigningKey().verify(token)


@pytest.mark.parametrize("only_for_us", [False, True])
@pytest.mark.parametrize("part", [0, 1, 2])
def test_changed_token_is_refused(part: int, only_for_us: bool) -> None:
    key = SigningKey()
    parts = key.sign(Claims("x"), only_for_us=only_for_us).split(".")
    letters = parts[part]
    middle = len(letters) // 2
    other = "A" if letters[middle] != "A" else "B"
    parts[part] = letters[:middle] + other + letters[middle + 1 :]
    with pytest.raises((SignatureError, ValueError)):
        key.verify(".".join(parts))


def test_token_without_signature_or_of_another_algorithm_is_refused() -> None:
    key = SigningKey()
    text = key.sign(Claims("x")).rpartition(".")[0]
    with pytest.raises(SignatureError):
        key.verify(f"{text}.")
    for header in ("eyJhbGciOiJub25lIn0", "eyJhbGciOiJIUzI1NiJ9"):  # {"alg":"none"}, {"alg":"HS256"}
        with pytest.raises(SignatureError):
            key.verify(f"{header}.{text.partition('.')[2]}.{'A' * 86}")


def test_token_cannot_choose_how_its_key_verifies_it() -> None:
    key = SigningKey()
    headers = [key.sign(Claims("x"), only_for_us=flag).split(".")[0] for flag in (False, True)]
    bodies = [key.sign(Claims("x"), only_for_us=flag).partition(".")[2] for flag in (False, True)]
    for header, body in zip(headers, reversed(bodies), strict=True):
        with pytest.raises(SignatureError):
            key.verify(f"{header}.{body}")


def test_server_with_a_key_file_signs_all_tokens_with_it(tmp_path: Path) -> None:
    token = SigningKey(tmp_path / "key").sign(Claims("x"), only_for_us=True)
    SigningKey(tmp_path / "key").verify(token)


def test_pods_of_a_run_get_tokens_without_the_import_of_cryptography() -> None:
    program = """
import sys
import msgspec
from gangline.apiserver.auth.signing_key import SigningKey
class Claims(msgspec.Struct):
    name: str
key = SigningKey()
key.verify(key.sign(Claims("x"), only_for_us=True))
print("cryptography" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_key_file_is_private_and_outlives_the_process(tmp_path: Path) -> None:
    file = tmp_path / "key"
    token = SigningKey(file).sign(Claims("x"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = SigningKey(file)
    again.verify(token)
    assert again.public_jwk()["kid"] == again.key_id
    assert "d" not in again.public_jwk()


@pytest.mark.parametrize("text", ["", "{}", '{"kty":"EC","crv":"P-256","x":"","y":"","d":""}', "not a key"])
def test_damaged_key_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(InputError, match=r"key: is not a private P-256 key \(JWK\); remove it"):
        SigningKey(file)
