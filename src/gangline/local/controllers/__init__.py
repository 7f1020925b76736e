"""The controllers that a cluster has in kube-controller-manager, as far as one machine needs them."""
