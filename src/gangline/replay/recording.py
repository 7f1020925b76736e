"""Reads a job from its server and makes a bundle of it. It reads only, and never a Secret."""

import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta

import msgspec

from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.tasks import run_all
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, KubeError, NotFound
from gangline.kube.pods import PodSubresources
from gangline.replay.bundle import BUNDLE_VERSION, CodeFile, JobBundle, Manifest, RecordedVerdict
from gangline.replay.faults import JobHistory, recorded_faults, replica_of, replica_records
from gangline.replay.scrub import Scrubber, config_map_names, secret_references
from gangline.replay.shipped_code import carrier_claim, carrier_name, shipped_files
from gangline.replay.verdict import verdict_of
from gangline.summary.job_state import replica_specs
from gangline.summary.objects import EVENTS, ServerJob, json_resource
from gangline.summary.replicas import container_name, list_replicas, restart_count
from gangline.why.collect import collect, find_job
from gangline.why.diagnosis.case import DiagnosisTimeouts, JobSnapshot
from gangline.why.diagnosis.diagnose import diagnose

CONFIG_MAPS = json_resource("", "v1", "ConfigMap", "configmaps")
LOG_LINES = 200
LOG_BYTES = 2**20
LOGS_AT_ONCE = 8

Enrich = Callable[[JobSnapshot], Awaitable[JobSnapshot]]
"""Adds what only the machine of the server knows, such as stacks."""


class RecordRequest(msgspec.Struct, frozen=True):
    """Which job to record."""

    # `[KIND/]NAME`.
    target: str
    namespace: str
    # The version of gangline that records.
    made_by: str
    # The files of a folder that has the code; None: what was shipped.
    folder: Mapping[str, CodeFile] | None = None
    hung_after: timedelta = timedelta(minutes=1)


class Recording:
    """Reads one job, once."""

    def __init__(self, client: Client, request: RecordRequest, clock: Clock, enrich: Enrich) -> None:
        self._client, self._request, self._clock, self._enrich = client, request, clock, enrich
        self._scrubber = Scrubber()

    async def bundle(self) -> JobBundle:
        """The recorded job. Raises `JobNotFound`, `InputError` for a job of another kind, and `KubeError`."""
        request = self._request
        kind, job = await find_job(self._client, request.target, request.namespace)
        if kind.job_kind is None:
            raise InputError(f"{request.target}: is a {kind.resource.kind}; only training jobs can be recorded")
        patience = DiagnosisTimeouts(hung_after=request.hung_after)
        case = await collect(self._client, request.target, request.namespace, self._clock, patience)
        diagnosis = diagnose(await self._enrich(case))
        pods = await list_replicas(self._client, ServerJob(kind.resource, job))
        verdict = verdict_of(job, pods, diagnosis)
        history = msgspec.structs.replace(await self._history(job, pods), first_replica=verdict.first_replica)
        templates = self._templates(job, pods)
        config_maps = await self._config_maps(templates, job["metadata"]["namespace"])
        code, source = self._code(templates, config_maps)
        for body in (job, *pods):
            self._scrubber.add_values(body)
        self._note_secrets(templates)
        clean = self._scrubber
        carriers = {carrier_name(spec) for spec in templates}
        name = job["metadata"]["name"]
        return JobBundle(
            job=clean.object(job, "the job"),
            verdict=msgspec.convert(clean.object(msgspec.to_builtins(verdict), "the verdict"), type=RecordedVerdict),
            faults=recorded_faults(history),
            replicas=tuple(
                msgspec.structs.replace(one, log=clean.lines(one.log, f"the log of {one.name}"))
                for one in replica_records(history)
            ),
            pods=tuple(clean.object(pod, "the pods") for pod in pods),
            events=tuple(clean.object(event, "an event") for event in await self._events(job, pods)),
            config_maps=tuple(
                clean.config_map(one) for one in config_maps.values() if one["metadata"]["name"] not in carriers
            ),
            diagnosis=clean.object(msgspec.to_builtins(diagnosis), "the verdict"),
            code=clean.code(code),
            # Last: everything above adds to what is left out.
            manifest=Manifest(
                version=BUNDLE_VERSION,
                made_by=request.made_by,
                recorded_at=self._clock.now(),
                kind=kind.resource.kind,
                namespace=job["metadata"]["namespace"],
                name=name,
                code=source,
                left_out=clean.left_out,
            ),
        )

    def _templates(self, job: JSON, pods: Sequence[JSON]) -> list[JSON]:
        """The pod specs of the job, and of the pods: an admission webhook may have added to them."""
        specs = [((one or {}).get("template") or {}).get("spec") for one in replica_specs(job).values()]
        return [spec for spec in (*specs, *(pod.get("spec") for pod in pods)) if isinstance(spec, dict)]

    async def _history(self, job: JSON, pods: Sequence[JSON]) -> JobHistory:
        logs: dict[str, Sequence[str]] = {}
        previous: dict[str, Sequence[str]] = {}

        async def read(pod: JSON) -> None:
            name = pod["metadata"]["name"]
            logs[name] = await self._log(job, pod)
            if restart_count(pod):
                previous[name] = await self._log(job, pod, previous=True)

        await run_all((read(pod) for pod in pods), at_once=LOGS_AT_ONCE)
        return JobHistory(job, tuple(pods), logs, previous)

    async def _log(self, job: JSON, pod: JSON, *, previous: bool = False) -> tuple[str, ...]:
        key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
        reading = PodSubresources(self._client).logs(
            key, container=container_name(pod), tail=LOG_LINES, previous=previous, limit_bytes=LOG_BYTES
        )
        try:
            async with aclosing(reading) as lines:
                return tuple([line.decode(errors="replace") async for line in lines])
        except (NotFound, BadRequest):
            return ()
        except KubeError as error:
            self._scrubber.note(f"the log of {replica_of(job, pod)}", _line(error))
            return ()

    async def _events(self, job: JSON, pods: Sequence[JSON]) -> list[JSON]:
        uids, job_name = {one["metadata"].get("uid") for one in (job, *pods)}, job["metadata"]["name"]
        try:
            bodies = [
                one async for one in self._client.iterate(EVENTS, Selector(namespace=job["metadata"]["namespace"]))
            ]
        except KubeError as error:
            self._scrubber.note("events", _line(error))
            return []

        def is_about(event: JSON) -> bool:
            about = event.get("involvedObject") or event.get("regarding") or {}
            # Of a pod that is gone only the name is known.
            is_pod = about.get("kind") == "Pod" and str(about.get("name", "")).startswith(f"{job_name}-")
            return about.get("uid") in uids or is_pod

        return [event for event in bodies if is_about(event)]

    async def _config_maps(self, templates: Sequence[JSON], namespace: str) -> dict[str, JSON]:
        found: dict[str, JSON] = {}
        for name in sorted({name for spec in templates for name in config_map_names(spec)} - {"kube-root-ca.crt"}):
            try:
                found[name] = await self._client.get(CONFIG_MAPS, Key(namespace, name))
            except KubeError as error:
                self._scrubber.note(f"ConfigMap {name}", _line(error))
        return found

    def _code(self, templates: Sequence[JSON], config_maps: Mapping[str, JSON]) -> tuple[Mapping[str, CodeFile], str]:
        """The code, and where it comes from."""
        if self._request.folder is not None:
            return self._request.folder, "folder"
        for spec in templates:
            carrier = config_maps.get(carrier_name(spec))
            if carrier is not None:
                try:
                    return shipped_files(carrier, spec), "shipped"
                except (tarfile.TarError, OSError, ValueError, KeyError) as error:
                    self._scrubber.note("the code", f"ConfigMap {carrier_name(spec)} cannot be unpacked: {error}")
                    return {}, ""
        claims = sorted({claim for spec in templates if (claim := carrier_claim(spec))})
        if claims:
            self._scrubber.note("the code", f"it is in the claim {claims[0]}; add --code FOLDER with a copy of it")
        else:
            self._scrubber.note("the code", "it was not shipped by gangline; add --code FOLDER to pack it")
        return {}, ""

    def _note_secrets(self, templates: Sequence[JSON]) -> None:
        for spec in templates:
            for name, keys in secret_references(spec).items():
                named = f" ({', '.join(sorted(key for key in keys if key))})" if any(keys) else ""
                self._scrubber.note(f"Secret {name}{named}", "secrets are recorded by name only")
            for volume in spec.get("volumes") or ():
                claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
                if claim and volume.get("name") != "gangline-parcel":
                    self._scrubber.note(f"the data of claim {claim}", "volumes are not copied")
        images = sorted(
            {str(one.get("image")) for spec in templates for one in spec.get("containers") or () if one.get("image")}
        )
        self._scrubber.note(f"images: {', '.join(images)}", "images are recorded by name only")


def _line(error: KubeError) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
