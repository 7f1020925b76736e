"""`gangline install`, `upgrade`, `uninstall` and `handover`: the operator in a cluster."""
