"""Which pods belong to a job."""

import pytest

from gangline.api.meta import JSON
from gangline.summary.objects import JOB_KINDS, ServerJob
from gangline.summary.replicas import owns_pod

JOB = ServerJob(JOB_KINDS[3], {"metadata": {"name": "pi", "namespace": "default", "uid": "u1"}})


@pytest.mark.parametrize(
    ("owners", "belongs"),
    [
        ([], True),
        ([{"kind": "MPIJob", "name": "pi", "uid": "u1"}], True),
        ([{"kind": "MPIJob", "name": "pi", "uid": "u0"}], False),
        ([{"kind": "Job", "name": "pi-launcher", "uid": "j1"}], True),
        ([{"kind": "Job", "name": "other", "uid": "j2"}], False),
    ],
    ids=["nobody's", "its own", "an earlier job's", "of its launcher", "of another Job"],
)
def test_a_pod_belongs_to_the_job_that_owns_it_or_its_launcher(owners: list[JSON], belongs: bool) -> None:
    assert owns_pod(JOB, {"metadata": {"name": "p", "ownerReferences": owners}}) is belongs
