"""The options of the audit log."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click

from gangline.base.errors import InputError
from gangline.base.options import option_group

if TYPE_CHECKING:
    from gangline.apiserver.audit.log import AuditSettings


class AuditOptions(NamedTuple):
    """The audit options, as given on the command line."""

    audit_log: Path | None = None
    audit_policy: Path | None = None
    audit_log_maxsize: int = 100
    audit_log_maxbackup: int = 5

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> Self:
        """Take the audit options out of the options of a command."""
        return cls(*(options.pop(name) for name in cls._fields))

    def as_arguments(self) -> list[str]:
        """The arguments that give another process the same options."""
        if self.audit_log is None:
            return []
        policy = ["--audit-policy", str(self.audit_policy.absolute())] if self.audit_policy is not None else []
        sizes = ["--audit-log-maxsize", str(self.audit_log_maxsize)]
        backups = ["--audit-log-maxbackup", str(self.audit_log_maxbackup)]
        return ["--audit-log", str(self.audit_log.absolute()), *policy, *sizes, *backups]

    def settings(self) -> "AuditSettings | None":
        """The settings of the audit log; None without one. Raises `InputError`, also when the file cannot be written."""
        if self.audit_log is None:
            if self.audit_policy is not None:
                raise InputError("--audit-policy: says what is recorded, not where; add --audit-log FILE")
            return None
        from gangline.apiserver.audit.log import AuditSettings, check_writable
        from gangline.apiserver.audit.policy import METADATA_OF_ALL, parse_policy

        policy = METADATA_OF_ALL
        if self.audit_policy is not None:
            try:
                text = self.audit_policy.read_text()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "is not text"
                raise InputError(f"--audit-policy {self.audit_policy}: {reason}") from error
            policy = parse_policy(text, str(self.audit_policy))
        check_writable(self.audit_log)
        return AuditSettings(self.audit_log.absolute(), policy, self.audit_log_maxsize, self.audit_log_maxbackup)


audit_options = option_group(
    click.option(
        "--audit-log",
        "--audit-log-path",
        "audit_log",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Record every request in this file, in the format of kube-apiserver's audit log.",
    ),
    click.option(
        "--audit-policy",
        "--audit-policy-file",
        "audit_policy",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="What is recorded: a Policy of audit.k8s.io/v1.  [default: Metadata of every request, no bodies]",
    ),
    click.option(
        "--audit-log-maxsize",
        type=click.IntRange(1),
        default=100,
        show_default=True,
        metavar="MB",
        help="Size at which the audit log is renamed and a new one begun.",
    ),
    click.option(
        "--audit-log-maxbackup",
        type=click.IntRange(0),
        default=5,
        show_default=True,
        metavar="COUNT",
        help="How many renamed audit logs are kept; 0 keeps all.",
    ),
)
"""Adds the audit options to a command, which takes them out of its options with `AuditOptions.take_from`."""
