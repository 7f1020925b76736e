"""What is recognized as a credential, and what is not. All secrets are made up here, and none is ever printed."""

import pytest

from gangline.sdk.ship.credentials import credential_form, credential_name, masked_tokens, secret_lines

KEY_BLOCK = b"-----BEGIN %sPRIVATE KEY-----\nMIIEow\n-----END %sPRIVATE KEY-----\n"
KUBECONFIG = b"apiVersion: v1\nkind: Config\nclusters: []\nusers:\n- name: ada\n  user:\n    token: abc\n"
SERVICE_ACCOUNT = b'{\n  "type": "service_account",\n  "private_key": "..."\n}\n'


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".ENV",
        ".env.production",
        "deploy/prod.env",
        ".netrc",
        "_netrc",
        ".git-credentials",
        ".pypirc",
        ".aws/credentials",
        "home/.AWS/Credentials",
        ".aws/sso/cache/abc.json",
        ".ssh/id_rsa",
        ".ssh/config",
        ".ssh/deep/er/key",
        "backup/.ssh/known_hosts",
        "id_rsa",
        "keys/id_ed25519",
        "ID_RSA",
        ".docker/config.json",
        ".kube/config",
        "kubeconfig",
        "prod.kubeconfig",
        "kubeconfig.yaml",
        ".kaggle/kaggle.json",
        "kaggle.json",
        ".huggingface/token",
        ".cache/huggingface/token",
        ".config/gcloud/legacy_credentials/ada/adc.json",
        "application_default_credentials.json",
        ".gnupg/private-keys-v1.d/x.key",
        "server.p12",
        "a\nb/.env",
    ],
)
def test_files_that_are_credentials_by_name(path: str) -> None:
    assert credential_name(path)


@pytest.mark.parametrize(
    "path",
    [
        "train.py",
        ".env.example",
        "config/.env.template",
        "environment.yml",
        "env.py",
        ".env/lib/site.py",
        ".ssh/id_rsa.pub",
        "id_ed25519.pub",
        "id_mapping.json",
        "docker/config.json",
        "credentials",
        "aws/credentials",
        "gcloud/submit.sh",
        ".azure/pipelines.yml",
        "huggingface/token_classification.py",
        "tokenizer.json",
        "token",
        "data/keys.npy",
        "monkey.key.py",
        "kube/config",
        "ssh/launcher.py",
        "my.environment",
    ],
)
def test_names_that_only_look_similar(path: str) -> None:
    assert credential_name(path) == ""


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("server.pem", b"some text\n" + KEY_BLOCK % (b"RSA ", b"RSA ")),
        ("no-suffix", b"\n\n" + KEY_BLOCK % (b"", b"")),
        ("id_deploy", b"# mine\n" + KEY_BLOCK % (b"OPENSSH ", b"OPENSSH ")),
        ("x.key", KEY_BLOCK % (b"ENCRYPTED ", b"ENCRYPTED ")),
        ("secring.asc", b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n"),
        ("sa.json", SERVICE_ACCOUNT),
        ("anything", SERVICE_ACCOUNT.replace(b"\n", b"")),
        ("cluster.yaml", KUBECONFIG),
        ("c.json", b'{\n"kind": "Config",\n"clusters": [],\n"users": [{"user": {"client-key-data": "x"}}]}'),
        ("one-line.json", b'{"kind":"Config","clusters":[],"users":[{"user":{"token":"x"}}]}'),
        ("login.json", b'{"auths": {"registry.example": {"auth": "YWRhOnNlY3JldA=="}}}'),
        (".npmrc", b"//registry.example/:_authToken=abcdef\n"),
        ("pip.conf", b"[global]\nindex-url = https://ada:secret@registry.example/simple\n"),
    ],
)
def test_files_that_are_credentials_by_content(path: str, head: bytes) -> None:
    assert credential_form(path, head)


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("ca.pem", b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
        ("key.pub.pem", b"-----BEGIN PUBLIC KEY-----\n"),
        ("docs.md", b"A key begins with\n" + KEY_BLOCK % (b"", b"")),
        ("types.json", b'{"type": "service_account"}'),
        ("auths.json", b'{"auths": {}, "auth": ""}'),
        ("model.json", b'{"kind": "Config", "clusters": 8}'),
        ("kustomize.yaml", b"kind: Config\n"),
        ("no-users.yaml", b"apiVersion: v1\nkind: Config\nclusters: []\nusers: []\n"),
        (".npmrc", b"registry=https://registry.example/\n//registry.example/:_authToken=${NPM_TOKEN}\n"),
        ("pip.conf", b"[global]\nindex-url = https://registry.example/simple\n"),
        ("model_config.yaml", b"token: [CLS]\nclusters: 8\nkind: Configured\n"),
    ],
)
def test_content_that_only_looks_similar(path: str, head: bytes) -> None:
    assert credential_form(path, head) == ""


def made_up(prefix: str, alphabet: str, length: int) -> bytes:
    """A token that nobody ever had; in parts, so that no scanner takes this file for a leak."""
    return (prefix + (alphabet * length)[:length]).encode()


TOKENS = {
    "AWS": made_up("AK" + "IA", "ABCDEFGH234567", 16),
    "GitHub": made_up("gh" + "p_", "aB3", 36),
    "GitLab": made_up("glp" + "at-", "aB3", 20),
    "Hugging Face": made_up("h" + "f_", "aBc", 34),
    "Slack": made_up("xo" + "xb-123456789012-", "aB3", 24),
    "Google": made_up("AI" + "za", "aB3", 35),
    "npm": made_up("np" + "m_", "aB3", 36),
    "OpenAI": made_up("s" + "k-", "aB3", 24) + b"T3Blbk" + made_up("FJ", "aB3", 24),
    "PyPI": made_up("py" + "pi-AgEIcHlwaS5vcmc", "aB3", 60),
}


@pytest.mark.parametrize("issuer", TOKENS)
def test_tokens_are_reported_with_their_line_and_never_shown(issuer: str) -> None:
    token = TOKENS[issuer]
    text = b"import os\n\nTOKEN = '" + token + b"'\n" + b"again = '" + token + b"' '" + token + b"'\n"
    found = list(secret_lines("a/train.py", text))
    assert [(finding.path, finding.line) for finding in found] == [("a/train.py", 3), ("a/train.py", 4)]
    assert all(issuer in finding.what for finding in found)
    assert token.decode() not in repr(found)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"[prod]\naws_secret_access_key = " + b"a1B/" * 10 + b"\n", "a secret key of AWS"),
        (b"#\nexport AWS_SECRET_ACCESS_KEY='" + b"a1B/" * 10 + b"'\n", "a secret key of AWS"),
        (b"apiVersion: v1\nkind: Secret\ndata: {}\n", "a Secret of Kubernetes"),
        (b'{\n"kind": "Secret"}', "a Secret of Kubernetes"),
    ],
)
def test_secrets_by_the_name_before_them(text: bytes, what: str) -> None:
    assert [(finding.what, finding.line) for finding in secret_lines("x", text)] == [(what, 2)]


@pytest.mark.parametrize(
    "text",
    [
        b"aws_secret_access_key = os.environ['AWS_SECRET_ACCESS_KEY']\nkind: SecretStore\n",
        b"sha = '0123456789abcdef0123456789abcdef01234567'\n",
        b"hf_hub_download(repo_id=model)\nhf_model_name_that_is_quite_a_long_identifier = 1\n",
        b"weights = 'AKIAlowercase-is-no-key1'\nXAKIAABCDEFGH234567AB\n",
        b"password = os.environ['PASSWORD']\ntoken = tokenizer.encode('<s>')\n",
        b"eyJhbGciOi" * 40,
        b"\0\0" + b"binary " + b"-----BEGIN PRIVATE KEY-----",
        b"",
    ],
)
def test_what_every_repository_has_is_no_alarm(text: bytes) -> None:
    assert list(secret_lines("x", text)) == []


def test_many_tokens_and_many_beginnings_of_one_are_no_work_for_long() -> None:
    """Counted, not timed: the text is read a few times, however many tokens it has."""
    token = TOKENS["Hugging Face"]
    found = list(secret_lines("x", (token + b"\n") * 20_000))
    assert [finding.line for finding in found] == list(range(1, 20_001))
    for beginning in (b"-----BEGIN ", b"xoxb-1", b"hf_", b"sk-", b"AKIA", b"-----BEGIN A ", b"\n", b" ", b"a"):
        assert list(secret_lines("x", beginning * 50_000)) == []
        for name in ("clusters.yaml", "pip.conf", "x.pem"):
            assert credential_form(name, b"clusters\n" + beginning * 500_000) == ""


def test_tokens_are_masked_and_nothing_else() -> None:
    token = b"ghp_" + b"a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    assert masked_tokens(b"use " + token + b" or hf_x\n") == (b"use (left out) or hf_x\n", ("a token of GitHub",))
    assert masked_tokens(b"kind: Secret\n") == (b"kind: Secret\n", ())
    assert masked_tokens(b"x" + token) == (b"x" + token, ())
