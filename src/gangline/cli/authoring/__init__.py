"""Commands for people who write jobs and operators: check, convert, crds, new."""
