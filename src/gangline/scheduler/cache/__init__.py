"""The mutable state of the scheduler, fed by informers."""
