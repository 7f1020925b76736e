"""The certificates of a server of ours: issued by its own CA, kept in files, renewed while the server runs."""
