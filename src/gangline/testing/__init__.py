"""Public helpers for testing controllers and operators."""
