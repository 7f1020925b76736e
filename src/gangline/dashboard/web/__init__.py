"""HTTP: who sends a request, whether it is served, and the endpoints."""
