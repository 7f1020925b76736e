"""The admission plugins, with the names and the order of kube-apiserver."""
