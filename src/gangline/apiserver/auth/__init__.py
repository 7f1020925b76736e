"""Who sends a request (authentication) and what the sender may do (authorization)."""
