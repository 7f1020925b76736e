"""The pod security policy of a namespace, by its labels."""

import re
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from gangline.apiserver.admission.security import LABEL_PREFIX
from gangline.schema.problems import FieldProblem, invalid

_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)", re.ASCII)
_MAX_VERSION = 2**63 - 1
_VERSION_PROBLEM = 'must be "latest" or "v1.x"'


class SecurityLevel(IntEnum):
    """The levels of the pod security standards, the strictest last."""

    PRIVILEGED = 0
    BASELINE = 1
    RESTRICTED = 2


_LEVELS = {level.name.lower(): level for level in SecurityLevel}
_LEVEL_PROBLEM = f"must be one of {', '.join(_LEVELS)}"


class LeveledVersion(msgspec.Struct, frozen=True):
    """A level as a version of Kubernetes defined it."""

    level: SecurityLevel = SecurityLevel.PRIVILEGED
    minor: int | None = None
    """The minor version of Kubernetes 1. None: the latest."""

    def __str__(self) -> str:
        version = "latest" if self.minor is None else f"v1.{self.minor}"
        return f"{self.level.name.lower()}:{version}"


class SecurityPolicy(msgspec.Struct, frozen=True):
    """What a namespace refuses, records and warns of."""

    enforce: LeveledVersion = LeveledVersion()
    audit: LeveledVersion = LeveledVersion()
    warn: LeveledVersion = LeveledVersion()

    @property
    def is_privileged(self) -> bool:
        """Whether every pod is allowed without a word."""
        return self.enforce.level == self.audit.level == self.warn.level == SecurityLevel.PRIVILEGED


def namespace_policy(labels: Mapping[str, str] | None) -> tuple[SecurityPolicy, list[FieldProblem]]:
    """The policy that the labels ask for, and invalid labels: then `enforce` is the strictest, the others are off."""
    if not labels or not any(name.startswith(LABEL_PREFIX) for name in labels):
        return SecurityPolicy(), []
    problems: list[FieldProblem] = []
    modes: dict[str, LeveledVersion] = {}
    for mode in ("enforce", "audit", "warn"):
        level, minor = _LEVELS["privileged"], None
        level_text, version_text = labels.get(f"{LABEL_PREFIX}{mode}"), labels.get(f"{LABEL_PREFIX}{mode}-version")
        if level_text is not None:
            default = SecurityLevel.RESTRICTED if mode == "enforce" else SecurityLevel.PRIVILEGED
            level = _LEVELS.get(level_text, default)
            if level_text not in _LEVELS:
                problems.append(_invalid_label(mode, level_text, _LEVEL_PROBLEM))
        if version_text is not None:
            minor = _minor_version(version_text)
            if minor is None and version_text != "latest":
                problems.append(_invalid_label(f"{mode}-version", version_text, _VERSION_PROBLEM))
        modes[mode] = LeveledVersion(level, minor)
    warn = modes["warn"]
    # Who enforces a level without a word about warnings is warned of it in templates.
    if f"{LABEL_PREFIX}warn" not in labels and labels.get(f"{LABEL_PREFIX}enforce") in _LEVELS:
        has_version = f"{LABEL_PREFIX}warn-version" in labels
        minor = warn.minor if has_version else modes["enforce"].minor
        if modes["enforce"].level > warn.level:
            warn = LeveledVersion(modes["enforce"].level, minor)
    return SecurityPolicy(modes["enforce"], modes["audit"], warn), problems


def _minor_version(text: str) -> int | None:
    match = _VERSION.fullmatch(text)
    return int(match[1]) if match is not None and int(match[1]) <= _MAX_VERSION else None


def _invalid_label(name: str, value: str, detail: str) -> FieldProblem:
    return invalid(f"metadata.labels[{LABEL_PREFIX}{name}]", value, detail)
