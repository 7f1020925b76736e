"""The parts of the loopback network that a local cluster gives out. Data only.

Linux answers on all of 127.0.0.0/8 without being set up for it, so these addresses work without privileges.
"""

POD_RANGE = "127.64.0.0/10"
"""Addresses of pods that share the machine's network."""
SERVICE_RANGE = "127.16.0.0/12"
"""Cluster IPs of services, where pods share the machine's network."""
