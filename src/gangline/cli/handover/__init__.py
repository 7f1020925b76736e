"""`gangline handover`: jobs move from the Kubeflow operator to ours, and back."""
