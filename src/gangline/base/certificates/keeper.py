"""TLS of a running server: its certificates are renewed, and new connections get the new ones."""

import logging
import ssl
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path

from gangline.base.certificates.folder import CertificateFiles, CertificateFolder, KeyPair
from gangline.base.certificates.issued import LEAF_RENEWAL, IssuedKey, due_renewals
from gangline.base.certificates.renewal import renewed_certificates
from gangline.base.clock import Clock
from gangline.base.files import write_private

log = logging.getLogger(__name__)

CHECK_INTERVAL = timedelta(minutes=10)
"""How often certificates are checked. Not one long sleep: the time in which a machine is suspended does not count."""
VERIFY_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name."""


class _AlertingObject(ssl.SSLObject):
    """A connection whose failed handshake sends the peer OpenSSL's alert. asyncio drops it, and the peer sees no reason."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except ssl.SSLCertVerificationError as error:
            # asyncio sends what is in the buffer when more input is needed. The peer closes then, or the time is up.
            raise ssl.SSLWantReadError from error


class CertificateKeeper:
    """The certificates of one server, in a folder, and the TLS context that serves them."""

    def __init__(self, folder: Path, hosts: tuple[str, ...], clock: Clock, *, cache: Path | None = None) -> None:
        """Issues what is missing. `cache` is a record file that several servers share; see `CertificateFolder.ensure`."""
        self._folder, self._hosts, self._clock = CertificateFolder(folder), hosts, clock
        self._issued = self._folder.ensure(hosts, clock.now(), cache)
        self._contexts: list[ssl.SSLContext] = []
        self._clients: dict[str, IssuedKey] = {}

    @property
    def files(self) -> CertificateFiles:
        return self._folder.files

    @property
    def bundle(self) -> str:
        """The certificates of all CAs that clients trust, PEM."""
        return self._issued.bundle(self._clock.now())

    def signer(self) -> tuple[IssuedKey, datetime]:
        """The CA that signs now, and the time by which certificates are valid."""
        now = self._clock.now()
        return self._issued.signer(now), now

    def client_pair(self, name: str) -> KeyPair:
        """The files of a client certificate with a common name, issued when it is first asked for, and when it is due."""
        ca, now = self.signer()
        issued = self._clients.get(name)
        pair = self._folder.pair(name)
        if issued is None or not issued.is_valid(now, LEAF_RENEWAL):
            # Loaded here: cryptography takes long.
            from gangline.base.certificates.x509_pem import issue

            issued = self._clients[name] = issue(ca, name, now)
            write_private(pair.key, issued.key.encode())
            write_private(pair.certificate, issued.certificate.encode())
        return pair

    def server_context(self, *, client_certificates: bool = False) -> ssl.SSLContext:
        """TLS with the server certificate of each moment; `client_certificates` lets clients authenticate by one of the CA.

        Whether a client's certificate has expired is left to who asks for its user: the handshake could only break the
        connection, without a reason.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sslobject_class = _AlertingObject
        if client_certificates:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.verify_flags |= VERIFY_NO_CHECK_TIME  # type: ignore[operator,unused-ignore]
        self._load(context)
        self._contexts.append(context)
        return context

    async def run(self, publish_ca: Callable[[], Awaitable[None]] | None = None) -> None:
        """Renew what is due, until cancelled. `publish_ca` is called after each renewal."""
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            try:
                if self._renew() and publish_ca is not None:
                    await publish_ca()
            except OSError as error:
                # The old certificates are valid for days, and the next check is soon.
                log.warning("certificates could not be renewed", extra={"error": str(error)})

    def _renew(self) -> bool:
        """Renew what is due; whether anything was. Raises `OSError`."""
        now = self._clock.now()
        due = due_renewals(self._issued, self._hosts, now)
        if not any(due):
            return False
        issued = renewed_certificates(self._issued, self._hosts, now)
        self._folder.publish(issued, now)
        self._issued = issued
        for context in self._contexts:
            self._load(context)
        names = [name for name, is_due in due._asdict().items() if is_due]
        log.info("certificates renewed", extra={"certificates": ", ".join(names)})
        return True

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(*self.files.server)
        if context.verify_mode is ssl.CERT_OPTIONAL:
            context.load_verify_locations(cadata=self.bundle)
