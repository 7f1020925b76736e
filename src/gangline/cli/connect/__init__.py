"""Which server a command talks to (a kubeconfig's, the local control plane, a live run, the archive), and the work on it."""
