"""What a job leaves behind: the values that functions return, and the errors that end them."""
