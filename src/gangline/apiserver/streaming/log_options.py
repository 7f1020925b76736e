"""The container, the run and the options of a log request. Pure; errors have kube-apiserver's and kubelet's words."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import NamedKind
from gangline.apiserver.http.request_info import query_flag
from gangline.base.clock import time_with_zone
from gangline.kube.podstreams import LogOptions
from gangline.schema.problems import FieldProblem, ProblemKind

CONTAINER_ID_SCHEME = "process://"
"""The prefix of container ids on nodes that run containers as processes."""


def log_options(query: Mapping[str, str], pod: str, now: datetime) -> LogOptions:
    """The options of `pods/log`. Raises `StatusError`: 400 for values that cannot be parsed, 422 for invalid ones."""
    tail, limit = _query_integer(query, "tailLines"), _query_integer(query, "limitBytes")
    seconds, since = _query_integer(query, "sinceSeconds"), _query_time(query, "sinceTime")
    problems: list[FieldProblem] = []
    if tail is not None and tail < 0:
        problems.append(_invalid_value("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        problems.append(_invalid_value("limitBytes", limit, "must be greater than 0"))
    if seconds is not None and since is not None:
        detail = "at most one of `sinceTime` or `sinceSeconds` may be specified"
        problems.append(FieldProblem(ProblemKind.FORBIDDEN, "[]", detail=detail))
    elif seconds is not None and seconds < 1:
        problems.append(_invalid_value("sinceSeconds", seconds, "must be greater than 0"))
    if query.get("stream", "All") != "All":
        problems.append(FieldProblem(ProblemKind.FORBIDDEN, "stream", detail="may not be specified"))
    if problems:
        raise apierrors.invalid(NamedKind("", "PodLogOptions", "pods/log"), pod, problems)
    return LogOptions(
        follow=query_flag(query, "follow"),
        previous=query_flag(query, "previous"),
        timestamps=query_flag(query, "timestamps"),
        tail=tail,
        since=now - timedelta(seconds=seconds) if seconds is not None else since,
        since_seconds=seconds,
        limit_bytes=limit,
    )


def _invalid_value(field: str, value: int, detail: str) -> FieldProblem:
    return FieldProblem(ProblemKind.INVALID, field, value, detail)


def _query_integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise apierrors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _query_time(query: Mapping[str, str], name: str) -> datetime | None:
    text = query.get(name, "")
    if not text:
        return None
    time = time_with_zone(text)
    if time is None:
        layout = "2006-01-02T15:04:05Z07:00"
        raise apierrors.bad_request(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"')
    return time


def container_name(pod: JSON, requested: str) -> str:
    """The container that a request names, or the only one. Raises `StatusError` if it is ambiguous or unknown."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    parts = ("initContainers", "containers", "ephemeralContainers")
    names = [container["name"] for part in parts for container in spec.get(part) or ()]
    if requested:
        if requested not in names:
            raise apierrors.bad_request(f"container {requested} is not valid for pod {name}")
        return requested
    main: list[JSON] = spec["containers"]
    if len(main) != 1:
        raise apierrors.bad_request(
            f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
        )
    only: str = main[0]["name"]
    return only


def has_input(pod: JSON, container: str) -> bool:
    """Whether a container has an input or a terminal, to which clients can attach."""
    parts = ("initContainers", "containers", "ephemeralContainers")
    specs = (spec for part in parts for spec in pod["spec"].get(part) or () if spec["name"] == container)
    return any(spec.get("stdin") or spec.get("tty") for spec in specs)


def container_run_id(pod: JSON, container: str, *, previous: bool) -> str:
    """The id of the container run that has the log. Raises `StatusError`, in the kubelet's words, if there is none."""
    subject = f'container "{container}" in pod "{pod["metadata"]["name"]}"'
    status = _container_status(pod, container)
    if status is None:
        raise apierrors.bad_request(f"{subject} is not available")
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated")
    if previous:
        if not (last or {}).get("containerID"):
            raise apierrors.bad_request(f"previous terminated {subject} not found")
        return _container_id(last)
    if "running" in state:
        return _container_id(status)
    if "terminated" in state or last is not None:
        terminations = [
            termination for termination in (state.get("terminated"), last) if (termination or {}).get("containerID")
        ]
        if not terminations:
            raise apierrors.bad_request(f"{subject} is terminated")
        return _container_id(terminations[0])
    reason = (state.get("waiting") or {}).get("reason")
    raise apierrors.bad_request(
        f"{subject} is waiting to start: {reason}" if reason else f"{subject} is waiting to start - no logs yet"
    )


def _container_status(pod: JSON, container: str) -> JSON | None:
    parts = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    statuses = (status for part in parts for status in (pod.get("status") or {}).get(part) or ())
    return next((status for status in statuses if status["name"] == container), None)


def _container_id(status: Any) -> str:
    return str(status.get("containerID", "")).removeprefix(CONTAINER_ID_SCHEME)
