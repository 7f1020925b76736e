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
    if b"clusters" not in head:
        return False
    # Blanks only: a pattern that matches newlines, too, would read a file of empty lines again and again.
    is_config = re.search(
        rb"""^[ \t]*["']?kind["']?[ \t]*:[ \t]*["']?Config["']?[ \t]*,?[ \t\r]*$""", head, re.MULTILINE
    )
    if is_config is None and head.lstrip()[:1] == b"{":
        # JSON in one line.
        is_config = re.search(rb'"kind"[ \t]*:[ \t]*"Config"', head)
    secrets = rb"""["']?(client-key-data|client-key|token|tokenFile|password|exec|auth-provider)["']?[ \t]*:"""
    return is_config is not None and re.search(secrets, head) is not None


def _is_registry_login(path: str, head: bytes) -> bool:
    return (
        head.lstrip()[:1] == b"{"
        and re.search(rb'"auths"\s*:\s*\{', head) is not None
        and re.search(rb'"(auth|password|identitytoken)"\s*:\s*"[^"$]', head) is not None
    )


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
    (_is_registry_login, "passwords of image registries"),
    (_is_package_token, "a token of a package registry"),
)


def credential_form(path: str, head: bytes) -> str:
    """What a file is, if its content says that it is a credential; else empty. `head` is the first part of it."""
    return next((what for holds, what in _FORMS if holds(path, head)), "")


# Lines


class TokenForm(NamedTuple):
    """A token: how it begins, and a pattern of the rest. What begins in the middle of a word is none."""

    what: str
    prefix: bytes
    rest: str

    def spans(self, text: bytes) -> Iterator[int]:
        """Where tokens of this form are in a text. Texts without the prefix, which are nearly all, cost next to nothing."""
        if self.prefix not in text:
            return
        for match in re.finditer(re.escape(self.prefix) + self.rest.encode(), text):
            start = match.start()
            if not text[max(start - 1, 0) : start].isalnum():
                yield start


_TOKENS = (
    *(TokenForm("a key of AWS", prefix, r"[A-Z2-7]{16}(?![A-Za-z0-9])") for prefix in (b"AKIA", b"ASIA")),
    *(
        TokenForm("a secret key of AWS", name, r"""["']?[ \t]*[=:][ \t]*["']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])""")
        for name in (b"aws_secret_access_key", b"AWS_SECRET_ACCESS_KEY", b"SecretAccessKey")
    ),
    *(
        TokenForm("a Secret of Kubernetes", kind, r"(?![A-Za-z])")
        for kind in (b"kind: Secret", b'"kind": "Secret"', b'"kind":"Secret"')
    ),
    *(TokenForm("a token of GitHub", b"gh%c_" % letter, r"[A-Za-z0-9]{36}(?![A-Za-z0-9])") for letter in b"pousr"),
    TokenForm("a token of GitHub", b"github_pat_", r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}(?![A-Za-z0-9])"),
    TokenForm("a token of GitLab", b"glpat-", r"[A-Za-z0-9_-]{20}(?![A-Za-z0-9_-])"),
    TokenForm("a token of Hugging Face", b"hf_", r"[A-Za-z]{34}(?![A-Za-z0-9_])"),
    TokenForm("a token of Hugging Face", b"api_org_", r"[A-Za-z]{34}(?![A-Za-z0-9_])"),
    TokenForm("a token of Slack", b"xox", r"[abeoprs]-[0-9]{8,}-[A-Za-z0-9-]{10,}"),
    TokenForm("a web hook of Slack", b"hooks.slack.com/services/", r"T[A-Z0-9]{8,}/B[A-Z0-9]{8,}/[A-Za-z0-9]{20,}"),
    TokenForm("a key of OpenAI", b"sk-", r"[A-Za-z0-9_-]{20,100}T3BlbkFJ[A-Za-z0-9_-]{20,}"),
    TokenForm("a key of Anthropic", b"sk-ant-", r"[a-z0-9]+-[A-Za-z0-9_-]{80,}"),
    TokenForm("a key of Google", b"AIza", r"[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    TokenForm("a key of Stripe", b"sk_live_", r"[A-Za-z0-9]{24,}"),
    TokenForm("a key of Stripe", b"rk_live_", r"[A-Za-z0-9]{24,}"),
    TokenForm("a token of npm", b"npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    TokenForm("a token of PyPI", b"pypi-AgEIcHlwaS5vcmc", r"[A-Za-z0-9_-]{50,}"),
    TokenForm("a key of a storage account", b"AccountKey=", r"[A-Za-z0-9+/]{86}=="),
    TokenForm("a private key", b"-----BEGIN ", r"(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
)


MASK = b"(left out)"
"""What a token is replaced by."""


def masked_tokens(text: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A text with `MASK` in place of every token of a known form, and what the tokens look like."""
    found: list[str] = []
    for token in _TOKENS:
        if token.prefix not in text or token.rest.startswith("(?!"):
            # The kind of a Secret names one, and is none.
            continue
        if any(True for _ in token.spans(text)):
            found.append(token.what)
            pattern = rb"(?<![A-Za-z0-9])" + re.escape(token.prefix) + token.rest.encode()
            text = re.sub(pattern, MASK, text)
    return text, tuple(dict.fromkeys(found))


def secret_lines(path: str, head: bytes) -> Iterator[SecretFinding]:
    """The credentials in a text, with their lines; at most one for each line. Binary files have none."""
    if b"\0" in head[:8192]:
        return
    found = sorted((start, token.what) for token in _TOKENS for start in token.spans(head))
    line, counted, last_line = 1, 0, 0
    for start, what in found:
        line, counted = line + head.count(b"\n", counted, start), start
        if line != last_line:
            yield SecretFinding(path, what, line)
        last_line = line
