"""Exec plugins: programs that print a credential (client.authentication.k8s.io, v1 and v1beta1)."""

import asyncio
import base64
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from gangline.api.meta import JSON, ApiStruct
from gangline.base.clock import Clock
from gangline.kube.config.credentials import bearer_header
from gangline.kube.config.kubeconfig import ExecConfig, KubeconfigCluster, KubeconfigUser, NamedEntry
from gangline.kube.config.run_program import ExternalProgram, run_program
from gangline.kube.config.tls import ClientCertificate, Pem
from gangline.kube.errors import ConfigError

AUTHENTICATION_GROUP = "client.authentication.k8s.io"
SUPPORTED_VERSIONS = (f"{AUTHENTICATION_GROUP}/v1", f"{AUTHENTICATION_GROUP}/v1beta1")

PLUGIN_TIMEOUT = timedelta(seconds=60)
"""How long a plugin may take that cannot ask the user."""
INTERACTIVE_TIMEOUT = timedelta(minutes=10)
"""How long a plugin may take that can ask the user: logins in a browser are slow."""
RENEWAL_MARGIN = timedelta(seconds=60)
"""A credential is renewed this long before it expires, or after 9/10 of a shorter lifetime."""

_VERSION_PATTERN = re.compile(rf"{re.escape(AUTHENTICATION_GROUP)}/v\d\w{{0,8}}")
_SECRET_NAME_PATTERN = re.compile(r"secret|passw|token|key|credential|auth", re.IGNORECASE)


class _ExecCredentialStatus(ApiStruct, frozen=True):
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""

    def __repr__(self) -> str:
        return "_ExecCredentialStatus(…)"


class _ExecCredential(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    status: _ExecCredentialStatus | None = None


class _CachedCredential(msgspec.Struct, frozen=True):
    headers: Mapping[str, str]
    certificate: ClientCertificate | None
    renew_at: datetime | None

    def __repr__(self) -> str:
        return f"_CachedCredential(renew_at={self.renew_at})"


class ExecPlugin:
    """Credentials from a program, cached until shortly before they expire or until a 401.

    The program runs once for all waiting requests, which share its result. Cancelling the request that runs it kills the
    program; the next waiting request starts it again. The constructor checks the entry and raises `ConfigError`; the first
    request starts the program.
    """

    def __init__(
        self,
        entry: NamedEntry[KubeconfigUser],
        spec: ExecConfig,
        *,
        cluster: JSON,
        environ: Mapping[str, str],
        interactive: bool,
        clock: Clock,
    ) -> None:
        _validate(entry, spec)
        self._location = entry.location_of("exec")
        self._spec, self._clock = spec, clock
        self._interactive_mode = spec.interactive_mode or "IfAvailable"
        self._interactive = interactive and self._interactive_mode != "Never"
        self._timeout = INTERACTIVE_TIMEOUT if self._interactive else PLUGIN_TIMEOUT
        self._program = ExternalProgram(
            _resolved_command(spec.command, entry.file.path.parent),
            spec.args,
            {
                **environ,
                **{variable.name: variable.value for variable in spec.env},
                "KUBERNETES_EXEC_INFO": self._exec_info(cluster),
            },
            self._interactive,
        )
        self._lock = asyncio.Lock()
        self._current: _CachedCredential | None = None
        self._failure = ""
        self._run_count = 0

    async def headers(self) -> Mapping[str, str]:
        return (await self._fresh_credential()).headers

    async def client_certificate(self) -> ClientCertificate | None:
        return (await self._fresh_credential()).certificate

    def invalidate(self, sent: Mapping[str, str] | None = None) -> bool:
        if self._current is not None and sent in (None, self._current.headers):
            self._current = None
        return True

    def __repr__(self) -> str:
        return f"ExecPlugin({self._spec.command!r})"

    async def _fresh_credential(self) -> _CachedCredential:
        if self._current is not None and self._is_fresh(self._current):
            return self._current
        runs = self._run_count
        async with self._lock:
            if self._run_count != runs:  # the program ran while this request waited
                if self._current is not None:
                    return self._current
                if self._failure:
                    raise ConfigError(self._failure)
            return await self._renew()

    def _is_fresh(self, credential: _CachedCredential) -> bool:
        return credential.renew_at is None or self._clock.now() < credential.renew_at

    async def _renew(self) -> _CachedCredential:
        try:
            credential = self._decode(await self._run_plugin())
        except ConfigError as error:
            self._current, self._failure = None, str(error)
            self._run_count += 1
            raise
        self._current, self._failure = credential, ""
        self._run_count += 1
        return credential

    async def _run_plugin(self) -> bytes:
        if self._interactive_mode == "Always" and not self._interactive:
            raise ConfigError(
                f"{self._location}.interactiveMode: is Always, but standard input is not a terminal; run this in one"
            )
        try:
            result = await run_program(self._program, self._timeout, self._clock)
        except FileNotFoundError:
            raise ConfigError(self._missing_message()) from None
        except OSError as error:
            raise ConfigError(f"{self._problem_message('cannot be started')}: {error.strerror}") from None
        if result.exit_code is None:
            problem = f"did not finish in {self._timeout.total_seconds():.0f} s"
        elif result.exit_code:
            problem = f"failed with exit code {result.exit_code}"
        else:
            return result.stdout
        raise ConfigError(f"{self._problem_message(problem)}{self._last_stderr_line(result.stderr)}")

    def _decode(self, stdout: bytes) -> _CachedCredential:
        """The credential in the output of the plugin. Error messages do not quote the output: it is secret."""
        try:
            credential = msgspec.json.decode(stdout, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigError(
                self._problem_message("printed something that is not an ExecCredential in JSON")
            ) from None
        if (credential.kind, credential.api_version) != ("ExecCredential", self._spec.api_version):
            version = credential.api_version if _VERSION_PATTERN.fullmatch(credential.api_version) else "something else"
            raise ConfigError(
                f"{self._problem_message(f'answered with {version}')}, not an ExecCredential of {self._spec.api_version}; "
                "set exec.apiVersion to what it speaks"
            )
        status = credential.status or _ExecCredentialStatus()
        certificate = self._certificate(status)
        if not status.token and certificate is None:
            raise ConfigError(self._problem_message("answered with neither a token nor a client certificate"))
        headers = bearer_header(status.token, f"{self._location}: token of the plugin") if status.token else {}
        return _CachedCredential(headers, certificate, self._renewal_time(status.expiration_timestamp))

    def _certificate(self, status: _ExecCredentialStatus) -> ClientCertificate | None:
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise ConfigError(
                self._problem_message("answered with only one of clientCertificateData and clientKeyData")
            )
        if not status.client_certificate_data:
            return None
        return ClientCertificate(
            Pem(
                f"{self._location}: clientCertificateData of the plugin",
                status.client_certificate_data.encode(),
            ),
            Pem(f"{self._location}: clientKeyData of the plugin", status.client_key_data.encode()),
        )

    def _renewal_time(self, expires: datetime | None) -> datetime | None:
        return expires and expires - min(RENEWAL_MARGIN, (expires - self._clock.now()) / 10)

    def _exec_info(self, cluster: JSON) -> str:
        spec: JSON = {"interactive": self._interactive}
        if self._spec.provide_cluster_info:
            spec["cluster"] = cluster
        info = {"apiVersion": self._spec.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(info).decode()

    def _problem_message(self, problem: str) -> str:
        return f'{self._location}: plugin "{self._spec.command}" {problem}'

    def _missing_message(self) -> str:
        hint = " ".join(self._spec.install_hint.split()) or "install it or correct the command"
        return f'{self._location}.command: "{self._spec.command}" is not installed; {hint}'

    def _last_stderr_line(self, stderr: bytes | None) -> str:
        if stderr is None:
            return "; its own messages are above"
        lines = stderr.decode(errors="replace").split("\n")
        line = next((text.strip() for text in reversed(lines) if text.strip()), "")
        for secret in _secret_values(self._spec):
            line = line.replace(secret, "***")
        line = "".join(letter for letter in line if letter.isprintable())
        return f": {_shortened_text(line)}" if line else ", and said nothing on stderr"


def cluster_info(entry: NamedEntry[KubeconfigCluster], ca: Pem | None) -> JSON:
    """The description of the cluster for a plugin with `provideClusterInfo`."""
    cluster = entry.value
    extensions = (item.extension for item in cluster.extensions if item.name == f"{AUTHENTICATION_GROUP}/exec")
    info: JSON = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(ca.read()).decode() if ca else "",
        "proxy-url": cluster.proxy_url,
        "config": next(extensions, None),
    }
    return {name: value for name, value in info.items() if value or name == "server"}


def _validate(entry: NamedEntry[KubeconfigUser], spec: ExecConfig) -> None:
    if spec.api_version not in SUPPORTED_VERSIONS:
        problem = f'is "{spec.api_version}", which is not supported' if spec.api_version else "is missing"
        raise ConfigError(f"{entry.location_of('exec.apiVersion')}: {problem}; use {' or '.join(SUPPORTED_VERSIONS)}")
    if not spec.command:
        raise ConfigError(f"{entry.location_of('exec.command')}: is missing; name the program to run")
    modes = ("Never", "IfAvailable", "Always")
    # Required in v1; kubectl requires it, too.
    optional = spec.api_version != SUPPORTED_VERSIONS[0]
    if spec.interactive_mode not in modes and not (optional and not spec.interactive_mode):
        problem = f'is "{spec.interactive_mode}"' if spec.interactive_mode else "is missing"
        raise ConfigError(f"{entry.location_of('exec.interactiveMode')}: {problem}; use {', '.join(modes)}")


def _resolved_command(command: str, folder: Path) -> str:
    """A command with a slash is relative to the kubeconfig's folder; any other is looked up on PATH."""
    return str(folder.absolute() / command) if "/" in command else command


def _secret_values(spec: ExecConfig) -> list[str]:
    """Arguments and variables with names of secrets, which must not appear in messages. Longest first."""
    secrets = [variable.value for variable in spec.env if _SECRET_NAME_PATTERN.search(variable.name)]
    for argument, following in zip(spec.args, [*spec.args[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name.startswith("-") and _SECRET_NAME_PATTERN.search(name):
            secrets.append(value if equals else following)
    # Replacing short values would mutilate ordinary words.
    return sorted((value for value in secrets if len(value) >= 4), key=len, reverse=True)


def _shortened_text(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]}…"
