"""Other people's gang schedulers: the PodGroup each wants, and how it knows its pods."""
