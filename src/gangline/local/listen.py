"""Where the API server listens, and by which names it is known there."""

import ipaddress
import socket

import msgspec
import psutil

from gangline.base.errors import InputError

LOOPBACK = "127.0.0.1"


class ListenAddress(msgspec.Struct, frozen=True):
    """An address to listen on."""

    host: str = LOOPBACK

    @property
    def reachable_host(self) -> str:
        """The address by which this machine itself gets there."""
        address = ipaddress.ip_address(self.host)
        if not address.is_unspecified:
            return self.host
        return "::1" if address.version == 6 else LOOPBACK

    @property
    def is_open(self) -> bool:
        """Whether other machines may get there."""
        return not ipaddress.ip_address(self.host).is_loopback

    def certificate_hosts(self) -> tuple[str, ...]:
        """All that the server's certificate must name: itself, and everything it is called if it listens everywhere."""
        if not ipaddress.ip_address(self.host).is_unspecified:
            return (self.host,)
        found = (each for each in psutil.net_if_addrs().values())
        addresses = {
            entry.address.partition("%")[0]
            for each in found
            for entry in each
            if entry.family in (socket.AF_INET, socket.AF_INET6)
        }
        return (LOOPBACK, *sorted(addresses - {LOOPBACK}), socket.gethostname().lower())


def parse_listen_address(text: str) -> ListenAddress:
    """`--bind ADDRESS`. Raises `InputError`."""
    try:
        return ListenAddress(str(ipaddress.ip_address(text)))
    except ValueError:
        raise InputError(f"--bind {text}: is not an IP address; write 192.0.2.10, or 0.0.0.0 for all") from None


def host_port(host: str, port: int) -> str:
    """Host and port as they stand in an address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
