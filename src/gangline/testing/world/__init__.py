"""A deterministic world for one job: server, caches, kubelet, users, and the invariants that must hold."""
