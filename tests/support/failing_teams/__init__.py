"""Teams one rank of which fails, and whose other ranks fail in words of their own because of that."""
