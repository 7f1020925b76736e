"""Type trees of built-in and custom kinds, for patches, apply and strict decoding."""
