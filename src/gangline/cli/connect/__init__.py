"""Which server a command speaks to: a kubeconfig, the local control plane, a live run, or an archived one."""
