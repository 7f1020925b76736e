"""Text for people, and the formats of `-o`."""
