"""The parts of which our own custom resource definitions are made. `gangline.schema.crds` puts them together."""
