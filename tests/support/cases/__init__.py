"""Tables of test cases that several tests use."""
