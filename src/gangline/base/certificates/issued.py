"""Issued certificates as values, and when each is renewed."""

from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from this long ago, because clocks differ."""
LEAF_LIFETIME, LEAF_RENEWAL = timedelta(days=30), timedelta(days=10)
"""How long a server or client certificate is valid, and how long before its end it is renewed."""
CA_LIFETIME, CA_RENEWAL, CA_HANDOVER = timedelta(days=364), timedelta(days=90), timedelta(days=45)
"""How long a CA is valid, how long before its end the next CA is published beside it, and how long before its end the
next one signs instead. So clients know a CA for 45 days before they meet a certificate of it, and no certificate outlives
its CA."""


class IssuedKey(msgspec.Struct, frozen=True):
    """A certificate with its private key, both PEM. The repr shows neither."""

    certificate: str
    key: str
    valid_from: datetime
    valid_until: datetime

    def __repr__(self) -> str:
        return f"IssuedKey({self.valid_from} to {self.valid_until})"

    def is_valid(self, now: datetime, remaining: timedelta = timedelta()) -> bool:
        """Whether it is valid, and will be for as long as `remaining`."""
        return self.valid_from <= now and now + remaining < self.valid_until


class CertificateSet(msgspec.Struct, frozen=True):
    """All certificates of a server."""

    authorities: tuple[IssuedKey, ...]
    """CAs, oldest first. Clients trust all of them."""
    server: IssuedKey
    admin: IssuedKey
    hosts: tuple[str, ...]
    """The hosts that the server certificate was requested for; it has the names of every API server too."""

    def signer(self, now: datetime) -> IssuedKey:
        """The CA that signs now."""
        return signing_authority(self.authorities, now)

    def bundle(self, now: datetime) -> str:
        """What clients verify the server with: the certificates of all CAs, the one that signs now first."""
        signer = self.signer(now)
        others = (each for each in self.authorities if each is not signer)
        return "".join(each.certificate for each in (signer, *others))


class Renewals(NamedTuple):
    """What must be issued anew."""

    authority: bool
    server: bool
    admin: bool


def due_renewals(issued: CertificateSet, hosts: tuple[str, ...], now: datetime) -> Renewals:
    """What must be issued anew for a server with these hosts."""
    return Renewals(
        authority=not any(authority.is_valid(now, CA_RENEWAL) for authority in issued.authorities),
        server=not (issued.server.is_valid(now, LEAF_RENEWAL) and set(hosts) <= set(issued.hosts)),
        admin=not issued.admin.is_valid(now, LEAF_RENEWAL),
    )


def signing_authority(authorities: tuple[IssuedKey, ...], now: datetime) -> IssuedKey:
    """The oldest CA that is valid for long enough."""
    return next((each for each in authorities if each.is_valid(now, CA_HANDOVER)), authorities[-1])
