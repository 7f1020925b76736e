"""What policies say about a request, as values."""

import msgspec


class PolicyFailure(msgspec.Struct, frozen=True):
    """A check of a policy that a request fails."""

    message: str
    reason: str = "Invalid"
    index: int = 0


class PolicyOutcome(msgspec.Struct, frozen=True):
    """What the expressions of a policy say about a request."""

    failures: tuple[PolicyFailure, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    errors: tuple[PolicyFailure, ...] = ()
    """Failures that refuse the request whatever the actions of the binding are."""
