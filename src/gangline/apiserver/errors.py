"""A request that the server refuses, with the Status a client gets to see."""

from gangline.api.meta import JSON
from gangline.base.errors import GanglineError

UNPROCESSABLE_MESSAGE = "the server rejected our request due to an error in our request"
"""All that kube-apiserver tells of a patch that does not fit; the cause stays on the exception, for logs."""


class StatusError(GanglineError):
    """An answer with an error code. Raised anywhere below the HTTP layer, answered there.

    `reason` is Kubernetes' machine-readable one, empty where it gives none.
    """

    def __init__(
        self, code: int, message: str, *, reason: str = "", because: str = "", details: JSON | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason
        self.log_detail = because
        """What went wrong in detail, where the client is told less."""
        self.details = details

    @property
    def status(self) -> JSON:
        """The body of the answer."""
        body: JSON = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.code}


class UnknownFields(StatusError):
    """Fields that the schema does not have, where the client insists that all be known."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message, reason="BadRequest")


def bad_request(message: str) -> StatusError:
    return StatusError(400, message, reason="BadRequest")


def unprocessable(because: str) -> StatusError:
    return StatusError(422, UNPROCESSABLE_MESSAGE, reason="Invalid", because=because, details={})


def untyped_error(message: str) -> StatusError:
    """kube-apiserver answers some bad requests with 500 and no reason; clients and tests know these texts."""
    return StatusError(500, message)
