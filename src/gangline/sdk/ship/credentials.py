"""Recognizes credentials among the files of a folder, so that they are not sent to a cluster by mistake.

Two degrees. A file that *is* a credential, by its name or its form, is refused: `.env`, a key, a kubeconfig. A line that
*contains* one is reported: the file may be a test, or a page about tokens. What is recognized has few false alarms; what
is not recognized is shipped. No message contains the secret. Pure: names and contents in, reasons out.
"""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

SCANNED_BYTES = 2**20
"""How much of a file is looked at: what is longer is data."""

_PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")


class SecretFinding(NamedTuple):
    """A credential in a file, or a file that is one."""

    path: str
    # What it looks like, as in "a private key".
    what: str
    # 0: the whole file.
    line: int = 0


# Names. In lower case; a pattern with a slash is compared with the end of the path.
_NAMES: dict[str, str] = {
    ".env": "environment variables with secrets",
    ".env.*": "environment variables with secrets",
    "*.env": "environment variables with secrets",
    ".netrc": "passwords for servers",
    "_netrc": "passwords for servers",
    ".git-credentials": "passwords of git",
    ".pypirc": "passwords of package registries",
    ".pgpass": "passwords of PostgreSQL",
    ".my.cnf": "passwords of MySQL",
    ".htpasswd": "passwords",
    ".dockercfg": "passwords of image registries",
    ".dockerconfigjson": "passwords of image registries",
    ".docker/config.json": "passwords of image registries",
    "containers/auth.json": "passwords of image registries",
    ".s3cfg": "keys of object storage",
    ".boto": "keys of a cloud",
    ".aws/credentials": "keys of AWS",
    ".aws/*/cache/*": "tokens of AWS",
    ".azure/accesstokens.json": "tokens of Azure",
    ".azure/msal_token_cache.*": "tokens of Azure",
    ".azure/service_principal_entries.*": "credentials of Azure",
    ".config/gcloud/*": "credentials of Google Cloud",
    "application_default_credentials.json": "credentials of Google Cloud",
    ".config/gh/hosts.yml": "a token of GitHub",
    ".databrickscfg": "a token of Databricks",
    ".kube/*": "access to a cluster",
    "kubeconfig": "access to a cluster",
    "*.kubeconfig": "access to a cluster",
    "kubeconfig.*": "access to a cluster",
    ".kaggle/*": "a token of Kaggle",
    "kaggle.json": "a token of Kaggle",
    ".huggingface/*": "a token of Hugging Face",
    "huggingface/token": "a token of Hugging Face",
    "huggingface/stored_tokens": "tokens of Hugging Face",
    ".streamlit/secrets.toml": "secrets of Streamlit",
    ".ssh/*": "keys of SSH",
    ".gnupg/*": "keys of GnuPG",
    "id_rsa": "a key of SSH",
    "id_dsa": "a key of SSH",
    "id_ecdsa*": "a key of SSH",
    "id_ed25519*": "a key of SSH",
    "*.ppk": "a key of PuTTY",
    "*.p12": "a key with its certificate",
    "*.pfx": "a key with its certificate",
    "*.jks": "a key store",
    "*.keystore": "a key store",
    "*.kdbx": "a password store",
}
_HARMLESS_NAMES = (
    "*.pub",
    ".env.example",
    ".env.sample",
    ".env.template",
    ".env.dist",
    ".env.defaults",
    "example.env",
    "sample.env",
    "template.env",
)


def credential_name(path: str) -> str:
    """What a file is, if its name says that it is a credential; else empty. Upper and lower case are the same."""
    parts = path.lower().split("/")
    if any(fnmatchcase(parts[-1], pattern) for pattern in _HARMLESS_NAMES):
        return ""
    return next((what for pattern, what in _NAMES.items() if _matches(parts, pattern.split("/"))), "")


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Whether the end of a path has this pattern. `FOLDER/*` is everything below the folder, however deep."""
    *folders, last = pattern
    if folders and last == "*":
        starts = range(len(parts) - len(folders))
        return any(all(map(fnmatchcase, parts[start : start + len(folders)], folders)) for start in starts)
    return len(parts) >= len(pattern) and all(map(fnmatchcase, parts[-len(pattern) :], pattern))


# Forms


def _is_key_file(path: str, head: bytes) -> bool:
    name = path.lower().rpartition("/")[2]
    is_named_so = name.endswith((".pem", ".key")) or name.startswith("id_")
    found = _PRIVATE_KEY.search(head)
    return found is not None and (is_named_so or not head[: found.start()].strip())


def _is_service_account(path: str, head: bytes) -> bool:
    return (
        head.lstrip()[:1] == b"{"
        and re.search(rb'"type"\s*:\s*"(service_account|authorized_user|external_account)"', head) is not None
        and re.search(rb'"(private_key|refresh_token|credential_source)"\s*:', head) is not None
    )


def _is_kubeconfig(path: str, head: bytes) -> bool:
    is_config = re.search(rb"""^\s*["']?kind["']?\s*:\s*["']?Config["']?\s*,?\s*$""", head, re.MULTILINE) is not None
    secrets = rb"""["']?(client-key-data|client-key|token|tokenFile|password|exec|auth-provider)["']?\s*:"""
    return is_config and b"clusters" in head and re.search(secrets, head) is not None


def _is_package_token(path: str, head: bytes) -> bool:
    name = path.lower().rpartition("/")[2]
    if name not in (".npmrc", ".yarnrc", ".yarnrc.yml", "pip.conf", "pip.ini", ".condarc", "uv.toml"):
        return False
    # ${NPM_TOKEN} is a reference.
    token = rb"(_authToken|_auth|_password|npmAuthToken)\s*[=:]\s*[\"']?[^\s\"'$]"
    return re.search(token, head) is not None or re.search(rb"://[^/\s:@$]+:[^/\s@$]+@", head) is not None


_FORMS: tuple[tuple[Callable[[str, bytes], bool], str], ...] = (
    (_is_key_file, "a private key"),
    (_is_service_account, "the key of a service account"),
    (_is_kubeconfig, "access to a cluster"),
    (_is_package_token, "a token of a package registry"),
)


def credential_form(path: str, head: bytes) -> str:
    """What a file is, if its content says that it is a credential; else empty. `head` is the first part of it."""
    return next((what for holds, what in _FORMS if holds(path, head)), "")


# Lines

_TOKENS: tuple[tuple[str, bytes], ...] = (
    ("a private key", _PRIVATE_KEY.pattern),
    ("a key of AWS", rb"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("a token of GitHub", rb"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    ("a token of GitHub", rb"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}(?![A-Za-z0-9])"),
    ("a token of GitLab", rb"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20}(?![A-Za-z0-9_-])"),
    ("a token of Hugging Face", rb"(?<![A-Za-z0-9])(?:hf|api_org)_[A-Za-z]{34}(?![A-Za-z0-9])"),
    ("a token of Slack", rb"(?<![A-Za-z0-9])xox[abeoprs]-[0-9]{8,}-[A-Za-z0-9-]{10,}"),
    ("a web hook of Slack", rb"hooks\.slack\.com/services/T[A-Z0-9]{8,}/B[A-Z0-9]{8,}/[A-Za-z0-9]{20,}"),
    ("a key of OpenAI", rb"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}T3BlbkFJ[A-Za-z0-9_-]{20,}"),
    ("a key of Anthropic", rb"(?<![A-Za-z0-9])sk-ant-[a-z0-9]+-[A-Za-z0-9_-]{80,}"),
    ("a key of Google", rb"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("a key of Stripe", rb"(?<![A-Za-z0-9])[sr]k_live_[A-Za-z0-9]{24,}"),
    ("a token of npm", rb"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    ("a token of PyPI", rb"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}"),
    ("a key of a storage account", rb"AccountKey=[A-Za-z0-9+/]{86}=="),
)
_ANY_TOKEN = re.compile(b"|".join(b"(?P<t%d>%s)" % (number, token) for number, (_, token) in enumerate(_TOKENS)))


def secret_lines(path: str, head: bytes) -> Iterator[SecretFinding]:
    """The credentials in a text, with their lines; at most one for each line. Binary files have none."""
    if b"\0" in head[:8192]:
        return
    last_line = 0
    for match in _ANY_TOKEN.finditer(head):
        line = head.count(b"\n", 0, match.start()) + 1
        if line != last_line:
            assert match.lastgroup is not None
            yield SecretFinding(path, _TOKENS[int(match.lastgroup[1:])][0], line)
        last_line = line
