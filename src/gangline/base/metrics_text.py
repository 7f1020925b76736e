"""Prometheus' text form of metrics, for what is too small or too early for prometheus_client. Pure."""

from collections.abc import Iterable, Mapping

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]
"""Labels and a value."""


def metric_text(name: str, kind: str, about: str, samples: Iterable[Sample], suffix: str = "") -> str:
    """One metric with its samples; `suffix` ends their name, as `_bucket` of a histogram."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    return "\n".join((*lines, *sample_lines(name + suffix, samples))) + "\n"


def sample_lines(name: str, samples: Iterable[Sample]) -> list[str]:
    """Samples without the head of their metric."""
    lines = []
    for labels, value in samples:
        pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{pairs}}} {value:.17g}" if pairs else f"{name} {value:.17g}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
