"""Signatures of webhooks, as Standard Webhooks (standardwebhooks.com) defines them, for which every language has a library.

The receiver computes HMAC-SHA256 over `ID.TIMESTAMP.BODY`. The timestamp is that of the attempt, so that an old request
cannot be sent again; the ID is that of the notification, so that a repeated one is recognised.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from gangline.base.errors import InputError

KEY_PREFIX = "whsec_"
MIN_KEY_BYTES = 24


def signing_keys(text: str, file: str) -> tuple[bytes, ...]:
    """The keys in a file, one in each line: `whsec_` and base64. While keys are exchanged there are two.

    Raises `InputError`, which does not contain the key.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{file}: has no key; make one with: echo whsec_$(head -c 32 /dev/urandom | base64)")
    return tuple(_key(line, f"{file}:{number}") for number, line in enumerate(lines, 1))


def _key(line: str, where: str) -> bytes:
    remedy = "make one with: echo whsec_$(head -c 32 /dev/urandom | base64)"
    if not line.startswith(KEY_PREFIX):
        raise InputError(f"{where}: is not a key, which begins with {KEY_PREFIX}; {remedy}")
    try:
        key = base64.b64decode(line.removeprefix(KEY_PREFIX), validate=True)
    except binascii.Error:
        raise InputError(f"{where}: is not base64 after {KEY_PREFIX}; {remedy}") from None
    if len(key) < MIN_KEY_BYTES:
        raise InputError(f"{where}: has {len(key)} bytes and needs {MIN_KEY_BYTES}; {remedy}")
    return key


def signature_headers(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a request: what it is about, when it was sent and, with keys, a signature by each of them."""
    headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
    if keys:
        headers["webhook-signature"] = " ".join(_signature(key, message_id, timestamp, body) for key in keys)
    return headers


def _signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    digest = hmac.digest(key, b".".join((message_id.encode(), str(timestamp).encode(), body)), hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"
