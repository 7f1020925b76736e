"""The HTTP layer of the API server: requests, responses, discovery."""
