"""The control plane: its network, its programs, its DNS. Runs as the first process of the cluster's namespaces."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from support.nodes.layout import API_SERVER, DNS_SERVICE, GATEWAY, NODES, SERVICE_RANGE, USERS, Layout, NodeAddress
from support.nodes.processes import reap_for_ever, run, start, succeeds, wait_for

# Nodes are lost in seconds, not minutes: a node that is silent for so long is not ready, and its pods leave soon after.
GRACE_SECONDS = 20
TOLERATION_SECONDS = 5

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}

COREFILE = f"""
cluster.local in-addr.arpa ip6.arpa {{
  bind {GATEWAY}
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig KUBECONFIG
  }}
}}
. {{
  bind {GATEWAY}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""


def serve(layout: Layout) -> None:
    """Start everything, say so in the file `ready`, and go on until killed."""
    _hide_system_folders(layout)
    _make_network(layout)
    _write_files(layout)
    _start_servers(layout)
    _start_dns(layout)
    for node in NODES:
        start_node(layout, node)
    for node in NODES:
        wait_for_node(layout, node.name)
    # No pod can be made without it.
    kubectl = (layout.program("kubectl"), f"--kubeconfig={layout.kubeconfig_of('setup')}")
    wait_for(
        "the default service account",
        lambda: succeeds(layout, *kubectl, "get", "serviceaccount", "default"),
        layout.logs / "kube-controller-manager.log",
    )
    (layout.folder / "ready").touch()
    reap_for_ever()


def start_node(layout: Layout, node: NodeAddress) -> None:
    """Power a node on. Its first process is in the pid file of the node; ending it powers the node off."""
    enter = ["nsenter", f"--net=/run/netns/{node.name}"]
    private = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "slave", "--kill-child"]
    module = [sys.executable, "-m", "support.nodes", "node", str(layout.folder), node.name]
    (layout.pids / node.name).unlink(missing_ok=True)
    shell = start(layout, f"{node.name}-start", [*enter, *private, *module])
    first = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")
    log = layout.logs / f"{node.name}-start.log"
    wait_for(f"node {node.name}", lambda: bool(first.read_text().split()), log, shell)
    (layout.pids / node.name).write_text(first.read_text().split()[0])


def wait_for_node(layout: Layout, name: str) -> None:
    """Return when the node is ready."""
    words = (layout.program("kubectl"), f"--kubeconfig={layout.kubeconfig_of('setup')}", "wait", "--timeout=1s")
    wait_for(
        f"node {name}",
        lambda: succeeds(layout, *words, "--for=condition=Ready", f"node/{name}"),
        layout.logs / f"{name}-kubelet.log",
    )


def _hide_system_folders(layout: Layout) -> None:
    """/run of our own, and name lookups that ask our DNS server only."""
    resolver = Path("/etc/resolv.conf").resolve()
    run(layout, "mount", "-t", "tmpfs", "tmpfs", "/run")
    (layout.folder / "resolv.conf").write_text(f"nameserver {GATEWAY}\noptions timeout:1\n")
    if resolver.is_relative_to("/run"):
        resolver.parent.mkdir(parents=True, exist_ok=True)
        resolver.touch()
    if resolver.exists():
        run(layout, "mount", "--bind", layout.folder / "resolv.conf", resolver)


def _make_network(layout: Layout) -> None:
    """A bridge with the control plane's address, and a cable from it to each node's own network namespace."""
    Path("/run/netns").mkdir()
    for command in (
        "ip link set lo up",
        "ip link add nodes type bridge",
        f"ip addr add {GATEWAY}/24 dev nodes",
        "ip link set nodes up",
    ):
        run(layout, *command.split())
    for node in NODES:
        inside = f"ip -netns {node.name}"
        others = [other for other in NODES if other != node]
        for command in (
            f"ip netns add {node.name}",
            f"ip link add {node.link} type veth peer name eth0 netns {node.name}",
            f"ip link set {node.link} master nodes",
            f"ip link set {node.link} up",
            f"{inside} link set lo up",
            f"{inside} addr add {node.address}/24 dev eth0",
            f"{inside} link set eth0 up",
            f"{inside} route add default via {GATEWAY}",
            f"ip route add {node.pods} via {node.address}",
            *(f"{inside} route add {other.pods} via {other.address}" for other in others),
        ):
            run(layout, *command.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _write_files(layout: Layout) -> None:
    key = layout.folder / "accounts.key"
    run(layout, "openssl", "genrsa", "-out", key, "2048")
    rows = [f'{name}-token,{user},{name},"{group}"' for name, (user, group) in USERS.items()]
    (layout.folder / "tokens.csv").write_text("\n".join(rows) + "\n")
    (layout.folder / "audit.yaml").write_text(json.dumps(AUDIT_POLICY))
    for name in USERS:
        layout.kubeconfig_of(name).write_text(json.dumps(_kubeconfig(layout, name)))


def _kubeconfig(layout: Layout, user: str) -> dict[str, object]:
    certificate = str(layout.authority)
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "nodes", "cluster": {"server": API_SERVER, "certificate-authority": certificate}}],
        "users": [{"name": user, "user": {"token": f"{user}-token"}}],
        "contexts": [{"name": "nodes", "context": {"cluster": "nodes", "user": user}}],
        "current-context": "nodes",
    }


def _start_servers(layout: Layout) -> None:
    server = _start_gangline(layout) if layout.server == "gangline" else _start_kube_apiserver(layout)
    kubectl = (layout.program("kubectl"), f"--kubeconfig={layout.kubeconfig_of('setup')}")
    wait_for(
        layout.server,
        lambda: succeeds(layout, *kubectl, "get", "--raw", "/readyz"),
        layout.logs / f"{layout.server}.log",
        server,
    )
    if layout.server == "gangline":
        # It has no Node authorizer: every node may do what one of them may.
        run(
            layout,
            *kubectl,
            "create",
            "clusterrolebinding",
            "nodes",
            "--clusterrole=system:node",
            "--group=system:nodes",
        )
    _start_controllers(layout)


def _start_gangline(layout: Layout) -> "subprocess.Popen[bytes]":
    """Our server in the place of kube-apiserver and etcd: no node, no scheduler, no operator."""
    without = ("--no-node", "--operator=none", "--no-warnings", "--no-dashboard", "--no-history")
    address = (f"--bind={GATEWAY}", f"--port={urlsplit(API_SERVER).port}", f"--dir={layout.folder / 'plane'}")
    files = {
        "token-auth-file": layout.folder / "tokens.csv",
        "audit-policy-file": layout.folder / "audit.yaml",
        "audit-log-path": layout.audit_log,
    }
    flags = [f"--{name}={path}" for name, path in files.items()]
    return start(layout, "gangline", [sys.executable, "-m", "gangline", "up", *address, *without, *flags])


def _start_kube_apiserver(layout: Layout) -> "subprocess.Popen[bytes]":
    start(layout, "etcd", [layout.program("etcd"), f"--data-dir={layout.folder / 'etcd'}", "--unsafe-no-fsync"])
    return start(
        layout,
        "kube-apiserver",
        [
            layout.program("kube-apiserver"),
            "--etcd-servers=http://127.0.0.1:2379",
            f"--advertise-address={GATEWAY}",
            f"--cert-dir={layout.folder / 'api'}",
            f"--token-auth-file={layout.folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            # Webhooks are called at the addresses of their pods: there is no kube-proxy where the server runs.
            "--enable-aggregator-routing=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={layout.folder / 'accounts.key'}",
            f"--service-account-signing-key-file={layout.folder / 'accounts.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--default-not-ready-toleration-seconds={TOLERATION_SECONDS}",
            f"--default-unreachable-toleration-seconds={TOLERATION_SECONDS}",
            f"--audit-policy-file={layout.folder / 'audit.yaml'}",
            f"--audit-log-path={layout.audit_log}",
            *layout.gate_flags,
        ],
    )


def _start_controllers(layout: Layout) -> None:
    # gangline signs the tokens of service accounts with a key of its own.
    key = [f"--service-account-private-key-file={layout.folder / 'accounts.key'}"]
    start(
        layout,
        "kube-controller-manager",
        [
            layout.program("kube-controller-manager"),
            f"--kubeconfig={layout.kubeconfig_of('controller-manager')}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--cert-dir={layout.folder / 'controller-manager'}",
            *([] if layout.server == "gangline" else key),
            f"--root-ca-file={layout.authority}",
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={GRACE_SECONDS}s",
            *layout.gate_flags,
        ],
    )
    start(
        layout,
        "kube-scheduler",
        [
            layout.program("kube-scheduler"),
            f"--kubeconfig={layout.kubeconfig_of('scheduler')}",
            f"--authentication-kubeconfig={layout.kubeconfig_of('scheduler')}",
            f"--authorization-kubeconfig={layout.kubeconfig_of('scheduler')}",
            "--leader-elect=false",
            f"--cert-dir={layout.folder / 'scheduler'}",
            *layout.gate_flags,
        ],
    )


def _start_dns(layout: Layout) -> None:
    """CoreDNS as a process, behind the usual Service."""
    corefile = layout.folder / "Corefile"
    corefile.write_text(COREFILE.replace("KUBECONFIG", f"{layout.kubeconfig_of('coredns')} nodes"))
    start(layout, "coredns", [layout.program("coredns"), "-conf", corefile])
    ports = [("dns", 53, "UDP"), ("dns-tcp", 53, "TCP")]
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {
                "clusterIP": DNS_SERVICE,
                "ports": [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [GATEWAY]}],
            "ports": [{"name": name, "port": port, "protocol": protocol} for name, port, protocol in ports],
        },
    ]
    words: list[str | Path] = [
        layout.program("kubectl"),
        f"--kubeconfig={layout.kubeconfig_of('setup')}",
        "create",
        "-f",
        "-",
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    env = {**os.environ, **layout.service_env()}
    subprocess.run(words, input=text, text=True, env=env, check=True, capture_output=True)
