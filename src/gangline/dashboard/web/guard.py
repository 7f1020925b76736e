"""What every request passes: its host and origin are checked, errors become one JSON sentence, headers are strict.

A web page elsewhere cannot use the dashboard of whoever opens that page. It cannot reach it by a name of its own (Host), its
requests carry no cookie (SameSite=Strict), a request that changes something needs a header that a form cannot send, and no
page can be framed. What jobs, logs and events contain is data: no response is a page but the files of the dashboard.
"""

import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from gangline.api.denied_access import denied_access, grant_commands
from gangline.apiserver.serving.hosts import AllowedHosts
from gangline.base.errors import GanglineError, InputError
from gangline.dashboard.live.rights import AccessRefused
from gangline.dashboard.live.viewer import TooManyViews
from gangline.dashboard.rows.job_row import ViewStruct
from gangline.kube.errors import ApiError, Forbidden, KubeError

log = logging.getLogger(__name__)

REQUEST_HEADER = "X-Gangline-Request"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
_READS = ("GET", "HEAD")
_FOREIGN_SITES = ("cross-site", "same-site")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ErrorView(ViewStruct, frozen=True):
    """Why a request was not carried out, in one sentence."""

    code: int
    message: str
    resource: str = ""
    namespace: str = ""
    # How a viewer gets a session; only with code 401.
    login: str = ""


class Refused(GanglineError):
    """A request that the dashboard itself does not serve."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestGuard:
    """The outermost middleware."""

    def __init__(self, allowed_hosts: tuple[str, ...]) -> None:
        self._hosts = AllowedHosts(allowed_hosts)

    def check(self, request: web.Request) -> None:
        """Raise `Refused` for a request that a page of another origin may have sent."""
        host = request.headers.get("Host", "")
        problem = self._hosts.problem(host)
        if problem or not host:
            raise Refused(421, problem or "the Host header is missing")
        origin = request.headers.get("Origin", "")
        if origin and _netloc(origin) != host.lower():
            raise Refused(403, "requests of other sites are not served")
        is_page = request.method in _READS and request.headers.get("Sec-Fetch-Mode") == "navigate"
        if not is_page and request.headers.get("Sec-Fetch-Site") in _FOREIGN_SITES:
            raise Refused(403, "requests of other sites are not served")
        if request.method in _READS:
            return
        if request.method != "POST":
            raise Refused(405, f"{request.method} is not served")
        if request.headers.get(REQUEST_HEADER) != "1":
            raise Refused(403, f"a request that changes something needs the header {REQUEST_HEADER}: 1")
        if request.content_type != "application/json":
            raise Refused(415, "send JSON, with Content-Type: application/json")

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self.check(request)
            return await handler(request)
        except GanglineError as error:
            return error_response(error)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return json_response({"error": ErrorView(code=error.status, message=error.reason)}, error.status)
        except (ConnectionError, TimeoutError):
            raise  # the viewer has left
        except Exception:
            log.exception("dashboard request failed", extra={"path": request.path})
            failed = ErrorView(code=500, message="the dashboard failed; its log says why")
            return json_response({"error": failed}, 500)


def _netloc(origin: str) -> str:
    """Host and port of an origin; empty if it is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """The signal `on_response_prepare`: strict headers on every response."""
    for name, value in SECURITY_HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.pop("Server", None)


def json_response(data: object, status: int = 200) -> web.Response:
    """A response in JSON."""
    return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")


def error_response(error: GanglineError) -> web.Response:
    """The response for an error: the code, and one sentence."""
    view = error_view(error)
    return json_response({"error": view}, view.code)


def error_view(error: GanglineError, login: str = "") -> ErrorView:
    """What a viewer is shown of an error. A refusal of the server comes with what an administrator types."""
    text = " ".join(str(error).split())
    if isinstance(error, Refused):
        return ErrorView(code=error.code, message=text, login=login)
    if isinstance(error, TooManyViews):
        return ErrorView(code=503, message=text)
    if isinstance(error, AccessRefused):
        refusal = error.refusal
        return ErrorView(code=403, message=text, resource=refusal.resource, namespace=refusal.namespace)
    if isinstance(error, Forbidden) and (denied := denied_access(text)) is not None:
        grants = " && ".join(grant_commands(denied))
        message = text + (f"; an administrator allows it: {grants}" if grants else "")
        return ErrorView(code=403, message=message, resource=denied.resource, namespace=denied.namespace)
    if isinstance(error, ApiError):
        return ErrorView(code=error.code if 400 <= error.code < 600 else 502, message=text, login=login)
    if isinstance(error, KubeError):
        return ErrorView(code=502, message=f"the API server does not answer: {text}")
    return ErrorView(code=400 if isinstance(error, InputError) else 500, message=text)
