"""The certificate that a client presents in the TLS handshake, and the user it stands for.

TLS has verified that a CA of the server signed it for clients. When it expires is checked here, with each request, because
a connection may outlive the certificate.
"""

import asyncio
import hashlib
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
UID_ATTRIBUTE = "1.3.6.1.4.1.57683.2"
"""The attribute of a subject with the uid of the user, as in kube-apiserver."""

Subject = Iterable[Iterable[tuple[str, str]]]


class PeerCertificate(msgspec.Struct, frozen=True):
    """What a certificate says of its user, and when it is valid."""

    name: str
    groups: tuple[str, ...]
    uids: tuple[str, ...]
    valid_from: datetime
    valid_until: datetime
    sha256: str
    """The digest of the certificate in hexadecimal digits."""

    def is_valid(self, now: datetime) -> bool:
        """Whether it may be used now. A subject with an empty uid, or with two, is refused."""
        return self.valid_from <= now <= self.valid_until and (
            not self.uids or (len(self.uids) == 1 and all(self.uids))
        )

    @property
    def user(self) -> UserInfo | None:
        """The user: the common name, in the organizations as groups. None without a common name."""
        if not self.name:
            return None
        extra = {CREDENTIAL_ID: (f"X509SHA256={self.sha256}",)}
        return UserInfo(self.name, (*self.groups, AUTHENTICATED_GROUP), "".join(self.uids), extra)


def peer_certificate(transport: asyncio.BaseTransport | None) -> PeerCertificate | None:
    """The certificate of the client at the other end; None if it presented none."""
    connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object") if transport is not None else None
    if connection is None:
        return None
    fields, encoded = connection.getpeercert(), connection.getpeercert(binary_form=True)
    return parsed_certificate(fields, encoded) if fields and encoded else None


def parsed_certificate(fields: Mapping[str, object], encoded: bytes) -> PeerCertificate:
    """The certificate from the dict of Python's `getpeercert`, and its bytes."""
    subject: Subject = fields.get("subject", ())  # type: ignore[assignment]
    names: dict[str, list[str]] = {}
    for part in subject:
        for key, value in part:
            names.setdefault(key, []).append(value)
    return PeerCertificate(
        # Of several common names Go takes the last.
        (names.get("commonName") or [""])[-1],
        tuple(names.get("organizationName", ())),
        tuple(names.get(UID_ATTRIBUTE, ())),
        _time(str(fields["notBefore"])),
        _time(str(fields["notAfter"])),
        hashlib.sha256(encoded).hexdigest(),
    )


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
