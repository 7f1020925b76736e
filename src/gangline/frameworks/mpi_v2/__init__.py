"""MPIJob `kubeflow.org/v2beta1`: ranks are started by SSH, and the launcher is a Job of Kubernetes."""
