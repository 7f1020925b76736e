import pytest

from gangline.kube.config.proxy import proxy_from_environment, redacted_url

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        ("https://api", {}, None),
        ("https://api", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api", {"https_proxy": PROXY, "HTTPS_PROXY": "http://other"}, PROXY),
        ("https://api", {"HTTP_PROXY": PROXY}, None),
        ("http://api", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://api", {"HTTPS_PROXY": "proxy:3128"}, PROXY),
        ("https://api", {"HTTPS_PROXY": ""}, None),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://127.0.0.2:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None),
    ],
)
def test_environment_names_the_proxy(server: str, environ: dict[str, str], expected: str | None) -> None:
    assert proxy_from_environment(server, environ) == expected


@pytest.mark.parametrize(
    ("server", "rules", "direct"),
    [
        ("https://api.corp", "*", True),
        ("https://api.corp", "other, api.corp", True),
        ("https://api.corp", "corp", True),
        ("https://api.corp", ".corp", True),
        ("https://api.corp", "*.corp", True),
        ("https://API.Corp", "api.CORP", True),
        ("https://notcorp", "corp", False),
        ("https://api.corp:6443", "api.corp:6443", True),
        ("https://api.corp", "api.corp:443", True),
        ("https://api.corp:6443", "api.corp:443", False),
        ("https://10.96.0.1", "10.96.0.0/12", True),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://10.96.0.1", "10.96.0.1:443", True),
        ("https://10.96.0.1", "96.0.1", False),
        ("https://10.128.0.1", "10.96.0.0/12", False),
        ("https://[fd00::1]", "fd00::/8", True),
        ("https://[fd00::1]", "fd00::1", True),
        ("https://[fd00::1]:8443", "[fd00::1]:8443", True),
        ("https://api.corp", "10.0.0.0/8", False),
        ("https://10.0.0.1", "not/a/network", False),
        ("https://api.corp", "", False),
    ],
)
def test_no_proxy_lists_who_is_reached_directly(server: str, rules: str, direct: bool) -> None:
    found = proxy_from_environment(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": rules})
    assert found == (None if direct else PROXY)


def test_password_of_a_proxy_is_not_shown() -> None:
    assert redacted_url("http://me:p@ss@proxy:1") == "http://***@proxy:1"
    assert redacted_url(PROXY) == PROXY
