"""Pod security: policies of namespaces, single checks, and annotations of audit events."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gangline.api.meta import Key
from gangline.apiserver.admission.security import LABEL_PREFIX
from gangline.apiserver.admission.security.baseline import PodTemplate
from gangline.apiserver.admission.security.decisions import MAX_CHECKED_PODS, existing_pod_warnings
from gangline.apiserver.admission.security.policy import (
    LeveledVersion,
    SecurityLevel,
    SecurityPolicy,
    namespace_policy,
)
from gangline.apiserver.admission.security.standards import details_text, violations
from gangline.apiserver.errors import StatusError
from gangline.base.clock import SystemClock
from support.servers.plane import TEST_CALL, RegistryHarness, registry_harness

JSON = dict[str, Any]
BASELINE, RESTRICTED = LeveledVersion(SecurityLevel.BASELINE), LeveledVersion(SecurityLevel.RESTRICTED)
SAFE: JSON = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "capabilities": {"drop": ["ALL"]},
}


def policy(**labels: str) -> SecurityPolicy:
    found, problems = namespace_policy(
        {f"{LABEL_PREFIX}{name.replace('_', '-')}": text for name, text in labels.items()}
    )
    assert problems == []
    return found


def test_without_labels_everything_is_allowed() -> None:
    assert namespace_policy(None) == namespace_policy({"a": "b"}) == (SecurityPolicy(), [])
    assert SecurityPolicy().is_privileged


def test_a_level_that_is_enforced_is_warned_of_too() -> None:
    assert policy(enforce="baseline", enforce_version="v1.20").warn == LeveledVersion(SecurityLevel.BASELINE, 20)
    assert policy(enforce="baseline", warn="privileged").warn == LeveledVersion()
    assert policy(enforce="baseline", warn_version="v1.9").warn == LeveledVersion(SecurityLevel.BASELINE, 9)


def test_invalid_labels_are_the_strictest_and_warn_of_nothing() -> None:
    labels = {f"{LABEL_PREFIX}{name}": "x" for name in ("enforce", "audit", "warn", "warn-version")}
    found, problems = namespace_policy(labels)
    assert found == SecurityPolicy(enforce=RESTRICTED)
    assert [problem.field for problem in problems] == [
        f"metadata.labels[{LABEL_PREFIX}{name}]" for name in ("enforce", "audit", "warn", "warn-version")
    ]


@pytest.mark.parametrize("version", ["v1.01", "v2.1", "v1.", "1.2", "v1.2\n", "v1.99999999999999999999", ""])
def test_invalid_versions(version: str) -> None:
    assert len(namespace_policy({f"{LABEL_PREFIX}audit-version": version})[1]) == 1


def details(level: LeveledVersion, *containers: JSON, annotations: JSON | None = None, **spec: Any) -> str:
    names = [{"name": f"c{index}", **item} for index, item in enumerate(containers or ({},))]
    template = PodTemplate({"annotations": annotations or {}}, {"containers": names, **spec})
    return details_text(violations(level, template))


@pytest.mark.parametrize(
    ("container", "detail"),
    [
        (
            {"ports": [{"hostPort": 9090}, {"hostPort": 80}]},
            'hostPort (container "c0" uses hostPorts 80, 9090)',
        ),
        (
            {"livenessProbe": {"httpGet": {"host": "h"}}, "lifecycle": {"preStop": {"tcpSocket": {"host": "g"}}}},
            'probe or lifecycle host (container "c0" uses probe or lifecycle hosts "g", "h")',
        ),
        (
            {"securityContext": {"procMount": "Unmasked"}},
            'procMount (container "c0" must not set securityContext.procMount to "Unmasked")',
        ),
        (
            {"securityContext": {"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}},
            'non-default capabilities (container "c0" must not include "SYS_ADMIN" in securityContext.capabilities.add)',
        ),
        (
            {"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u", "role": "r"}}},
            (
                'seLinuxOptions (container "c0" set forbidden securityContext.seLinuxOptions: type "spc_t"; '
                "user may not be set; role may not be set)"
            ),
        ),
        (
            {"securityContext": {"windowsOptions": {"hostProcess": True}}},
            'hostProcess (container "c0" must not set securityContext.windowsOptions.hostProcess=true)',
        ),
    ],
)
def test_checks_of_the_baseline_level(container: JSON, detail: str) -> None:
    assert details(BASELINE, container) == detail


def test_pod_and_containers_are_named_together() -> None:
    context = {"seccompProfile": {"type": "Unconfined"}, "appArmorProfile": {"type": "Unconfined"}}
    found = details(BASELINE, {"securityContext": context}, securityContext=context)
    assert found == (
        'forbidden AppArmor profile (pod and container "c0" must not set AppArmor profile type to "Unconfined"), '
        'seccompProfile (pod and container "c0" must not set securityContext.seccompProfile.type to "Unconfined")'
    )


def test_annotations_that_older_versions_look_at() -> None:
    annotations = {
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
        "container.apparmor.security.beta.kubernetes.io/c0": "unconfined",
    }
    assert details(LeveledVersion(SecurityLevel.BASELINE, 18), annotations=annotations) == (
        "forbidden AppArmor profile (annotation must not set AppArmor profile type to "
        '"container.apparmor.security.beta.kubernetes.io/c0="unconfined""), '
        'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")'
    )


def test_sysctls_that_newer_versions_allow() -> None:
    names = (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_rmem",
    )
    context = {"sysctls": [{"name": name} for name in names]}
    refused = {
        minor: details(LeveledVersion(SecurityLevel.BASELINE, minor), securityContext=context)
        for minor in (26, 27, 29, 32, 99)
    }
    assert refused == {
        26: f"forbidden sysctls ({', '.join(names[1:])})",
        27: f"forbidden sysctls ({', '.join(names[2:])})",
        29: f"forbidden sysctls ({names[3]})",
        32: "",
        99: "",
    }


def test_a_safe_pod_is_allowed_everywhere() -> None:
    assert details(RESTRICTED, {"securityContext": SAFE}) == ""


def test_a_windows_pod_needs_no_linux_settings_since_1_25() -> None:
    windows: JSON = {"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": True}}
    assert details(RESTRICTED, **windows) == ""
    assert "allowPrivilegeEscalation" in details(LeveledVersion(SecurityLevel.RESTRICTED, 24), **windows)


def test_the_first_of_each_controllers_pods_are_checked_first() -> None:
    def pod(number: int, controller: str) -> JSON:
        owner = [{"uid": controller, "controller": True}] if controller else []
        metadata = {"name": f"p{number:05}", "ownerReferences": owner}
        return {"metadata": metadata, "spec": {"containers": [], "hostPID": not controller}}

    pods = [*(pod(number, "a") for number in range(MAX_CHECKED_PODS + 5)), pod(99999, "")]
    assert existing_pod_warnings("ns", BASELINE, pods) == [
        "new PodSecurity enforce level only checked against the first 3000 of 3006 existing pods",
        'existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest"',
        "p99999: host namespaces",
    ]


async def label_namespace(harness: RegistryHarness, **labels: str) -> None:
    def change(old: JSON | None) -> JSON:
        assert old is not None
        prefixed = {f"{LABEL_PREFIX}{name}": text for name, text in labels.items()}
        return {**old, "metadata": {**old["metadata"], "labels": prefixed}}

    await harness.registry.update(TEST_CALL, harness.entry("namespaces"), Key("", "ns"), change)


@pytest.fixture
async def harness() -> AsyncIterator[RegistryHarness]:
    async with registry_harness(SystemClock()) as made:
        await label_namespace(made, enforce="baseline", audit="restricted")
        yield made


async def test_audit_events_say_which_policy_was_enforced_and_what_violates_the_other(harness: RegistryHarness) -> None:
    annotations: dict[str, str] = {}
    call = msgspec.structs.replace(TEST_CALL, audit_annotations=annotations)
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x", "securityContext": SAFE}]}}
    await harness.create("pods", body, call=call)
    assert annotations == {f"{LABEL_PREFIX}enforce-policy": "baseline:latest"}
    body = {"metadata": {"name": "q"}, "spec": {"containers": [{"name": "c", "image": "x"}], "hostPID": True}}
    with pytest.raises(StatusError, match="host namespaces"):
        await harness.create("pods", body, call=call)
    audited = annotations[f"{LABEL_PREFIX}audit-violations"]
    assert audited.startswith('would violate PodSecurity "restricted:latest": host namespaces (hostPID=true), allow')


async def test_updates_are_checked_only_if_an_image_changes(harness: RegistryHarness) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    pod = await harness.create("pods", body)
    await label_namespace(harness, enforce="restricted")
    labelled = await harness.put("pods", {**pod, "metadata": {**pod["metadata"], "labels": {"a": "b"}}})
    labelled["spec"]["containers"][0]["image"] = "y"
    with pytest.raises(StatusError, match="violates PodSecurity"):
        await harness.put("pods", labelled)
