"""Why a job waits or failed: one cause, the evidence, the next step. It only reads, and needs nothing installed."""
