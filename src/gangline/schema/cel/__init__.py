"""Rules of schemas, in CEL: parsed by Google's parser, checked, costed and evaluated here on plain JSON."""
