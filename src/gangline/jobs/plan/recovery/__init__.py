"""`runPolicy.recovery`: the cause of a failure decides what happens next."""
