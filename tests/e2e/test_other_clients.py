"""Other people's clients and operators, unmodified, on a plane that `gangline up` started.

What each does is in tests/clients; hack/clients.sh brings the packages and builds the controller. Each has a service
account with the roles in tests/data/roles: RBAC refuses what they lack, and the audit log shows what they need not have.
"""

import base64
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest
import trustme

from support.cluster.accounts import ProgramAccount
from support.cluster.clients import (
    CLIENTS_FOLDER,
    DetachedPlane,
    Kubectl,
    find_clients_python,
    find_go_client,
    find_kubeflow_python,
    find_tfjob_python,
    pythonpath_with_gangline,
)
from support.servers.real import free_ports
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("clients")]  # one plane for all of them


class Accounts:
    """A plane that records its requests, and the accounts of programs on it."""

    def __init__(self, folder: Path) -> None:
        self.plane, self._audit_log = DetachedPlane(folder / "plane"), folder / "audit.log"
        self.plane.up("--audit-log", self._audit_log)

    @contextmanager
    def running(self, program: str) -> Iterator[ProgramAccount]:
        """The account of a program. When the block ends, the program must have used all its rights."""
        account = ProgramAccount(self.plane, program, self._audit_log)
        yield account
        assert account.unused_rights() == []

    def run(self, program: str, script: str, *arguments: str, python: Path | None = None, **environment: str) -> str:
        """Run a script of tests/clients to its end. It checks what it sees, and fails if that is wrong."""
        with self.running(program) as account:
            done = subprocess.run(
                [python or find_clients_python(), CLIENTS_FOLDER / script, *arguments],
                capture_output=True,
                text=True,
                env={**account.environment, **environment},
                timeout=110,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    find_clients_python()
    found = Accounts(tmp_path_factory.mktemp("accounts"))
    yield found
    found.plane.down()


def test_the_official_python_client(accounts: Accounts) -> None:
    accounts.run("official", "official.py", "official")


def test_kr8s(accounts: Accounts) -> None:
    accounts.run("kr8s", "feels_like_kubectl.py", "kr8s", "system:serviceaccount:accounts:kr8s")


def test_an_operator_on_kopf(accounts: Accounts) -> None:
    accounts.run("kopf", "operator_in_kopf.py", "kopf")


def test_kubeflows_own_sdk(accounts: Accounts) -> None:
    arguments = ("kubeflow-sdk", "team", "kubeflow.training")
    accounts.run("kubeflow-sdk", "kubeflow_sdk.py", *arguments, python=find_kubeflow_python())


def test_code_written_for_it_changes_one_import(accounts: Accounts) -> None:
    told = accounts.run(
        "one-import",
        "kubeflow_sdk.py",
        "one-import",
        "alone",
        "gangline",
        python=find_kubeflow_python(),
        PYTHONPATH=pythonpath_with_gangline(),
    )
    assert told == "", "that code closes nothing, and must not hear of it"


@pytest.mark.parametrize("program", ["tfjob-sdk", "pytorchjob-sdk"])
def test_the_sdks_of_2020(accounts: Accounts, program: str) -> None:
    accounts.run(program, f"{program.replace('-', '_')}.py", "sdks-of-2020", python=find_tfjob_python())


def test_a_program_without_rights_is_refused(accounts: Accounts) -> None:
    kubectl = Kubectl(accounts.plane)
    kubectl("create", "serviceaccount", "powerless")
    refused = kubectl.run_failing("get", "secrets", "--as=system:serviceaccount:default:powerless")
    assert 'User "system:serviceaccount:default:powerless" cannot list resource "secrets"' in refused


@contextmanager
def controlling(account: ProgramAccount, namespace: str, log: Path, *accept: str) -> Iterator[IO[bytes]]:
    """Runs the controller, which accepts any media type or only one; gives its input, which ends it when closed."""
    command = [str(find_go_client("gocontroller")), namespace, *accept]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=account.environment
        ) as process,
    ):
        assert process.stdin is not None
        try:
            yield process.stdin
            process.stdin.close()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()


def test_a_controller_in_go_elects_a_leader_and_does_its_work(accounts: Accounts, tmp_path: Path) -> None:
    kubectl = Kubectl(accounts.plane, "mirror")
    with accounts.running("gocontroller") as account, ExitStack() as both:
        first = both.enter_context(controlling(account, "mirror", tmp_path / "first"))
        kubectl("create", "configmap", "early", "--from-literal=a=b")
        kubectl("label", "configmap", "early", "clients.example/mirrored=true")
        kubectl("wait", "--for=create", "secret/early", "--timeout=50s")
        leader = kubectl.get("lease", "mirror")["spec"]["holderIdentity"]
        assert leader

        secret = kubectl.get("secret", "early")
        assert secret["data"] == {"a": "Yg=="}
        (owner,) = secret["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("ConfigMap", "early", True)
        kubectl("patch", "configmap", "early", "-p", '{"data": {"a": "c"}}')
        kubectl("wait", "secret/early", "--for=jsonpath={.data.a}=Yw==", "--timeout=50s")
        kubectl("delete", "secret", "early")
        kubectl("wait", "--for=create", "secret/early", "--timeout=50s")

        both.enter_context(controlling(account, "mirror", tmp_path / "second", "application/vnd.kubernetes.protobuf"))
        first.close()
        kubectl("create", "configmap", "late")
        kubectl("label", "configmap", "late", "clients.example/mirrored=true")
        kubectl("wait", "--for=create", "secret/late", "--timeout=50s")
        assert kubectl.get("lease", "mirror")["spec"]["holderIdentity"] not in ("", leader)

        kubectl("delete", "configmap", "early")
        kubectl("wait", "secret/early", "--for=delete", "--timeout=50s")


WEBHOOK_RULES = [
    {
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
]


def webhook_configuration(kind: str, name: str, port: int, bundle: str) -> dict[str, object]:
    """What controller-gen writes for a webhook, for ConfigMaps with a label."""
    webhook = {
        "name": f"{name}.clients.example",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://127.0.0.1:{port}/{name}--v1-configmap", "caBundle": bundle},
        "objectSelector": {"matchLabels": {"clients.example/checked": "true"}},
        "rules": WEBHOOK_RULES,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def test_webhooks_in_go_set_defaults_and_refuse(accounts: Accounts, tmp_path: Path) -> None:
    ca, (port,) = trustme.CA(), free_ports(1)
    leaf = ca.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    leaf.private_key_pem.write_to_path(tmp_path / "tls.key")
    bundle = base64.b64encode(ca.cert_pem.bytes()).decode()
    kubectl = Kubectl(accounts.plane, "checked")
    kubectl("create", "namespace", "checked")
    command = [str(find_go_client("gowebhook")), str(tmp_path), str(port)]
    environment = {**accounts.plane.environment, "KUBECONFIG": str(accounts.plane.kubeconfig)}
    with (
        (tmp_path / "log").open("wb") as output,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment) as process,
    ):
        assert process.stdin is not None
        try:
            wait_until_blocking(
                lambda: b"Serving webhook server" in (tmp_path / "log").read_bytes(), "the webhooks do not serve"
            )
            for kind, name in (("Mutating", "mutate"), ("Validating", "validate")):
                stored = webhook_configuration(f"{kind}WebhookConfiguration", name, port, bundle)
                kubectl("apply", "-f", "-", stdin=stored)
            labels = {"clients.example/checked": "true"}
            config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": labels}}
            kubectl("apply", "-f", "-", stdin=config)
            assert kubectl.get("configmap", "c")["data"] == {"size": "1"}
            refused = kubectl.run_failing("apply", "-f", "-", stdin={**config, "data": {"size": "many"}})
            assert 'admission webhook "validate.clients.example" denied the request: size is no number' in refused
            warned = kubectl.run("apply", "-f", "-", stdin={**config, "data": {"size": "10", "keep": "true"}})
            assert (warned.returncode, "Warning: sizes above 9 are slow" in warned.stderr) == (0, True)
            assert "the name never changes" in kubectl.run_failing("patch", "cm", "c", "-p", '{"data": {"name": "x"}}')
            assert "it is to be kept" in kubectl.run_failing("delete", "configmap", "c")
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
            for name in ("mutatingwebhookconfiguration/mutate", "validatingwebhookconfiguration/validate"):
                kubectl("delete", name, "--ignore-not-found")
