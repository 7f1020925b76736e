"""A dashboard with a made-up cluster behind it, for tests in a browser and for looking at pages while they are written."""
