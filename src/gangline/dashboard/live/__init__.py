"""What changes: the watches of one viewer, and the views that are made of them."""
