"""Runs a `RunRequest`: reads its jobs, then runs them on this machine or in a cluster."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gangline.api.codec.documents import Document
from gangline.api.kubeflow.training import JobKind, RestartPolicy
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerOptions
from gangline.cli.run.request import JobSource, RunJob, RunRequest, check_unique_names

BUNDLE_SUFFIX = ".bundle"
SERVER_FIELDS = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")
TTL_AFTER_FINISHED = 24 * 3600
"""For so many seconds a job made from a command stays in a cluster after it has finished."""


def run_request(request: RunRequest) -> int:
    """Read the jobs, run and follow them, print the results; returns the exit code.

    Raises `InputError` for bad input before anything is started.
    """
    if bundle := _bundle_file(request):
        return _play_bundle(request, bundle)
    jobs = read_jobs(request.source, request.server)
    check_unique_names(jobs)
    return _run_jobs(request, jobs)


def _bundle_file(request: RunRequest) -> Path | None:
    """The bundle that the run is to play; None if it has none. Raises `InputError` for a bundle among other files."""
    source = request.source
    bundles = [file for file in source.files if _is_bundle_file(file)]
    if source.code is not None and not bundles:
        raise InputError("--code: is the code of a bundle; without one, a job finds its programs by itself")
    if not bundles:
        return None
    if len(source.files) > 1:
        raise InputError(f"{bundles[0]}: is a bundle, and is played alone; leave the other files out")
    if request.server.context is not None:
        raise InputError(f"{bundles[0]}: is a bundle, and is played on this machine; leave --context out")
    if source.settings or source.max_restarts is not None:
        option = "--set" if source.settings else "--max-restarts"
        raise InputError(f"{option}: a bundle is played as it was recorded; leave {option} out")
    return bundles[0]


def _is_bundle_file(file: Path) -> bool:
    """Whether a file is a bundle, by its name or its first bytes: those of a zip file."""
    if file.suffix == BUNDLE_SUFFIX:
        return True
    try:
        with file.open("rb") as opened:
            return opened.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def _play_bundle(request: RunRequest, file: Path) -> int:
    from gangline.cli.replay.play import prepared_replay

    with prepared_replay(file, request.source.code) as replay:
        dependencies = tuple(Document(body, {}) for body in replay.local.objects)
        job = RunJob(replay.kind, replay.local.job, replay.folder, dependencies=dependencies)
        return _run_jobs(request._replace(replay=replay), [job])


def _run_jobs(request: RunRequest, jobs: Sequence[RunJob]) -> int:
    # Imported here, not at the top: the command line must start fast and report mistakes at once.
    import gc

    # The imports below make no garbage, and looking for it takes a tenth of their time.
    gc.disable()
    if request.server.context is not None:
        from gangline.cli.run.remote import run_remote as run_jobs
    else:
        with _without_authorities():
            from gangline.cli.run.local import run_local as run_jobs
    gc.freeze()
    gc.enable()
    return run_jobs(request, jobs)


@contextmanager
def _without_authorities() -> Iterator[None]:
    """Let aiohttp be imported without reading all the authorities that this machine trusts, as it does by itself.

    That is a tenth of the start of a run, whose clients talk to this machine alone. Programs of the run see no change.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    saved = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def read_jobs(source: JobSource, server: ServerOptions) -> Sequence[RunJob]:
    """The jobs of the files, or the one of the command. Raises `InputError`."""
    if source.files:
        return [job for file in source.files for job in _jobs_in_file(file, source)]
    return [_job_from_command(source, server)]


def _jobs_in_file(file: Path, source: JobSource) -> Iterator[RunJob]:
    from gangline.cli.manifests.jobs import read_jobs_and_others

    settings = source.settings
    if source.max_restarts is not None:
        settings = (*settings, f"spec.runPolicy.backoffLimit={source.max_restarts}")
    jobs, others = read_jobs_and_others(file, settings)
    for number, (kind, document) in enumerate(jobs):
        if source.max_restarts:
            check_restart_policies(kind, document)
        # The dependencies of a file are created once, before its first job.
        dependencies = others if number == 0 else ()
        document = msgspec.structs.replace(document, body=without_server_fields(document.body))
        yield RunJob(kind, document.body, file.parent.resolve(), document=document, dependencies=dependencies)


def without_server_fields(body: JSON) -> JSON:
    """The job without what a server has added, as `kubectl get -o yaml` prints it."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in SERVER_FIELDS}
    return {**{name: value for name, value in body.items() if name != "status"}, "metadata": metadata}


def check_restart_policies(kind: JobKind, document: Document) -> None:
    """Raise `InputError` if no replica of the job would ever be restarted."""
    replicas = document.body["spec"].get(kind.replicas) or {}
    policies = [spec.get("restartPolicy") or kind.restart_policy for spec in replicas.values()]
    if policies and all(policy == RestartPolicy.NEVER for policy in policies):
        path = f"spec.{kind.replicas}.{next(iter(replicas))}.restartPolicy"
        raise document.error(
            f"is Never, so that --max-restarts does nothing; write OnFailure, or add --set {path}=OnFailure",
            tuple(path.split(".")),
        )


def _job_from_command(source: JobSource, server: ServerOptions) -> RunJob:
    from gangline.cli.manifests.from_command import CommandJob, job_from_command, parse_limits
    from gangline.cli.manifests.overrides import with_overrides
    from gangline.cli.manifests.processes import Machine, process_count
    from gangline.node.settings import LOCAL_IMAGE

    if server.context is None:
        return _local_job_from_command(source)
    if not source.image and not _is_local_plane(server):
        raise InputError("--context: a command in a cluster needs an image; add --image IMAGE")
    if source.nproc in ("auto", "cpu", "gpu"):
        raise InputError(f"--nproc {source.nproc}: is about this machine; with --context write a number")
    machine = Machine()
    kind, body = job_from_command(
        CommandJob(
            source.kind,
            source.command,
            process_count(source.nproc, machine),
            source.image or LOCAL_IMAGE,
            parse_limits(source.limits, machine),
            max_restarts=source.max_restarts,
        )
    )
    # As in a local run, no process outlives the job; but the job can be inspected for a while.
    policy = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": TTL_AFTER_FINISHED}
    body["spec"]["runPolicy"] = {**body["spec"].get("runPolicy", {}), **policy}
    return RunJob(kind, with_overrides(body, source.settings), Path.cwd(), from_command=True)


def _local_job_from_command(source: JobSource) -> RunJob:
    """The job of a command for the processes, cores and GPUs of this machine."""
    from gangline.cli.manifests.from_command import (
        CommandJob,
        job_from_command,
        limits_with_gpu,
        parse_limits,
        process_env,
    )
    from gangline.cli.manifests.overrides import with_overrides
    from gangline.cli.manifests.processes import process_count, this_machine
    from gangline.cli.run.programs import check_command_files
    from gangline.node.settings import LOCAL_IMAGE

    machine = this_machine()
    processes = process_count(source.nproc, machine)
    request = CommandJob(
        source.kind,
        source.command,
        processes,
        source.image or LOCAL_IMAGE,
        limits_with_gpu(parse_limits(source.limits, machine), processes.most, machine),
        process_env(processes.most, machine, os.environ),
        source.max_restarts,
    )
    kind, body = job_from_command(request)
    if not source.image:
        check_command_files(source.command)
    return RunJob(kind, with_overrides(body, source.settings), Path.cwd(), from_command=True)


def _is_local_plane(server: ServerOptions) -> bool:
    """Whether the context is the control plane of this machine, which runs processes and needs no images.

    Raises `ConfigError`.
    """
    from gangline.cli.connect.server import find_server

    target = find_server(server._replace(verbose=0))
    return target.plane_folder is not None or target.archive is not None
