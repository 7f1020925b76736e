"""One node: containerd, kubelet and kube-proxy. Runs as the first process of the node's namespaces."""

import json
from pathlib import Path

from support.nodes.layout import DNS_SERVICE, NODES, Layout, NodeAddress
from support.nodes.machine import make_cgroup
from support.nodes.processes import reap_for_ever, run, start, succeeds, wait_for

SOCKET = "/run/containerd/containerd.sock"
PAUSE = "docker.io/gangline-test/pause:1"  # holds the namespaces of a pod
BUSYBOX = "gangline-test/busybox:1"  # for pods of tests that need no more than a shell
IMPORT = ("ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import")
# Of a size that a test can fill; what pods write to emptyDir volumes goes there.
KUBELET_DISK = "256m"


def node_address(name: str) -> NodeAddress:
    """The node of this name."""
    return next(node for node in NODES if node.name == name)


def serve(layout: Layout, node: NodeAddress) -> None:
    """Start the node's programs and go on until killed."""
    folder = layout.folder / node.name
    _make_disks(layout, folder)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    make_cgroup(layout.cgroup(node.name))
    _start_containerd(layout, node, folder)
    start_kubelet(layout, node)
    _start_proxy(layout, node, folder)
    reap_for_ever()


def start_kubelet(layout: Layout, node: NodeAddress) -> None:
    """Start the kubelet alone: after a test has ended it. To be called in the node's namespaces."""
    config = layout.folder / node.name / "kubelet.json"
    config.write_text(json.dumps(_kubelet_config(layout, node)))
    process = start(
        layout,
        f"{node.name}-kubelet",
        [
            layout.program("kubelet"),
            f"--config={config}",
            f"--kubeconfig={layout.kubeconfig_of(node.name)}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
        ],
    )
    Path("/run/kubelet.pid").write_text(str(process.pid))


def _make_disks(layout: Layout, folder: Path) -> None:
    """/run and /var of the node's own, and a small disk for the kubelet."""
    for name in ("containerd", "var", "var-work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    run(layout, "mount", "-t", "tmpfs", "tmpfs", "/run")
    overlay = f"lowerdir=/var,upperdir={folder / 'var'},workdir={folder / 'var-work'}"
    run(layout, "mount", "-t", "overlay", "overlay", "-o", overlay, "/var")
    Path("/var/lib/kubelet").mkdir(parents=True, exist_ok=True)
    run(layout, "mount", "-t", "tmpfs", "-o", f"size={KUBELET_DISK}", "tmpfs", "/var/lib/kubelet")
    run(layout, "mount", "--make-rshared", "/")


def _start_containerd(layout: Layout, node: NodeAddress, folder: Path) -> None:
    network = folder / "cni"
    network.mkdir(exist_ok=True)
    (network / "10-pods.conflist").write_text(json.dumps(_pod_network(node)))
    config = folder / "containerd.toml"
    config.write_text(_containerd_config(layout, folder, network))
    process = start(layout, f"{node.name}-containerd", ["containerd", "--config", config])
    log = layout.logs / f"{node.name}-containerd.log"
    wait_for("containerd", lambda: succeeds(layout, "ctr", "--address", SOCKET, "version"), log, process)
    run(layout, *IMPORT, layout.pause)
    run(layout, *IMPORT, layout.busybox)


def _pod_network(node: NodeAddress) -> dict[str, object]:
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods",
                "isGateway": True,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": node.pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _containerd_config(layout: Layout, folder: Path, network: Path) -> str:
    runc = next(path for path in (layout.packages / "usr" / name / "runc" for name in ("sbin", "bin")) if path.exists())
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    # Some machines forbid to lower oom scores. There is no AppArmor profile that a private /sys could load.
    return f"""version = 2
root = "{folder / "containerd"}"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[{cri}]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
[{cri}.cni]
  bin_dir = "{layout.packages / "usr" / "lib" / "cni"}"
  conf_dir = "{network}"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  SystemdCgroup = false
"""


def _kubelet_config(layout: Layout, node: NodeAddress) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup(node.name)}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # The disk of this machine may be as full as it likes; the kubelet's own is what tests fill.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "20%", "imagefs.available": "1%"},
        "evictionPressureTransitionPeriod": "10s",
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 12,
        "syncFrequency": "10s",
        "maxPods": 200,
        "featureGates": dict(layout.feature_gates),
    }


def _start_proxy(layout: Layout, node: NodeAddress, folder: Path) -> None:
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.kubeconfig_of("proxy"))},
        "hostnameOverride": node.name,
        "mode": "iptables",
        # Answers between pods of one node pass its bridge, not its iptables; so requests must come from the node.
        "iptables": {"masqueradeAll": True},
        # Zero: the limits of the system are left alone.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    (folder / "proxy.json").write_text(json.dumps(config))
    start(layout, f"{node.name}-kube-proxy", [layout.program("kube-proxy"), f"--config={folder / 'proxy.json'}"])
