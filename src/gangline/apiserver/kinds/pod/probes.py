"""Validation of probes and lifecycle hooks."""

from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, unsupported

PROBE_FIELDS = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HANDLER_TYPES = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_STOP_SIGNALS = frozenset(
    f"SIG{name}"
    for name in (
        "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM "
        "TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ RTMIN RTMAX "
        + " ".join(f"RTMIN+{number}" for number in range(1, 16))
        + " "
        + " ".join(f"RTMAX-{number}" for number in range(1, 15))
    ).split()
)


def validate_probes(container: JSON, path: str, grace: int | None) -> list[FieldProblem]:
    """Problems of the probes of a regular container or a sidecar."""
    problems: list[FieldProblem] = []
    if "livenessProbe" in container:
        problems += _validate_probe(container["livenessProbe"], f"{path}.livenessProbe", grace, once=True)
    if "readinessProbe" in container:
        probe, field_path = container["readinessProbe"], f"{path}.readinessProbe"
        problems += _validate_probe(probe, field_path, grace, once=False)
        if "terminationGracePeriodSeconds" in probe:
            seconds = probe["terminationGracePeriodSeconds"]
            problems.append(
                invalid(f"{field_path}.terminationGracePeriodSeconds", seconds, "must not be set for readinessProbes")
            )
    if "startupProbe" in container:
        problems += _validate_probe(container["startupProbe"], f"{path}.startupProbe", grace, once=True)
    return problems


def _validate_probe(probe: JSON, path: str, grace: int | None, *, once: bool) -> list[FieldProblem]:
    problems = validate_handler(probe, path, grace)
    for name in _PROBE_COUNTS:
        problems += validate_non_negative(f"{path}.{name}", probe.get(name, 0))
    seconds = probe.get("terminationGracePeriodSeconds")
    if seconds is not None and seconds <= 0:
        problems.append(invalid(f"{path}.terminationGracePeriodSeconds", seconds, "must be greater than 0"))
    if once and probe["successThreshold"] != 1:
        problems.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return problems


def validate_lifecycle(hooks: JSON, path: str, grace: int | None, system: str | None) -> list[FieldProblem]:
    """Problems of the lifecycle hooks of a container and of its stop signal."""
    problems: list[FieldProblem] = []
    for name in ("postStart", "preStop"):
        if name in hooks:
            problems += validate_handler(hooks[name], f"{path}.{name}", grace)
    if "stopSignal" in hooks:
        problems += _validate_stop_signal(hooks["stopSignal"], f"{path}.stopSignal", system)
    return problems


def _validate_stop_signal(signal: str, path: str, system: str | None) -> list[FieldProblem]:
    if system is None:
        return [forbidden(path, "may not be set for containers with empty `spec.os.name`")]
    supported = frozenset({"SIGKILL", "SIGTERM"}) if system == "windows" else _STOP_SIGNALS
    return [] if signal in supported else [unsupported(path, signal, sorted(supported))]


def validate_handler(action: JSON, path: str, grace: int | None) -> list[FieldProblem]:
    """Problems of the handler of a probe or hook, which must be exactly one."""
    problems: list[FieldProblem] = []
    handlers = [name for name in _HANDLER_TYPES if name in action]
    if not handlers:
        return [required(path, "must specify a handler type")]
    first = handlers[0]
    problems += _validate_action(first, action[first], f"{path}.{first}", grace)
    problems += [forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in handlers[1:]]
    return problems


def _validate_action(name: str, action: JSON, path: str, grace: int | None) -> list[FieldProblem]:
    if name == "exec":
        return [] if action.get("command") else [required(f"{path}.command")]
    if name == "httpGet":
        return _validate_http_get(action, path)
    if name == "sleep":
        seconds = action.get("seconds", 0)
        if grace is None or 0 <= seconds <= grace:
            return []
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        return [invalid(path, seconds, detail)]
    return validate_port(action.get("port", 0), f"{path}.port")


def _validate_http_get(action: JSON, path: str) -> list[FieldProblem]:
    problems = validate_port(action.get("port", 0), f"{path}.port")
    if action["scheme"] not in {"HTTP", "HTTPS"}:
        problems.append(unsupported(f"{path}.scheme", action["scheme"], ("HTTP", "HTTPS")))
    for header in action.get("httpHeaders", ()):
        name = header.get("name", "")
        problems += invalid_each(f"{path}.httpHeaders", name, formats.header_name_errors(name))
    return problems


def validate_port(value: Any, path: str) -> list[FieldProblem]:
    """Problems of a port, given by number or name."""
    errors = formats.port_name_errors(value) if isinstance(value, str) else formats.port_number_errors(value)
    return invalid_each(path, value, errors)
