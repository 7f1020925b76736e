"""The job kinds of `kubeflow.org/v1`."""
