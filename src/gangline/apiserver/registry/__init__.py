"""The verbs of the API as transactions on the store."""
