"""HTTP requests that carry their audit id and trail."""

from aiohttp import web

from gangline.apiserver.audit.event import AuditSource, shown_agent, source_ips
from gangline.apiserver.audit.log import AuditLog
from gangline.apiserver.audit.trail import AuditTrail
from gangline.base.clock import Clock
from gangline.base.uuids import random_uuid

AUDIT_ID_HEADER = "Audit-Id"
_AUDIT_ID = web.RequestKey("audit_id", str)
AUDIT_TRAIL = web.RequestKey("audit_trail", AuditTrail)


class AuditedRequest(web.BaseRequest):
    """A request whose response has the audit id, as every response of kube-apiserver has it."""

    @property
    def audit_id(self) -> str:
        """The id that the client sent, or a new one."""
        known = self.get(_AUDIT_ID)
        if known is None:
            known = self[_AUDIT_ID] = self.headers.get(AUDIT_ID_HEADER) or random_uuid()
        return known

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Called by aiohttp before the headers of a response are sent."""
        response.headers[AUDIT_ID_HEADER] = self.audit_id
        trail = self.get(AUDIT_TRAIL)
        if trail is not None:
            trail.start_response(response.status)


def begin_trail(log: AuditLog, clock: Clock, http: web.BaseRequest) -> AuditTrail:
    """Begin the audit trail of a request that was just received."""
    source = AuditSource(
        audit_id=http.audit_id if isinstance(http, AuditedRequest) else random_uuid(),
        received=clock.now(),
        uri=http.rel_url.raw_path_qs if http.rel_url.absolute else http.raw_path,
        agent=shown_agent(http.headers.get("User-Agent", "")),
        ips=source_ips(http.headers, http.remote or ""),
    )
    trail = http[AUDIT_TRAIL] = AuditTrail(log, clock, source)
    return trail
