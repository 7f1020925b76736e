"""What the switches of `gangline up` make of a plane."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.apiserver.registry.service_allocator import SERVICE_CIDR
from gangline.cli.flags.access_options import AccessOptions
from gangline.cli.flags.audit_options import AuditOptions
from gangline.cli.flags.backup_options import BackupOptions
from gangline.cli.flags.history_options import HistoryOptions
from gangline.cli.flags.node_options import NodeOptions
from gangline.cli.main import run
from gangline.cli.services.up_request import UpRequest
from gangline.local.cluster import LocalSettings
from gangline.local.home import PlaneHome


def request(**switches: Any) -> UpRequest:
    node, access = NodeOptions(runtime="process"), AccessOptions()
    backups, history = (
        BackupOptions(None, timedelta(minutes=10), 5),
        HistoryOptions(history=False, history_size=1, history_age=timedelta(days=1), history_mirror=""),
    )
    switches = {"gang": False, **switches}
    return UpRequest(
        "127.0.0.1",
        0,
        (),
        "fit",
        authorization="RBAC",
        node=node,
        access=access,
        audit=AuditOptions(),
        backups=backups,
        history=history,
        **switches,
    )


def settings(folder: Path, **switches: Any) -> LocalSettings:
    home = PlaneHome(folder)
    home.create_folder()
    return request(**switches).local_settings(home)


@pytest.mark.parametrize("options", [["--operator", "none", "--gang"], ["--conformance", "--gang"]])
def test_options_of_the_operator_need_one(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--dir", str(tmp_path), *options]) == 1
    assert capsys.readouterr().err.startswith("error: --gang: needs gangline's operator; leave out --gang or --")


def test_conformance_leaves_only_the_server(tmp_path: Path) -> None:
    made = settings(tmp_path, conformance=True)
    assert not made.node_enabled
    assert not made.plane.warn_on_inert_kinds
    assert made.plane.disabled_admission_plugins == ("ServiceAccount",)
    assert not request(conformance=True).runs_operator


def test_other_switches_leave_the_node(tmp_path: Path) -> None:
    made = settings(tmp_path, operator="none", warnings=False)
    assert made.node_enabled
    assert not made.plane.warn_on_inert_kinds
    assert made.plane.disabled_admission_plugins == ()
    assert not request(operator="none").runs_operator
    assert request().runs_operator


def test_no_node_leaves_pods_to_kubelets_that_reach_cluster_ips(tmp_path: Path) -> None:
    made = settings(tmp_path, runs_pods=False)
    assert not made.node_enabled
    assert made.service_cidr == SERVICE_CIDR
    assert made.plane.disabled_admission_plugins == ()
    assert "--no-node" in request(runs_pods=False).as_arguments()
    assert "--no-node" not in request().as_arguments()


def test_a_plane_in_the_background_gets_the_switches() -> None:
    given = request(operator="none", warnings=False, conformance=True).as_arguments()
    assert given[given.index("--operator") + 1] == "none"
    assert {"--no-warnings", "--conformance"} <= set(given)
    assert not {"--no-warnings", "--conformance"} & set(request().as_arguments())
