"""How to reach a server: kubeconfig, credentials, proxies, TLS."""
