"""The one seam between the client and a server: a request in, a response out."""
