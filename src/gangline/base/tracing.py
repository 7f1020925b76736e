"""Spans of traces, for code that knows no tracing library.

Off by default, and then a span costs a function call. `gangline.operator.tracing` connects it to OpenTelemetry: the import
of its API alone takes some 30 ms, so nothing is imported unless traces are wanted.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, TypeAlias

AttributeValue: TypeAlias = str | int | float | bool


class TraceSpan(Protocol):
    """A piece of work in a trace."""

    def set_attribute(self, name: str, value: AttributeValue) -> object: ...


class Tracer(Protocol):
    """Starts spans, as children of the one around them."""

    def start_span(
        self, name: str, attributes: Mapping[str, AttributeValue], *, is_request: bool
    ) -> AbstractContextManager[TraceSpan]: ...

    def trace_parent(self) -> str:
        """The current span as the W3C header `traceparent`; empty outside of any."""
        ...


class _NoSpan:
    """Ignores everything. One object serves all."""

    def __enter__(self) -> "_NoSpan":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def set_attribute(self, name: str, value: AttributeValue) -> None:
        pass


_NO_SPAN = _NoSpan()
_tracer: Tracer | None = None


def set_tracer(tracer: Tracer | None) -> None:
    """Send the spans of this process to a tracer; None turns tracing off."""
    global _tracer
    _tracer = tracer


def is_tracing() -> bool:
    """Whether spans are recorded."""
    return _tracer is not None


def trace_span(
    name: str, attributes: Mapping[str, AttributeValue] | None = None, *, is_request: bool = False
) -> AbstractContextManager[TraceSpan]:
    """A span for the block. `is_request`: it is a request to another program."""
    if _tracer is None:
        return _NO_SPAN
    return _tracer.start_span(name, attributes or {}, is_request=is_request)


def trace_parent() -> str:
    """The current span as the W3C header `traceparent`; empty if there is none."""
    return _tracer.trace_parent() if _tracer is not None else ""
