"""The proxies of pods, services and nodes: HTTP requests that the server passes on."""
