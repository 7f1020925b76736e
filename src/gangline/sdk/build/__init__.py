"""Jobs made from arguments. Pure."""
