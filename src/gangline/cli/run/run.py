"""Runs a `RunRequest`: reads its jobs, then runs them on this machine or in a cluster."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerOptions
from gangline.cli.run.request import JobSource, RunJob, RunRequest, check_unique_names

TTL_AFTER_FINISHED = 24 * 3600
"""For so many seconds a job made from a command stays in a cluster after it has finished."""


def run_request(request: RunRequest) -> int:
    """Read the jobs, run and follow them, print the results; returns the exit code.

    Raises `InputError` for bad input before anything is started.
    """
    jobs = _read_jobs(request.source, request.server)
    check_unique_names(jobs)
    # Imported here, not at the top: the command line must start fast and report mistakes at once.
    import gc

    # The imports below make no garbage, and looking for it takes a tenth of their time.
    gc.disable()
    if request.server.context is not None:
        from gangline.cli.run.remote import run_remote as run_jobs
    else:
        from gangline.cli.run.local import run_local as run_jobs
    gc.freeze()
    gc.enable()
    return run_jobs(request, jobs)


def _read_jobs(source: JobSource, server: ServerOptions) -> Sequence[RunJob]:
    if source.files:
        return [job for file in source.files for job in _jobs_in_file(file, source.settings)]
    return [_job_from_command(source, server)]


def _jobs_in_file(file: Path, settings: Sequence[str]) -> Iterator[RunJob]:
    from gangline.cli.manifests.jobs import read_jobs_and_others

    jobs, others = read_jobs_and_others(file, settings)
    for number, (kind, document) in enumerate(jobs):
        # The dependencies of a file are created once, before its first job.
        dependencies = others if number == 0 else ()
        yield RunJob(kind, document.body, file.parent.resolve(), document=document, dependencies=dependencies)


def _job_from_command(source: JobSource, server: ServerOptions) -> RunJob:
    from gangline.cli.manifests.from_command import LOCAL_IMAGE, job_from_command
    from gangline.cli.manifests.overrides import with_overrides

    remote = server.context is not None
    if remote and not source.image and not _is_local_plane(server):
        raise InputError("--context: a command in a cluster needs an image; add --image IMAGE")
    if not remote:
        check_script(source.command)
    image = source.image or LOCAL_IMAGE
    kind, body = job_from_command(source.kind, source.command, source.nproc, image=image, limits=source.limits)
    if remote:
        # As in a local run, no process outlives the job; but the job can be inspected for a while.
        body["spec"]["runPolicy"] = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": TTL_AFTER_FINISHED}
    return RunJob(kind, with_overrides(body, source.settings), Path.cwd(), from_command=True)


def check_script(command: Sequence[str]) -> None:
    """Raise `InputError` if the Python script of the command does not exist: every process would fail with that."""
    interpreter, script = Path(command[0]).name if command else "", command[1] if len(command) > 1 else ""
    if interpreter.startswith("python") and script.endswith(".py") and not Path(script).exists():
        raise InputError(f"{script}: no such file; processes start in {Path.cwd()}")


def _is_local_plane(server: ServerOptions) -> bool:
    """Whether the context is the control plane of this machine, which runs processes and needs no images.

    Raises `ConfigError`.
    """
    from gangline.cli.connect.server import find_server

    target = find_server(server._replace(verbose=0))
    return target.plane_folder is not None or target.archive is not None
