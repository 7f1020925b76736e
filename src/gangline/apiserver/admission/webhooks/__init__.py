"""Admission webhooks: which are called for a request, what they are sent, and what follows from their answers."""
