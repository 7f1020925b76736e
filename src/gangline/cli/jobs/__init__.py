"""Small commands on jobs of a server, one file each."""
