"""How containers run: as processes, or by podman or docker."""
