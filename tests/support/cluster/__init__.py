"""Parts of a cluster in tests: kubelets, nodes, operators, schedulers, clients."""
