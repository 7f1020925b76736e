"""Certificates of a plane: none is valid for long, and a plane that runs for months keeps working."""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import pytest
from cryptography import x509

from gangline.api.core import ConfigMap
from gangline.api.meta import Key
from gangline.apiserver.store.store import Store
from gangline.base.certificates.issued import CA_LIFETIME
from gangline.base.certificates.keeper import CHECK_INTERVAL
from gangline.base.certificates.renewal import renewed_certificates
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.transport.http import HttpTransport
from gangline.local.plane import ControlPlane, PlaneSettings, control_plane
from gangline.node.network.pod_network import hosts_text
from gangline.testing import FakeClock, local_cluster
from support.waiting import wait_until

DAY = timedelta(days=1)
MOST_LEAF, MOST_CA = timedelta(days=31), timedelta(days=365)


def certificates(file: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(file.read_bytes())


def lifetime(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - certificate.not_valid_before_utc


def is_ca(certificate: x509.Certificate) -> bool:
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def check_lifetimes(folder: Path) -> None:
    """Every certificate in the folder is valid for a month, a CA for a year."""
    found = [each for file in folder.glob("*.crt") for each in certificates(file)]
    assert sorted(is_ca(each) for each in found) == [False, False, True]
    for each in found:
        assert lifetime(each) <= (MOST_CA if is_ca(each) else MOST_LEAF), each.subject


async def served_certificate(url: str) -> x509.Certificate:
    """What a new connection gets. Not verified: OpenSSL does not know the time of the test."""

    def connect() -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        address = urlsplit(url)
        with (
            socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as plain,
            context.wrap_socket(plain) as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""

    return x509.load_der_x509_certificate(await asyncio.to_thread(connect))


class OldPlane(NamedTuple):
    plane: ControlPlane
    clock: FakeClock
    folder: Path

    async def wake_after(self, duration: timedelta) -> None:
        """Suspend the machine, and let it run until certificates were checked."""
        self.clock.jump(duration - CHECK_INTERVAL)
        await self.clock.advance(CHECK_INTERVAL)


@asynccontextmanager
async def plane_of(folder: Path) -> AsyncIterator[OldPlane]:
    clock = FakeClock(datetime.now(UTC).replace(microsecond=0))
    settings = PlaneSettings(certificates=folder, token="t")
    async with Store() as store, control_plane(store, settings, clock, certificate_clock=clock) as plane:
        yield OldPlane(plane, clock, folder)


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[OldPlane]:
    async with plane_of(tmp_path / "certificates") as running:
        yield running


async def test_no_certificate_of_a_plane_is_valid_for_long(old: OldPlane) -> None:
    check_lifetimes(old.folder)
    served = await served_certificate(old.plane.url)
    assert lifetime(served) <= MOST_LEAF


async def test_no_certificate_of_a_test_cluster_is_valid_for_long() -> None:
    async with local_cluster() as cluster:
        assert cluster.url.startswith("https://")
        (entry,) = cluster.access.kubeconfig()["clusters"]
        check_lifetimes(Path(entry["cluster"]["certificate-authority"]).parent)
        assert lifetime(await served_certificate(cluster.url)) <= MOST_LEAF


async def test_pods_with_their_own_network_know_the_server_by_names_of_its_certificate(old: OldPlane) -> None:
    served = await served_certificate(old.plane.url)
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    (known,) = (line.split() for line in hosts_text("default", (), ()).splitlines() if "kubernetes" in line)
    assert set(known) <= {str(name.value) for name in names}


async def test_a_plane_that_runs_for_60_days_serves_a_valid_certificate_every_day(old: OldPlane) -> None:
    first = await served_certificate(old.plane.url)
    (ca,) = certificates(old.folder / "ca.crt")
    serials = set()
    for _ in range(60):
        await old.clock.advance(DAY)
        served = await served_certificate(old.plane.url)
        assert served.not_valid_before_utc <= old.clock.now() < served.not_valid_after_utc - DAY
        # A kubeconfig of the first day still verifies it.
        served.verify_directly_issued_by(ca)
        names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert names == first.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        serials.add(served.serial_number)
    assert len(serials) == 4  # of the days 0, 20, 40 and 60
    (admin,) = certificates(old.folder / "admin.crt")
    assert admin.not_valid_before_utc > old.clock.now() - timedelta(days=30)
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(old.folder / "admin.crt", old.folder / "admin.key")
    check_lifetimes(old.folder)


async def test_a_connection_from_before_a_renewal_goes_on(old: OldPlane) -> None:
    tls = ssl.create_default_context(cafile=old.folder / "ca.crt")
    headers = {"Authorization": "Bearer t"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), headers=headers) as session,
        session.get(f"{old.plane.url}/api/v1/namespaces/default/configmaps?watch=true") as watch,
    ):
        before = await served_certificate(old.plane.url)
        await old.wake_after(25 * DAY)
        assert (await served_certificate(old.plane.url)).serial_number != before.serial_number
        async with HttpTransport(old.plane.inner_connection) as transport:
            await Client(transport).create(ConfigMap, {"metadata": {"name": "late"}}, namespace="default")
        async with asyncio.timeout(20):
            while json.loads(await watch.content.readline())["object"]["metadata"]["name"] != "late":
                pass


async def test_the_next_authority_is_known_everywhere_before_it_signs(old: OldPlane) -> None:
    (first,) = certificates(old.folder / "ca.crt")
    known: dict[int, datetime] = {first.serial_number: old.clock.now()}
    signers = set()
    async with HttpTransport(old.plane.inner_connection) as transport:
        client = Client(transport)

        async def published() -> str:
            return (await client.get(ConfigMap, Key("kube-system", "kube-root-ca.crt"))).data["ca.crt"]

        async def is_published() -> bool:
            return await published() == (old.folder / "ca.crt").read_text()

        await wait_until(is_published)
        for _ in range(CA_LIFETIME // (5 * DAY)):
            await old.wake_after(5 * DAY)
            await wait_until(is_published)
            bundle = certificates(old.folder / "ca.crt")
            for each in bundle:
                known.setdefault(each.serial_number, old.clock.now())
            served = await served_certificate(old.plane.url)
            (issuer,) = (each for each in bundle if each.subject == served.issuer)
            served.verify_directly_issued_by(issuer)
            if issuer.serial_number not in signers and issuer != first:
                assert old.clock.now() - known[issuer.serial_number] >= 30 * DAY
            signers.add(issuer.serial_number)
    assert len(signers) == 2


async def test_a_client_certificate_of_the_plane_is_good_only_until_it_expires(old: OldPlane) -> None:
    async def status() -> int:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
            session.get(f"{old.plane.url}/api/v1/nodes") as response,
        ):
            return response.status

    tls = ssl.create_default_context(cafile=old.folder / "ca.crt")
    tls.load_cert_chain(old.folder / "admin.crt", old.folder / "admin.key")
    # OpenSSL would refuse the server's certificates of the future.
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    assert await status() == 200
    await old.wake_after(31 * DAY)
    assert await status() == 401


async def test_a_restart_years_later_leaves_no_old_certificate(tmp_path: Path) -> None:
    async with plane_of(tmp_path) as first:
        (old_ca,) = certificates(first.folder / "ca.crt")
    clock = FakeClock(first.clock.now() + 3 * CA_LIFETIME)
    async with (
        Store() as store,
        control_plane(store, PlaneSettings(certificates=tmp_path), clock, certificate_clock=clock),
    ):
        (new_ca,) = certificates(tmp_path / "ca.crt")
        assert new_ca != old_ca
        check_lifetimes(tmp_path)


def test_what_openssl_says_of_them(tmp_path: Path) -> None:
    """The chain is valid for other implementations of TLS than the one that issued it, also for strict ones."""
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from gangline.base.certificates.keeper import CertificateKeeper\n"
        "from gangline.base.clock import SystemClock\n"
        "CertificateKeeper(Path(sys.argv[1]), ('127.0.0.1',), SystemClock())"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    for purpose, name in (("sslserver", "server"), ("sslclient", "admin")):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca.crt", f"{name}.crt"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


async def test_the_bundle_in_a_namespace_cannot_be_replaced_for_long(old: OldPlane) -> None:
    key = Key("default", "kube-root-ca.crt")
    async with HttpTransport(old.plane.inner_connection) as transport:
        client = Client(transport)

        async def bundle() -> str:
            try:
                return (await client.get(ConfigMap, key)).data["ca.crt"]
            except NotFound:
                return ""

        async def is_right() -> bool:
            return await bundle() == (old.folder / "ca.crt").read_text()

        await wait_until(is_right)
        forged = renewed_certificates(None, ("127.0.0.1",), old.clock.now()).bundle(old.clock.now())
        await client.patch(ConfigMap, key, {"data": {"ca.crt": forged}})
        await wait_until(is_right)
