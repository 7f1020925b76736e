"""What a viewer may do to a job. The server decides: every request carries the viewer's own credentials."""

from typing import Any

import msgspec
from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.dashboard.live.viewer import Viewer
from gangline.dashboard.web.guard import Refused, json_response
from gangline.kube.options import DeletionPropagation
from gangline.summary.actions import require_unfinished, restart_replicas, scale_replicas, set_suspended
from gangline.summary.objects import ServerJob
from gangline.summary.replicas import replica_selector

MAX_REPLICAS = 100_000


class ActionBody(msgspec.Struct, frozen=True):
    """The body of an action. `uid`: of the job that the viewer looks at; another one of that name is left alone."""

    uid: str = ""
    replicas: int | None = None
    # The type of replica to scale; empty: worker, or the only one.
    type: str = ""
    # The replicas to restart, such as worker or worker/1; empty: all.
    replica: str = ""


async def act(request: web.Request, viewer: Viewer, kind: Resource[JSON], key: Key) -> web.Response:
    """Carry out the action in the path; the answer says what was done, in one sentence."""
    body = read_body(await request.read(), ActionBody)
    job = ServerJob(kind, await viewer.client.get(kind, key))
    if body.uid and body.uid != job.body["metadata"].get("uid"):
        raise Refused(409, f"{job.display_name} was deleted, and another one of that name created; look again")
    action = request.match_info["action"]
    return json_response({"text": await _carry_out(viewer, job, action, body)})


async def _carry_out(viewer: Viewer, job: ServerJob, action: str, body: ActionBody) -> str:
    client, name = viewer.client, job.display_name
    match action:
        case "suspend" | "resume":
            require_unfinished(job, "it cannot be suspended or resumed")
            await set_suspended(client, job, suspended=action == "suspend")
            return f"{name} {action}{'ed' if action == 'suspend' else 'd'}"
        case "restart":
            require_unfinished(job, "submit it again under another name")
            selectors = (replica_selector(body.replica),) if body.replica else ()
            replicas = [replica async for replica in restart_replicas(client, job, selectors)]
            return f"{name} {', '.join(replicas)} restarted"
        case "scale":
            require_unfinished(job, "it cannot be scaled")
            if body.replicas is None or not 0 <= body.replicas <= MAX_REPLICAS:
                raise InputError(f"replicas: {body.replicas} is no number of replicas; write how many there should be")
            change = await scale_replicas(client, job, body.replicas, body.type)
            return f"{name} scaled: {change.type} {change.before} -> {change.after}"
        case "delete":
            uid = job.body["metadata"].get("uid")
            await client.delete(job.resource, job.key, uid=uid, propagation=DeletionPropagation.BACKGROUND)
            return f"{name} deleted"
    raise Refused(404, f"{action[:40]}: no such action; there are suspend, resume, restart, scale and delete")


def read_body(content: bytes, model: type[Any]) -> Any:
    """The body of a request. Raises `Refused` if it does not fit."""
    try:
        return msgspec.json.decode(content or b"{}", type=model)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(400, f"the body of the request cannot be used: {error}") from None
