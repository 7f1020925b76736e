"""Says which pod reports progress, by its token: a pod can report only for itself, and only for its own job.

The API server verifies the token, for the audience of that one job (TokenReview), and names the pod to which it is bound.
That pod must exist and be controlled by the job.
"""

import asyncio
import base64
import binascii
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.jobs.pods.progress_reporting import progress_audience
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.runtime.metrics_guard import TOKEN_REVIEWS

log = logging.getLogger(__name__)

POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
"""What a TokenReview says about the pod of a token, in the user's extra fields."""
ALLOWED_FOR, REFUSED_FOR = timedelta(minutes=2), timedelta(seconds=10)
"""How long an answer holds. A pod that is gone meanwhile cannot be annotated, whatever its token says."""
MAX_REMEMBERED = 10_000
MAX_REVIEWS, MAX_WAITING = 8, 200
"""Reviews at the same time, and requests that wait for one: wrong tokens must not load the API server."""


class ReportRefused(GanglineError):
    """A report that is not accepted: the HTTP status, and the reason in a sentence."""

    def __init__(self, status: int, reason: str, retry_after: int = 0) -> None:
        super().__init__(reason)
        self.status, self.retry_after = status, retry_after


class ReportedJob(NamedTuple):
    """The job that a report is for, as its path names it."""

    plural: str
    key: Key


class Reporter(NamedTuple):
    """A pod that may report."""

    pod: Key
    uid: str
    annotations: Mapping[str, str] = {}
    """As they were when the token was reviewed."""


class _Answer(NamedTuple):
    """What was decided about a token and a job, and until when that holds."""

    reporter: Reporter | None
    refusal: tuple[int, str]
    valid_until: float


class _Claims(msgspec.Struct, frozen=True):
    """The part of a token that is looked at before the API server is asked. Not verified."""

    aud: str | tuple[str, ...] = ()
    exp: float = 0.0

    @property
    def audiences(self) -> tuple[str, ...]:
        return (self.aud,) if isinstance(self.aud, str) else self.aud


class ReporterCheck:
    """Finds the pod of a token. Answers are remembered for a short time, by the digest of the token."""

    def __init__(self, client: Client, kinds: Iterable[JobKind], clock: Clock) -> None:
        self._client, self._clock = client, clock
        # One plural may be served in several versions.
        self._kinds = {kind.plural: (kind.resource.group, kind.kind) for kind in kinds}
        self._answers: OrderedDict[tuple[bytes, ReportedJob], _Answer] = OrderedDict()
        self._reviews = asyncio.Semaphore(MAX_REVIEWS)
        self._waiting = 0

    async def reporter(self, authorization: str, job: ReportedJob) -> Reporter:
        """The pod that reports. Raises `ReportRefused`."""
        if job.plural not in self._kinds:
            raise ReportRefused(404, f'this operator serves no "{job.plural}"')
        token = _bearer_token(authorization)
        claims = _claims(token)
        # What can be seen without the API server is not asked of it.
        if progress_audience(job.plural, job.key) not in claims.audiences:
            raise ReportRefused(401, "the token is not for progress of this job")
        if claims.exp <= self._clock.now().timestamp():
            raise ReportRefused(401, "the token has expired; read its file again")
        memo = (hashlib.sha256(token.encode(errors="replace")).digest(), job)
        answer = self._remembered(memo)
        if answer is None:
            if self._waiting >= MAX_WAITING:
                raise ReportRefused(503, "too many tokens wait to be checked", retry_after=5)
            self._waiting += 1
            try:
                async with self._reviews:
                    answer = self._remembered(memo) or await self._ask(memo, token, claims)
            finally:
                self._waiting -= 1
        if answer.reporter is None:
            raise ReportRefused(*answer.refusal)
        return answer.reporter

    def _remembered(self, memo: tuple[bytes, ReportedJob]) -> _Answer | None:
        answer = self._answers.get(memo)
        return answer if answer is not None and self._clock.monotonic() < answer.valid_until else None

    async def _ask(self, memo: tuple[bytes, ReportedJob], token: str, claims: _Claims) -> _Answer:
        job = memo[1]
        reporter, refusal = None, (0, "")
        try:
            reporter = await self._review(token, job)
        except ReportRefused as error:
            refusal = (error.status, str(error))
        except KubeError as error:
            log.warning("a progress report cannot be checked", extra={"job": str(job.key), "error": str(error)})
            raise ReportRefused(503, "the API server cannot be asked about the token", retry_after=5) from error
        now = self._clock.monotonic()
        lifetime = claims.exp - self._clock.now().timestamp()
        holds_for = min(ALLOWED_FOR.total_seconds(), lifetime) if reporter is not None else REFUSED_FOR.total_seconds()
        answer = self._answers[memo] = _Answer(reporter, refusal, now + holds_for)
        self._answers.move_to_end(memo)
        while len(self._answers) > MAX_REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    async def _review(self, token: str, job: ReportedJob) -> Reporter:
        audience = progress_audience(job.plural, job.key)
        spec = {"token": token, "audiences": [audience]}
        status = (await self._client.create(TOKEN_REVIEWS, {"spec": spec})).get("status") or {}
        # A server that knows nothing of audiences answers without them: then the token may be for somebody else.
        if not status.get("authenticated") or audience not in (status.get("audiences") or ()):
            raise ReportRefused(401, "the token is not valid")
        user = status.get("user") or {}
        name, uid = _extra(user, POD_NAME), _extra(user, POD_UID)
        if (
            not name
            or not uid
            or not user.get("username", "").startswith(f"system:serviceaccount:{job.key.namespace}:")
        ):
            raise ReportRefused(403, "the token is not that of a pod in the job's namespace")
        return await self._pod(Key(job.key.namespace, name), uid, job)

    async def _pod(self, key: Key, uid: str, job: ReportedJob) -> Reporter:
        try:
            pod = await self._client.get(Pod, key)
        except NotFound:
            raise ReportRefused(403, f'pod "{key.name}" does not exist any more') from None
        owner, (group, kind) = pod.metadata.controller, self._kinds[job.plural]
        is_owned = (
            owner is not None
            and (owner.api_version.rpartition("/")[0], owner.kind, owner.name) == (group, kind, job.key.name)
            and pod.metadata.uid == uid
        )
        if not is_owned:
            raise ReportRefused(403, f'pod "{key.name}" does not belong to {kind} "{job.key.name}"')
        return Reporter(key, uid, pod.metadata.annotations)


def _bearer_token(authorization: str) -> str:
    scheme, _, token = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise ReportRefused(401, "a bearer token is needed")
    return token.strip()


def _claims(token: str) -> _Claims:
    """The claims that a token makes. Raises `ReportRefused` for what is no token of a pod."""
    try:
        payload = token.split(".")[1]
        raw = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(raw, type=_Claims)
    except (IndexError, ValueError, binascii.Error, msgspec.MsgspecError):
        raise ReportRefused(401, "the token is not valid") from None


def _extra(user: JSON, name: str) -> str:
    values: Any = (user.get("extra") or {}).get(name)
    return str(values[0]) if isinstance(values, list) and len(values) == 1 else ""
