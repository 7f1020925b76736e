"""Models and histories for property tests."""
