"""HTTP/1.1 on bare sockets, for watches and for many small writes (ADR 0021)."""
