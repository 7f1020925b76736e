"""Tables of cases that several tests walk through."""
