"""Builders of jobs, pods, nodes, runs and kubeconfigs: arguments for what a test is about, defaults for the rest."""
