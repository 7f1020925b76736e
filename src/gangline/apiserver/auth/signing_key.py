"""The key that signs the tokens of service accounts: ES256 with P-256, created on its first use.

The key file is a private JWK. `cryptography` is imported on the first token, because that takes long. A server that
keeps nothing signs tokens that only it verifies with HMAC instead: the pods of `gangline run` start without the import.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.api.meta import JSON
from gangline.base.errors import GanglineError, InputError
from gangline.base.files import write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

ALGORITHM, HMAC_ALGORITHM = "ES256", "HS256"
CURVE, COORDINATE_BYTES = "P-256", 32
SIGNATURE_MESSAGE = "go-jose/go-jose: error in cryptographic primitive"
_PUBLIC_KEY_PREFIX = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
"""The beginning of every P-256 public key in DER; the two coordinates follow."""


class SignatureError(GanglineError):
    """A token is not signed by this key. The message is kube-apiserver's."""


class PrivateJwk(msgspec.Struct, frozen=True):
    """A private P-256 key as a JSON Web Key. The repr does not show it."""

    kty: str
    crv: str
    x: str
    y: str
    d: str

    def __repr__(self) -> str:
        return "PrivateJwk()"


class SigningKey:
    """Signs and verifies JSON Web Tokens. The key is in a file, or in memory only."""

    def __init__(self, file: Path | None = None) -> None:
        """Raises `InputError` for a file that is no such key."""
        self._file = file
        self._stored = _read_jwk(file) if file is not None and file.exists() else None
        # Known to this process only: who wants to verify these tokens asks it by a TokenReview.
        self._hmac_secret, self._hmac_id = secrets.token_bytes(32), secrets.token_urlsafe(16)

    def sign(self, claims: msgspec.Struct, *, only_for_us: bool = False) -> str:
        """A signed token with these claims. `only_for_us` allows one that only this server can verify."""
        if only_for_us and self._file is None:
            text = _unsigned({"alg": HMAC_ALGORITHM, "kid": self._hmac_id}, claims)
            return f"{text}.{_encode(self._hmac(text))}"
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        text = _unsigned({"alg": ALGORITHM, "kid": self.key_id}, claims)
        signature = self._private_key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))
        return f"{text}.{_encode(b''.join(map(_coordinate, decode_dss_signature(signature))))}"

    def verify(self, token: str) -> None:
        """Raise `SignatureError` unless this key signed the token, which has three parts."""
        text, _, signature = token.rpartition(".")
        header, raw = decode_part(text.partition(".")[0]), _decode(signature)
        if header.get("kid") == self._hmac_id:
            # By the id alone: a token cannot choose the algorithm by which a key verifies it.
            if header.get("alg") != HMAC_ALGORITHM or not hmac.compare_digest(self._hmac(text), raw):
                raise SignatureError(SIGNATURE_MESSAGE)
            return
        self._verify_public(text, header, raw)

    def _verify_public(self, text: str, header: JSON, raw: bytes) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        if header.get("kid") not in (None, "", self.key_id):
            raise SignatureError("invalid signature, no keys found")
        try:
            if header.get("alg") != ALGORITHM or len(raw) != 2 * COORDINATE_BYTES:
                raise InvalidSignature
            r, s = (int.from_bytes(part) for part in (raw[:COORDINATE_BYTES], raw[COORDINATE_BYTES:]))
            public_key = self._private_key.public_key()
            public_key.verify(encode_dss_signature(r, s), text.encode(), ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise SignatureError(SIGNATURE_MESSAGE) from None

    def _hmac(self, text: str) -> bytes:
        return hmac.digest(self._hmac_secret, text.encode(), "sha256")

    @cached_property
    def key_id(self) -> str:
        """The key's id in tokens: the digest of the public key, as kube-apiserver computes it."""
        point = self._private_key.public_key().public_numbers()
        return _encode(hashlib.sha256(_PUBLIC_KEY_PREFIX + _coordinate(point.x) + _coordinate(point.y)).digest())

    def public_jwk(self) -> JSON:
        """The public key, for those who verify tokens themselves."""
        point = self._private_key.public_key().public_numbers()
        return {
            "use": "sig",
            "kty": "EC",
            "kid": self.key_id,
            "crv": CURVE,
            "alg": ALGORITHM,
            "x": _encode(_coordinate(point.x)),
            "y": _encode(_coordinate(point.y)),
        }

    @cached_property
    def _private_key(self) -> "ec.EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives.asymmetric import ec

        if self._stored is not None:
            return ec.derive_private_key(int.from_bytes(_decode(self._stored.d)), ec.SECP256R1())
        key = ec.generate_private_key(ec.SECP256R1())
        if self._file is not None:
            numbers = key.private_numbers()
            point = numbers.public_numbers
            parts = (_encode(_coordinate(number)) for number in (point.x, point.y, numbers.private_value))
            write_private(self._file, msgspec.json.encode(PrivateJwk("EC", CURVE, *parts)), durable=True)
        return key


def decode_part(part: str) -> JSON:
    """The JSON object in a part of a token. Raises `ValueError` and `msgspec.DecodeError`."""
    return msgspec.json.decode(_decode(part), type=dict[str, Any])


def _unsigned(header: JSON, claims: msgspec.Struct) -> str:
    """The first two parts of a token."""
    return f"{_encode(msgspec.json.encode(header))}.{_encode(msgspec.json.encode(claims, order='sorted'))}"


def _read_jwk(file: Path) -> PrivateJwk:
    problem = "is not a private P-256 key (JWK); remove it to get a new one: tokens of service accounts end then"
    try:
        jwk = msgspec.json.decode(file.read_bytes(), type=PrivateJwk)
        number = int.from_bytes(_decode(jwk.d))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise InputError(f"{file}: {problem}") from error
    if (jwk.kty, jwk.crv) != ("EC", CURVE) or not 0 < number < _ORDER:
        raise InputError(f"{file}: {problem}")
    return jwk


_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of P-256."""


def _coordinate(number: int) -> bytes:
    return number.to_bytes(COORDINATE_BYTES)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Base64 without padding, as in tokens. Raises `ValueError`."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
