"""Whether a CustomResourceDefinition is acceptable."""
