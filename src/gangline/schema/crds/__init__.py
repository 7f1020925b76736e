"""gangline's own custom resource definitions: `job_crds` and `gang_crds`, and the parts they are made of."""
