"""The address that the API server listens on, and the names in its certificate."""

import ipaddress
import socket

import msgspec
import psutil

from gangline.base.errors import InputError
from gangline.node.ports import LOOPBACK


class ListenAddress(msgspec.Struct, frozen=True):
    """An address to listen on."""

    host: str = LOOPBACK

    @property
    def reachable_host(self) -> str:
        """The address by which this machine itself reaches the server."""
        address = ipaddress.ip_address(self.host)
        if not address.is_unspecified:
            return self.host
        return "::1" if address.version == 6 else LOOPBACK

    @property
    def is_open(self) -> bool:
        """Whether other machines may reach the server."""
        return not ipaddress.ip_address(self.host).is_loopback

    @property
    def advertised_host(self) -> str:
        """The address by which pods on other machines reach the server; empty if there is no such address, or many."""
        address = ipaddress.ip_address(self.host)
        return "" if address.is_loopback or address.is_unspecified else self.host

    def certificate_hosts(self) -> tuple[str, ...]:
        """The names for the server's certificate: its address, or every name of the machine if it listens on all."""
        if not ipaddress.ip_address(self.host).is_unspecified:
            return (self.host,)
        addresses = {
            entry.address.partition("%")[0]
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family in (socket.AF_INET, socket.AF_INET6)
        }
        return (LOOPBACK, *sorted(addresses - {LOOPBACK}), socket.gethostname().lower())


def parse_listen_address(text: str) -> ListenAddress:
    """The address of `--bind ADDRESS`. Raises `InputError`."""
    try:
        return ListenAddress(str(ipaddress.ip_address(text)))
    except ValueError:
        raise InputError(f"--bind {text}: is not an IP address; write 192.0.2.10, or 0.0.0.0 for all") from None


def host_port(host: str, port: int) -> str:
    """Host and port for a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def machine_names() -> tuple[str, ...]:
    """The names by which this machine knows itself, without asking the network."""
    name = socket.gethostname().lower()
    return (name, name.partition(".")[0], f"{name.partition('.')[0]}.local")
