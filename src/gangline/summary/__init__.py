"""A job, its replicas, its events and its log lines in a few words, for everyone who shows them to people."""
