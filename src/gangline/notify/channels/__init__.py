"""How a notification leaves the process: an HTTP request, or a command on this machine."""
