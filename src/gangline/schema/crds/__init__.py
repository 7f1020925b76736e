"""The parts of which our own custom resource definitions are made. `gangline.schema.crds.job_crds` puts them together."""
