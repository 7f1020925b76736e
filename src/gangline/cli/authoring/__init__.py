"""Commands for authors of jobs and operators: check, convert, crd, crds, new."""
