"""The HTTP proxy of a connection: the kubeconfig's `proxy-url`, else that of the environment.

The environment is read as by kubectl and curl: `HTTPS_PROXY` (or `HTTP_PROXY` for a server without TLS), lower case first;
`NO_PROXY` is a list of names (with their subdomains), addresses, networks (`10.0.0.0/8`), each with an optional `:port`,
or `*`. Loopback addresses are never reached through a proxy. Python's own function does not know networks, which pods
rely on, and imports an HTTP client.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from gangline.kube.errors import ConfigError

_DEFAULT_PORTS = {"http": 80, "https": 443}


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The proxy for a server, or None. Raises `ConfigError` for a proxy that cannot be used."""
    url = urlsplit(server)
    for name in (f"{url.scheme}_proxy", f"{url.scheme}_proxy".upper()):
        if environ.get(name):
            if _is_bypassed(url, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
                return None
            value = environ[name]
            return validated_proxy(value if "://" in value else f"http://{value}", name)
    return None


def validated_proxy(url: str, where: str) -> str:
    """The URL, if it can be used as a proxy. Raises `ConfigError` without the URL, which may contain a password."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError(f"{where}: is not a URL; write http://HOST:PORT") from None
    if parts.scheme.startswith("socks"):
        raise ConfigError(f"{where}: SOCKS proxies are not supported; use an http:// or https:// proxy")
    if parts.scheme not in _DEFAULT_PORTS or not usable:
        raise ConfigError(f"{where}: is not an http or https URL; write http://HOST:PORT")
    return url


def redacted_url(url: str) -> str:
    """The URL of a proxy without its user and password."""
    scheme, _, rest = url.partition("://")
    userinfo, at, host = rest.rpartition("@")
    return f"{scheme}://***@{host}" if at and userinfo else url


def _is_bypassed(url: SplitResult, no_proxy: str) -> bool:
    host = (url.hostname or "").rstrip(".")
    port = url.port or _DEFAULT_PORTS[url.scheme]
    address = _parsed_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_covers(rule.strip().lower(), host, address, port) for rule in no_proxy.split(","))


def _covers(rule: str, host: str, address: "_IPAddress | None", port: int) -> bool:
    if rule in ("", "*"):
        return rule == "*"
    if "/" in rule:
        return address is not None and _in_network(address, rule)
    name, colon, suffix = rule.rpartition(":")
    if colon and suffix.isdigit() and (":" not in name or name.startswith("[")):
        if int(suffix) != port:
            return False
        rule = name
    rule = rule.strip("[]").removeprefix("*").lstrip(".")
    if address is not None:
        return _parsed_address(rule) == address
    return host == rule or host.endswith(f".{rule}")


_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def _parsed_address(text: str) -> _IPAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _in_network(address: _IPAddress, rule: str) -> bool:
    try:
        return address in ipaddress.ip_network(rule, strict=False)
    except ValueError:
        return False
