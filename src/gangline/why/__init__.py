"""Why a job does not do what it should: one cause, the evidence, the next step. Reads only, needs nothing installed."""
