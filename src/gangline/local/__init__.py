"""An embedded control plane for one machine: API server, controllers and node."""
