"""Who owns which field, and server-side apply: pure functions over JSON and types."""
