"""Jobs, pods, runs and kubeconfigs, named by what matters in them."""
