"""CEL rules of schemas: parsed by Google's parser; checked, costed and evaluated here on plain JSON."""
