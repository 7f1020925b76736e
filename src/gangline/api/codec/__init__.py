"""JSON and YAML to structs and back, with errors that name the field and the line."""
