"""Validation of probes and lifecycle hooks."""

from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.problems import (
    each,
    forbidden,
    invalid,
    negative,
    required,
    unsupported,
)
from gangline.schema.problems import Problem

_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SIGNALS = frozenset(
    f"SIG{name}"
    for name in (
        "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM "
        "TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN RTMAX "
        + " ".join(f"RTMIN+{number}" for number in range(1, 16))
        + " "
        + " ".join(f"RTMAX-{number}" for number in range(1, 15))
    ).split()
)


def container_probes(container: JSON, path: str, grace: int | None) -> list[Problem]:
    """Of a container that may have probes: a regular one or a sidecar."""
    found: list[Problem] = []
    if "livenessProbe" in container:
        found += _probe(container["livenessProbe"], f"{path}.livenessProbe", grace, once=True)
    if "readinessProbe" in container:
        probe, here = container["readinessProbe"], f"{path}.readinessProbe"
        found += _probe(probe, here, grace, once=False)
        if "terminationGracePeriodSeconds" in probe:
            seconds = probe["terminationGracePeriodSeconds"]
            found.append(
                invalid(
                    f"{here}.terminationGracePeriodSeconds", seconds, "must not be set for readinessProbes"
                )
            )
    if "startupProbe" in container:
        found += _probe(container["startupProbe"], f"{path}.startupProbe", grace, once=True)
    return found


def _probe(probe: JSON, path: str, grace: int | None, *, once: bool) -> list[Problem]:
    found = handler(probe, path, grace)
    for name in _COUNTS:
        found += negative(f"{path}.{name}", probe.get(name, 0))
    seconds = probe.get("terminationGracePeriodSeconds")
    if seconds is not None and seconds <= 0:
        found.append(invalid(f"{path}.terminationGracePeriodSeconds", seconds, "must be greater than 0"))
    if once and probe["successThreshold"] != 1:
        found.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return found


def lifecycle(hooks: JSON, path: str, grace: int | None, system: str | None) -> list[Problem]:
    """Hooks after the start and before the stop, and the signal to stop with."""
    found: list[Problem] = []
    for name in ("postStart", "preStop"):
        if name in hooks:
            found += handler(hooks[name], f"{path}.{name}", grace)
    if "stopSignal" in hooks:
        found += _stop_signal(hooks["stopSignal"], f"{path}.stopSignal", system)
    return found


def _stop_signal(signal: str, path: str, system: str | None) -> list[Problem]:
    if system is None:
        return [forbidden(path, "may not be set for containers with empty `spec.os.name`")]
    known = frozenset({"SIGKILL", "SIGTERM"}) if system == "windows" else _SIGNALS
    return [] if signal in known else [unsupported(path, signal, sorted(known))]


def handler(action: JSON, path: str, grace: int | None) -> list[Problem]:
    """Exactly one way to ask the container."""
    found: list[Problem] = []
    chosen = [name for name in _HANDLERS if name in action]
    if not chosen:
        return [required(path, "must specify a handler type")]
    first = chosen[0]
    found += _action(first, action[first], f"{path}.{first}", grace)
    found += [forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in chosen[1:]]
    return found


def _action(name: str, action: JSON, path: str, grace: int | None) -> list[Problem]:
    if name == "exec":
        return [] if action.get("command") else [required(f"{path}.command")]
    if name == "httpGet":
        return _http(action, path)
    if name == "sleep":
        seconds = action.get("seconds", 0)
        if grace is None or 0 <= seconds <= grace:
            return []
        told = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        return [invalid(path, seconds, told)]
    return port(action.get("port", 0), f"{path}.port")


def _http(action: JSON, path: str) -> list[Problem]:
    found = port(action.get("port", 0), f"{path}.port")
    if action["scheme"] not in {"HTTP", "HTTPS"}:
        found.append(unsupported(f"{path}.scheme", action["scheme"], ("HTTP", "HTTPS")))
    for header in action.get("httpHeaders", ()):
        name = header.get("name", "")
        found += each(f"{path}.httpHeaders", name, formats.header_name(name))
    return found


def port(value: Any, path: str) -> list[Problem]:
    """A port by number or name."""
    said = formats.port_name(value) if isinstance(value, str) else formats.port_number(value)
    return each(path, value, said)
