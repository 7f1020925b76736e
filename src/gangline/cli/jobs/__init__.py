"""Commands on jobs of a server, one file each."""
