"""Resource quotas as pure functions: what objects use, which quotas they are charged to, what a quota has used."""
