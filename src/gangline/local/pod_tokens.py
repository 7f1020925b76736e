"""Tokens for the pods of a node that shares its process with the API server: no request is sent for them."""

import msgspec

from gangline.api.kubeflow.training import PROGRESS_AUDIENCE
from gangline.api.meta import JSON, Key
from gangline.apiserver.auth.token_requests import TokenIssuer
from gangline.apiserver.errors import StatusError
from gangline.kube.errors import Status, error_from_status


class InProcessTokens:
    """Requests tokens from the issuer directly."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self._issuer = issuer

    async def request_token(self, account: Key, spec: JSON) -> JSON:
        """The TokenRequest with its status. Raises `KubeError`."""
        try:
            # A token for another audience is verified by others; one for progress by a TokenReview.
            only_for_us = all(audience.endswith(f".{PROGRESS_AUDIENCE}") for audience in spec["audiences"])
            return self._issuer.issue(account, {"spec": spec}, only_for_us=only_for_us)
        except StatusError as error:
            raise error_from_status(msgspec.convert(error.status, Status)) from error
