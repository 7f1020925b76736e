"""A Kubernetes cluster with real nodes on this machine, for tests. `hack/cluster.sh` is its command.

It lives in private namespaces: one mount, network and pid namespace for the control plane, and inside it another of
each for every node. No address outside of them is used, and ending the first process ends everything.

    keeper (outside)
    └─ control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, CoreDNS
       ├─ n1: containerd, kubelet, kube-proxy, containers
       └─ n2: the same

A node's first process ends the whole node with it, as a power cut does.

Standard library only: it starts before there is a virtual environment.
"""
