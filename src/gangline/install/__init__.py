"""What an installation of gangline in a cluster consists of: values in, Kubernetes objects out. Nothing is sent from here."""
