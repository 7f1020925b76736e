"""An append-only record of objects that changed: what a job, its pods and events were at any recorded moment."""
