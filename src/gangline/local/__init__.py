"""An embedded control plane for one machine."""
