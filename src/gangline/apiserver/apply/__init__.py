"""Field ownership and server-side apply: pure functions of JSON and types."""
