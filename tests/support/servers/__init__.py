"""Servers for tests: a real kube-apiserver, one in memory, faulty and scripted ones."""
